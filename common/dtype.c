#include "include/zlaunch/types.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ZT_F32] = {"f32", 4},           [ZT_BF16] = {"bf16", 2},
    [ZT_F16] = {"f16", 2},           [ZT_I32] = {"i32", 4},
    [ZT_I64] = {"i64", 8},           [ZT_U8] = {"u8", 1},
    [ZT_NUM_DTYPE] = {"unknown", 0}, [ZT_F8E4M3] = {"f8e4m3", 1},
    [ZT_F8E5M2] = {"f8e5m2", 1},     [ZT_REST16] = {"rest16", 2},
};

size_t zt_dtype_bytes(zt_dtype dtype)
{
    return (unsigned)dtype <= ZT_REST16 ? dtypes[dtype].bytes : 0;
}

const char *zt_dtype_name(zt_dtype dtype)
{
    return (unsigned)dtype <= ZT_REST16 ? dtypes[dtype].name : "unknown";
}
