/*
 * schema_rows.h -- how the files of the key table write a row; for these alone.
 */
#ifndef COMMON_SCHEMA_ROWS_H
#define COMMON_SCHEMA_ROWS_H

#include "common/schema.h"

/* path, type, status, default (JSON text), and whatever else the row has */
#define K(path_, type_, status_, def_, ...)                                              \
    {                                                                                    \
        .path = path_, .type = ZT_KEY_##type_, .status = ZT_##status_, .def = def_,      \
        __VA_ARGS__                                                                      \
    }

#endif
