/*
 * Any bytes, cut anywhere: the reader gives frames that lie inside the buffer or refuses,
 * and what it gave, written again, is the same bytes.
 */
#include "common/message/frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t cut = size ? data[0] + 1u : 1, done = 0;
    struct zt_buf in, again;
    struct zt_frame f;
    zt_err rc = ZT_E_SHORT;

    zt_buf_init(&in, 2 * ZT_FRAME_MAX);
    zt_buf_init(&again, 2 * ZT_FRAME_MAX);
    for (size_t at = 0; at < size && rc == ZT_E_SHORT; at += cut) {
        size_t n = size - at < cut ? size - at : cut;

        if (zt_buf_put(&in, data + at, n))
            break;
        while ((rc = zt_frame_peek(&in, &f, NULL)) == ZT_OK) {
            assert(f.body >= in.data && f.body + f.body_bytes <= in.data + in.len);
            zt_buf_drop(&again, zt_buf_used(&again));
            assert(zt_frame_put(&again, (zt_frame_type)f.type, f.body, f.body_bytes) ==
                   ZT_OK);
            assert(memcmp(zt_buf_head(&again), data + done, zt_buf_used(&again)) == 0);
            done += zt_buf_used(&again);
            zt_frame_drop(&in, &f);
        }
    }
    zt_buf_release(&in);
    zt_buf_release(&again);
    return 0;
}
