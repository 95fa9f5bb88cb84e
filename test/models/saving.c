/*
 * saving.c -- GPT-2 with a state of its own, on which its weights depend, and checkpoints of
 * its own.
 *
 *      ZT_SAVE_AT    the step after which it saves
 *      ZT_SAVE_DIR   the folder; not set: the run's
 *      ZT_SAVE_TAG   the tag; "by-rank": another on each rank; not set: by the step
 *      ZT_SAVE_FAIL  save_state fails
 */
#define zt_plugin_entry gpt2_entry
#include "models/gpt2.c" /* NOLINT(bugprone-suspicious-include): with another entry */
#undef zt_plugin_entry

static struct {
    uint64_t draws;
    double average;
    unsigned char bytes[256]; /* of every value */
} own;

/* One weight of the embedding moves by what the state says. */
static zt_err move_weight(zt_weights *w, const struct gpt2 *net, int64_t step)
{
    float value;

    own.draws = own.draws * 6364136223846793005u + (uint64_t)step;
    own.average = 0.9 * own.average + 0.1 * (double)(own.draws >> 40);
    for (size_t i = 0; i < sizeof(own.bytes); i++)
        own.bytes[i] = (unsigned char)(own.bytes[i] * 3 + i + (own.draws >> 56));
    if (!zt_weights_read(w, net->wte, 0, 1, &value))
        return ZT_E_PLUGIN;
    value += (float)(own.average * 1e-9 + own.bytes[7] * 1e-4);
    return zt_weights_write(w, net->wte, 0, 1, &value) ? ZT_OK : ZT_E_PLUGIN;
}

static zt_err after_step(zt_weights *w, void *self, int64_t step)
{
    const char *at = getenv("ZT_SAVE_AT"), *tag = getenv("ZT_SAVE_TAG");
    char by_rank[32];
    zt_err rc = move_weight(w, self, step);

    if (rc || !at || strtoll(at, NULL, 10) != step)
        return rc;
    snprintf(by_rank, sizeof(by_rank), "of-rank-%d", zt_weights_rank(w));
    if (tag && strcmp(tag, "by-rank") == 0)
        tag = by_rank;
    return zt_save_checkpoint(w, getenv("ZT_SAVE_DIR"), tag) ? ZT_OK : ZT_E_PLUGIN;
}

static zt_err save_state(zt_client_state *s, void *self)
{
    (void)self;
    if (getenv("ZT_SAVE_FAIL"))
        return ZT_E_PLUGIN;
    zt_client_state_put(s, "draws, average", &own, offsetof(__typeof__(own), bytes));
    zt_client_state_put(s, "bytes", own.bytes, sizeof(own.bytes));
    zt_client_state_put(s, "nothing", NULL, 0);
    return ZT_OK;
}

static zt_err load_state(const zt_client_state *s, void *self)
{
    size_t counts = 0, bytes = 0, nothing = 1;
    const void *a = zt_client_state_get(s, "draws, average", &counts);
    const void *b = zt_client_state_get(s, "bytes", &bytes);

    (void)self;
    if (!a || !b || counts != offsetof(__typeof__(own), bytes) ||
        bytes != sizeof(own.bytes) || zt_client_state_get(s, "other", &bytes) ||
        !zt_client_state_get(s, "nothing", &nothing) || nothing)
        return ZT_E_FORMAT;
    memcpy(&own, a, counts);
    memcpy(own.bytes, b, sizeof(own.bytes));
    return ZT_OK;
}

ZT_PLUGIN(.name = "saving", .summary = "GPT-2 that saves by itself", .options = options,
          .build = build, .forward = forward, .after_step = after_step,
          .save_state = save_state, .load_state = load_state);
