#include "include/zlaunch/types.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[ZT_NUM_DTYPE] = {
    [ZT_F32] = {"f32", 4}, [ZT_BF16] = {"bf16", 2}, [ZT_F16] = {"f16", 2},
    [ZT_I32] = {"i32", 4}, [ZT_I64] = {"i64", 8},   [ZT_U8] = {"u8", 1},
};

size_t zt_dtype_bytes(zt_dtype dtype)
{
    return (unsigned)dtype < ZT_NUM_DTYPE ? dtypes[dtype].bytes : 0;
}

const char *zt_dtype_name(zt_dtype dtype)
{
    return (unsigned)dtype < ZT_NUM_DTYPE ? dtypes[dtype].name : "unknown";
}
