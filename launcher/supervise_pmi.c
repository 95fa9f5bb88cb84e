/*
 * What MPI ranks of one node leave for those of the others. A daemon sends the pairs and
 * then FENCE when all its ranks wait; when every node has, all pairs go to all nodes, and
 * FENCE behind them lets the ranks go on. The pairs are not looked into here.
 */
#include "launcher/supervise_private.h"

#define PAIRS_MAX   (256u << 20) /* bytes of one round */
#define PAIRS_BYTES (512u << 10) /* of one frame */

void zt_sup_pmi_reset(struct zt_sup *s)
{
    zt_buf_release(&s->pmi_pairs);
    zt_buf_init(&s->pmi_pairs, PAIRS_MAX);
    s->num_fenced = 0;
    for (int i = 0; i < s->plan->num_nodes; i++)
        s->members[i].fenced = false;
}

void zt_sup_pmi_pairs(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_sup *s = m->sup;
    bool lines = f->body_bytes && f->body[f->body_bytes - 1] == '\n';

    if (m->state != MEMBER_RUNNING)
        return;
    if (!lines || zt_buf_put(&s->pmi_pairs, f->body, f->body_bytes))
        zt_sup_node_failed(s, m, 71, "its MPI ranks leave more than can be passed on");
}

/* The same bytes for every node. */
static void send_frame(struct zt_sup *s, zt_frame_type type, const void *body, size_t n)
{
    struct zt_buf frame;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    if (zt_frame_put(&frame, type, body, n) == ZT_OK)
        for (int i = 0; i < s->plan->num_nodes; i++)
            if (s->members[i].channel && s->members[i].state == MEMBER_RUNNING)
                s->members[i].channel->ops->write(
                    s->members[i].channel, zt_buf_head(&frame), zt_buf_used(&frame));
    zt_buf_release(&frame);
}

/* To every node, in frames that end at a line. */
static void send_all(struct zt_sup *s, const uint8_t *pairs, size_t n)
{
    while (n) {
        size_t len = n < PAIRS_BYTES ? n : PAIRS_BYTES;

        while (len < n && len && pairs[len - 1] != '\n')
            len--;
        if (!len) /* a line longer than a frame: the daemons would not take it */
            return;
        send_frame(s, ZT_FRAME_PMI_PAIRS, pairs, len);
        pairs += len;
        n -= len;
    }
}

void zt_sup_pmi_fence(struct zt_member *m)
{
    struct zt_sup *s = m->sup;

    if (m->state != MEMBER_RUNNING || m->fenced)
        return;
    m->fenced = true;
    if (++s->num_fenced < s->group.num_nodes)
        return;
    send_all(s, zt_buf_head(&s->pmi_pairs), zt_buf_used(&s->pmi_pairs));
    send_frame(s, ZT_FRAME_PMI_FENCE, NULL, 0);
    zt_sup_pmi_reset(s);
}
