/*
 * The JSON of a checkpoint: any bytes, as manifest, newline and index of shard 0. Checksums
 * come after this: who writes them is not to be trusted either. Of what is accepted, every
 * part lies in its parameter and its file, and is found by its elements.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/checksummed_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct zt_ckpt_manifest *m)
{
    for (int64_t i = 0; i < m->num_parts; i++) {
        const struct zt_ckpt_part *p = &m->parts[i];
        const struct zt_ckpt_shard *s = &m->shards[p->shard];
        int64_t bytes = p->elems * (int64_t)zt_dtype_bytes(m->kinds[p->kind].dtype);

        if (p->first < 0 || p->elems > m->params[p->param].numel - p->first ||
            p->at < 0 || bytes > s->bytes - p->at ||
            zt_ckpt_find_part(m, p->kind, p->param, p->first + p->elems - 1) != p)
            abort();
    }
    for (int i = 0; i < m->num_params; i++)
        if (zt_ckpt_find_param(m, m->params[i].name) != i)
            abort();
}

static json_t *parse(const void *text, size_t n)
{
    return json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *line = memchr(data, '\n', n);
    size_t first = line ? (size_t)(line - data) : n;
    struct zt_ckpt_manifest m = {0};
    json_t *root = NULL;

    if (zt_sealed_json_parse("fuzz", data, n, &root, NULL) == ZT_OK)
        json_decref(root);
    root = parse(data, first);
    if (!root || zt_ckpt_manifest_parse("fuzz", root, &m, NULL))
        return 0;
    root = line ? parse(line + 1, n - first - 1) : NULL;
    if (root && m.num_shards && zt_ckpt_index_parse("fuzz", &m, 0, root, NULL) == ZT_OK &&
        zt_ckpt_sort_parts("fuzz", &m, NULL) == ZT_OK) {
        (void)!zt_ckpt_check_complete("fuzz", &m, NULL);
        check(&m);
    } else if (root && !m.num_shards) {
        json_decref(root);
    }
    zt_ckpt_manifest_release(&m);
    return 0;
}
