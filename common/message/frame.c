#include "common/message/frame.h"

#include <string.h>

zt_err zt_frame_put(struct zt_buf *out, zt_frame_type type, const void *body,
                    size_t body_bytes)
{
    uint8_t *to;
    zt_err rc;

    if (body_bytes > ZT_FRAME_MAX - 1)
        return ZT_E_LIMIT;
    rc = zt_buf_reserve(out, ZT_FRAME_HEADER + 1 + body_bytes, &to);
    if (rc)
        return rc;
    zt_set_u32(to, (uint32_t)body_bytes + 1);
    to[ZT_FRAME_HEADER] = (uint8_t)type;
    if (body_bytes)
        memcpy(to + ZT_FRAME_HEADER + 1, body, body_bytes);
    zt_buf_commit(out, ZT_FRAME_HEADER + 1 + body_bytes);
    return ZT_OK;
}

zt_err zt_frame_peek(const struct zt_buf *in, struct zt_frame *out,
                     struct zt_fault *fault)
{
    const uint8_t *p;
    uint32_t length;

    if (zt_buf_used(in) < ZT_FRAME_HEADER)
        return ZT_E_SHORT;
    p = zt_buf_head(in);
    length = zt_get_u32(p);
    if (length < 1 || length > ZT_FRAME_MAX)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "control channel: a frame of %u bytes (1 to %u are allowed); "
                            "something else writes to this channel",
                            length, ZT_FRAME_MAX);
    if (zt_buf_used(in) - ZT_FRAME_HEADER < length)
        return ZT_E_SHORT;
    out->type = p[ZT_FRAME_HEADER];
    out->body = p + ZT_FRAME_HEADER + 1;
    out->body_bytes = length - 1;
    return ZT_OK;
}

void zt_frame_drop(struct zt_buf *in, const struct zt_frame *frame)
{
    zt_buf_drop(in, ZT_FRAME_HEADER + 1 + frame->body_bytes);
}
