#include "common/message/input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void zt_line_reader_init(struct zt_line_reader *r)
{
    *r = (struct zt_line_reader){.too_long = 0};
    zt_buf_init(&r->in, 2 * ZT_INPUT_MAX);
}

void zt_line_reader_release(struct zt_line_reader *r)
{
    zt_buf_release(&r->in);
}

void zt_line_reader_fill(struct zt_line_reader *r, int fd)
{
    uint8_t block[4096];
    ssize_t k = read(fd, block, sizeof(block));

    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (k <= 0 || zt_buf_put(&r->in, block, (size_t)k))
        r->ended = true;
}

/* Of a line that is passed over, as much as is there; with its end it has ended. */
static void skip(struct zt_line_reader *r, const uint8_t *end)
{
    size_t n = end ? (size_t)(end - zt_buf_head(&r->in)) + 1 : zt_buf_used(&r->in);

    r->too_long += !r->skips;
    r->skips = !end;
    zt_buf_drop(&r->in, n);
}

zt_input_kind zt_line_reader_take(struct zt_line_reader *r, struct zt_buf *line)
{
    while (zt_buf_used(&r->in)) {
        size_t used = zt_buf_used(&r->in);
        const uint8_t *end = memchr(zt_buf_head(&r->in), '\n', used);
        size_t n = end ? (size_t)(end - zt_buf_head(&r->in)) : used;

        if (r->skips || n > ZT_INPUT_MAX) {
            skip(r, end);
            continue;
        }
        if (!end && !r->ended)
            return ZT_INPUT_NONE;
        if (zt_buf_put(line, zt_buf_head(&r->in), n))
            return ZT_INPUT_END;
        zt_buf_drop(&r->in, end ? n + 1 : n);
        return ZT_INPUT_LINE;
    }
    return r->ended ? ZT_INPUT_END : ZT_INPUT_NONE;
}
