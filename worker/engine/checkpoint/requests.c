/*
 * requests.c -- checkpoints that a plugin asks for: where they go, which is what rank 0 says.
 *
 * As in DeepSpeed, ranks compare hashes of their tags first (checkpoint.tag_validation):
 * Warn names the first rank with another, Fail ends the run, Ignore does not compare.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/checkpoint/private.h"

/* The first rank whose hash is not that of rank 0; 0: all have the same. */
static int first_other(const int64_t *hashes, int world)
{
    for (int r = 1; r < world; r++)
        if (hashes[r] != hashes[0])
            return r;
    return 0;
}

static zt_err validate_tag(struct zt_engine *e, const char *tag, struct zt_fault *fault)
{
    int64_t mine = (int64_t)zt_hash_bytes(tag, strlen(tag)), *all;
    zt_err rc;
    int other;

    if (strcasecmp(e->run->tag_validation, "Ignore") == 0)
        return ZT_OK;
    all = calloc((size_t)e->run->world, sizeof(*all));
    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    rc = zt_all_gather(e->comm, &mine, all, 1, ZT_I64, fault);
    other = rc ? 0 : first_other(all, e->run->world);
    free(all);
    if (rc || !other)
        return rc;
    if (strcasecmp(e->run->tag_validation, "Fail") == 0)
        return zt_fault_set(
            fault, ZT_E_PLUGIN,
            "plugin %s: rank %d saves under another tag than rank 0 (here "
            "it is %s); a tag must not depend on the rank "
            "(checkpoint.tag_validation is Fail)",
            e->plugin->name, other, tag);
    if (e->run->rank == 0)
        zt_warn("checkpoint",
                "rank %d saves under another tag than rank 0: %s, that of rank 0, is "
                "taken; a tag must not depend on the rank",
                other, tag);
    return ZT_OK;
}

zt_err zt_ckpt_agree_on_request(struct zt_engine *e, int i, int64_t step,
                                struct zt_ckpt_place *out, struct zt_fault *fault)
{
    const char *dir = e->saves.of[i].dir, *tag = e->saves.of[i].tag;
    zt_err rc;

    if (!dir[0] && !e->run->output_dir)
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "plugin %s saves checkpoints into the run's folder: "
                            "--output_dir names one",
                            e->plugin->name);
    memset(out, 0, sizeof(*out));
    zt_ckpt_place_of_step(out, dir[0] ? dir : e->run->output_dir, step);
    out->name[0] = 0;
    if (tag[0])
        snprintf(out->tag, sizeof(out->tag), "%s", tag);
    rc = validate_tag(e, out->tag, fault);
    if (!rc)
        rc = zt_broadcast(e->comm, out, sizeof(*out), ZT_U8, 0, fault);
    if (!rc && (!zt_ckpt_is_plain_name(out->tag) || strcmp(out->tag, "latest") == 0 ||
                zt_ckpt_step_of_name(out->tag) >= 0))
        rc = zt_fault_set(fault, ZT_E_PLUGIN,
                          "plugin %s: \"%s\" is no tag of a checkpoint: a name without "
                          "slashes, no dot in front, not `latest` and not "
                          "checkpoint-N, as the run names its own",
                          e->plugin->name, out->tag);
    return rc;
}
