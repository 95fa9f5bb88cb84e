#include "worker/daemon/lines.h"

void zt_lines_init(struct zt_lines *l)
{
    *l = (struct zt_lines){0};
    zt_buf_init(&l->pending, SIZE_MAX / 4);
}

void zt_lines_release(struct zt_lines *l)
{
    zt_buf_release(&l->pending);
}

/* Hand out all up to the last line end, `whole` bytes; what is left waits for more. */
static void hand_out(struct zt_lines *l, size_t whole, zt_lines_fn fn, void *arg)
{
    if (!whole)
        return;
    fn(arg, (const char *)zt_buf_head(&l->pending), whole);
    zt_buf_drop(&l->pending, whole);
}

/* Inside a character of UTF-8? */
static bool goes_on(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

zt_err zt_lines_feed(struct zt_lines *l, const char *bytes, size_t n, zt_lines_fn fn,
                     void *arg)
{
    size_t whole = 0, at = 0;
    uint8_t *to;
    /* a byte makes at most two: itself and the end of a line that grew too long */
    zt_err rc = zt_buf_reserve(&l->pending, 2 * n + 1, &to);

    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];

        if (l->cr) {
            l->cr = false;
            if (l->column || c == '\n') {
                to[at++] = '\n';
                l->column = 0;
                whole = at;
            }
            if (c == '\n')
                continue;
        }
        if (c == '\r') {
            l->cr = true;
            continue;
        }
        if (c != '\n' && l->column >= ZT_LINE_MAX &&
            (!goes_on(c) || l->column == ZT_LINE_MAX + 3)) {
            to[at++] = '\n';
            l->column = 0;
            whole = at;
        }
        to[at++] = (uint8_t)c;
        l->column++;
        if (c == '\n') {
            l->column = 0;
            whole = at;
        }
    }
    if (whole)
        whole += zt_buf_used(&l->pending);
    zt_buf_commit(&l->pending, at);
    hand_out(l, whole, fn, arg);
    return ZT_OK;
}

void zt_lines_finish(struct zt_lines *l, zt_lines_fn fn, void *arg)
{
    l->cr = false;
    if (!zt_buf_used(&l->pending))
        return;
    if (zt_buf_put_u8(&l->pending, '\n') == ZT_OK)
        hand_out(l, zt_buf_used(&l->pending), fn, arg);
    l->column = 0;
}
