/*
 * check.h -- checks the arguments of every kernel, one zt_check_<name> per row of
 * ZT_KERNELS, so that every backend reports the same error:
 *
 *      layernorm: x (8, 768) f32 but w (512) f32
 *
 * A check reads shapes, strides and types, never what views point to. ZT_E_ARG.
 */
#ifndef KERNELS_CHECK_H
#define KERNELS_CHECK_H

#include "kernels/backend.h"

#define ZT_CHECK_DECLARE(name, args)                                                     \
    zt_err zt_check_##name(const args *a, struct zt_fault *fault) ZT_MUST_CHECK;
ZT_KERNELS(ZT_CHECK_DECLARE)
#undef ZT_CHECK_DECLARE

#endif
