/*
 * check.h -- the rules of every kernel's arguments, one zt_check_<name> per row of
 * ZT_KERNELS, so that a broken rule is the same sentence on every backend:
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
