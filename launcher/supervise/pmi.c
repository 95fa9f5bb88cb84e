/*
 * The PMI exchange between MPI ranks of several nodes. When all ranks of a node wait at a
 * fence its daemon sends their key-value pairs, then FENCE. When every node has done so,
 * all pairs go to all nodes, followed by FENCE, which lets the ranks continue. The pairs
 * are not parsed here.
 */
#include "launcher/supervise/private.h"

#define PAIRS_MAX   (256u << 20) /* bytes of one round */
#define PAIRS_BYTES (512u << 10) /* of one frame */

void zt_sup_pmi_reset(struct zt_supervisor *s)
{
    zt_buf_release(&s->pmi_pairs);
    zt_buf_init(&s->pmi_pairs, PAIRS_MAX);
    s->num_fenced = 0;
    for (int i = 0; i < s->plan->num_nodes; i++)
        s->nodes[i].fenced = false;
}

void zt_sup_pmi_pairs(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;
    bool lines = f->body_bytes && f->body[f->body_bytes - 1] == '\n';

    if (node->state != NODE_RUNNING)
        return;
    if (!lines || zt_buf_put(&s->pmi_pairs, f->body, f->body_bytes))
        zt_sup_node_failed(s, node, 71, "its MPI ranks leave more than can be passed on");
}

/* The same bytes for every node. */
static void send_frame(struct zt_supervisor *s, zt_frame_type type, const void *body,
                       size_t n)
{
    struct zt_buf frame;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    if (zt_frame_put(&frame, type, body, n))
        zt_sup_node_failed(s, &s->nodes[0], zt_err_exit_code(ZT_E_NOMEM),
                           "no memory for what its MPI ranks wait for");
    else
        for (int i = 0; i < s->plan->num_nodes; i++)
            if (s->nodes[i].channel && s->nodes[i].state == NODE_RUNNING)
                s->nodes[i].channel->ops->write(s->nodes[i].channel, zt_buf_head(&frame),
                                                zt_buf_used(&frame));
    zt_buf_release(&frame);
}

/* To every node, in frames that end at the end of a line. */
static void send_all(struct zt_supervisor *s, const uint8_t *pairs, size_t n)
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

void zt_sup_pmi_fence(struct zt_sup_node *node)
{
    struct zt_supervisor *s = node->sup;

    if (node->state != NODE_RUNNING || node->fenced)
        return;
    node->fenced = true;
    if (++s->num_fenced < s->group.num_nodes)
        return;
    send_all(s, zt_buf_head(&s->pmi_pairs), zt_buf_used(&s->pmi_pairs));
    send_frame(s, ZT_FRAME_PMI_FENCE, NULL, 0);
    zt_sup_pmi_reset(s);
}
