/*
 * sampler.c -- positions and permutations.
 *
 * Samples are numbered through all epochs from the position that was set; a step is a
 * range of numbers, and each number becomes an epoch, an index within it, and through the
 * permutation a block, or a sample of the data. Nothing is stored per sample and nothing
 * advances: reading step 7 after step 3 costs what step 4 would.
 */
#include "worker/data/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "worker/data/pair_rows.h"
#include "worker/data/rows.h"

struct zt_sampler {
    const struct zt_dataset *ds;
    struct zt_sampler_config cfg;
    int64_t num_blocks, global_rows; /* n, G */
    bool by_sample;
    struct zt_sampler_state origin;
};

/* ---- the permutation ---- */

static uint64_t mix(uint64_t x)
{
    /* the finaliser of splitmix64: a bijection in which every bit reaches every bit */
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A Feistel network is a bijection of its 2 * half bits whatever its round function. */
static uint64_t feistel(uint64_t key, unsigned half, uint64_t x)
{
    enum { ROUNDS = 8 };
    uint64_t mask = (UINT64_C(1) << half) - 1, left = x >> half, right = x & mask;

    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (mix(right ^ mix(key + i)) & mask);

        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t zt_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t index)
{
    uint64_t key = mix(mix(seed) ^ (uint64_t)epoch), x = (uint64_t)index;
    unsigned half = 1;

    while (half < 31 && (UINT64_C(1) << (2 * half)) < (uint64_t)n)
        half++;
    /*
     * The network's domain is below 4 n: walking its cycle until it comes back under n
     * stays a bijection, and takes fewer than four turns on average.
     */
    do {
        x = feistel(key, half, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* ---- opening ---- */

/* Rows of the batches by which samples are put in order; 0: they are as shuffled. */
static int64_t own_grouping(const struct zt_sampler *s)
{
    return s->cfg.group_by_length ? s->global_rows : 0;
}

static zt_err check_sizes(int64_t block_size, int64_t rows, int64_t num_micro, int rank,
                          int world, int64_t *global_rows, struct zt_fault *fault)
{
    if (block_size < 1 || rows < 1 || num_micro < 1 || world < 1 || rank < 0 ||
        rank >= world || block_size > INT64_MAX / 4 ||
        __builtin_mul_overflow(rows, num_micro, global_rows) ||
        __builtin_mul_overflow(*global_rows, (int64_t)world, global_rows))
        return zt_fault_set(fault, ZT_E_ARG,
                            "sampler: block_size %lld, rows %lld, micro-batches %lld, "
                            "rank %d of %d",
                            (long long)block_size, (long long)rows, (long long)num_micro,
                            rank, world);
    return ZT_OK;
}

zt_err zt_sampler_open(const struct zt_dataset *ds, const struct zt_sampler_config *cfg,
                       struct zt_sampler **out, struct zt_fault *fault)
{
    int64_t tokens = zt_dataset_num_tokens(ds), T = cfg->block_size, n, rows = 0;
    int64_t behind =
        zt_dataset_rows(ds)->kind == ZT_ROWS_NEXT_TOKEN; /* the last target */
    int64_t least = cfg->random_start ? 2 * T : T + behind;
    struct zt_sampler *s;
    zt_err rc = check_sizes(T, cfg->micro_rows, cfg->num_micro, cfg->rank, cfg->world,
                            &rows, fault);

    if (rc)
        return rc;
    n = zt_dataset_num_rows(ds);
    if (!n && tokens < least)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "the training data have %lld tokens, too few for one block: "
                            "--block_size %lld needs %lld; give more data or smaller "
                            "blocks",
                            (long long)tokens, (long long)T, (long long)least);
    if (!n)
        n = cfg->random_start ? (tokens - T) / T : (tokens - behind) / T;
    if (cfg->drop_last && n < rows)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "the training data have %lld rows, fewer than the global "
                            "batch of %lld, and dataloader_drop_last drops them all; "
                            "give more data or smaller batches",
                            (long long)n, (long long)rows);
    s = calloc(1, sizeof(*s));
    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "sampler: no memory");
    s->ds = ds;
    s->cfg = *cfg;
    s->num_blocks = n;
    s->by_sample = zt_dataset_num_samples(ds) > 0;
    s->global_rows = rows;
    s->origin.seed = cfg->seed;
    s->origin.grouped = own_grouping(s);
    s->origin.fingerprint = zt_dataset_fingerprint(ds);
    *out = s;
    return ZT_OK;
}

void zt_sampler_close(struct zt_sampler *s)
{
    free(s);
}

/* ---- positions ---- */

/* Epoch and index of row `row` of the step after `steps` steps. */
static void locate(const struct zt_sampler *s, int64_t steps, int64_t row, int64_t *epoch,
                   int64_t *index)
{
    int64_t n = s->num_blocks, G = s->global_rows, at;

    if (s->cfg.drop_last) {
        int64_t left = (n - s->origin.index) / G, per_epoch = n / G;

        *epoch = s->origin.epoch;
        *index = s->origin.index + steps * G + row;
        if (steps >= left) {
            *epoch += 1 + (steps - left) / per_epoch;
            *index = (steps - left) % per_epoch * G + row;
        }
        return;
    }
    at = s->origin.index + steps * G + row;
    *epoch = s->origin.epoch + at / n;
    *index = at % n;
}

/* Where the block of (epoch, index) begins in the stream. */
static int64_t block_start(const struct zt_sampler *s, int64_t epoch, int64_t index)
{
    uint64_t seed = s->origin.seed;
    int64_t block =
        s->cfg.in_order ? index : zt_permute(seed, epoch, s->num_blocks, index);
    int64_t shift = 0;

    if (s->cfg.random_start)
        shift =
            (int64_t)(mix(mix(~seed) ^ (uint64_t)epoch) % (uint64_t)s->cfg.block_size);
    return shift + block * s->cfg.block_size;
}

/* ---- samples ---- */

/* The rows of a micro-batch: row b has pieces [first[b], first[b + 1]). */
struct row_list {
    struct zt_row_piece *pieces;
    int64_t *first; /* (B + 2): the last one is of a row that is not made */
    int64_t num_rows, room;
};

static bool rows_init(struct row_list *l, int64_t B)
{
    *l = (struct row_list){.pieces = malloc((size_t)B * sizeof(*l->pieces)),
                           .first = calloc((size_t)B + 2, sizeof(*l->first)),
                           .room = B};
    return l->pieces && l->first;
}

static void rows_release(struct row_list *l)
{
    free(l->pieces);
    free(l->first);
}

/* A piece of the row that is being made. False: no memory. */
static bool add_piece(struct row_list *l, struct zt_row_piece piece)
{
    int64_t *end = &l->first[l->num_rows + 1];

    if (*end == l->room) {
        size_t room = (size_t)l->room * 2;
        struct zt_row_piece *more = realloc(l->pieces, room * sizeof(*more));

        if (!more)
            return false;
        l->pieces = more;
        l->room = (int64_t)room;
    }
    l->pieces[(*end)++] = piece;
    return true;
}

/* The next row begins where this one ends. */
static void end_row(struct row_list *l)
{
    l->num_rows++;
    l->first[l->num_rows + 1] = l->first[l->num_rows];
}

static int64_t row_tokens(const struct row_list *l, int64_t row)
{
    int64_t n = 0;

    for (int64_t k = l->first[row]; k < l->first[row + 1]; k++)
        n += l->pieces[k].n;
    return n;
}

/* Samples of a stretch of an epoch, in the order in which they are taken. */
struct sorted_part {
    int64_t epoch, first, num;
    struct sized {
        int64_t sample, n;
    } * samples; /* (num) */
};

static int64_t shuffled(const struct zt_sampler *s, int64_t epoch, int64_t index)
{
    return s->cfg.in_order ? index
                           : zt_permute(s->origin.seed, epoch, s->num_blocks, index);
}

/* The longest first; of those of one length the order stays. */
static int compare_sizes(const void *x, const void *y)
{
    const struct sized *a = x, *b = y;

    if (a->n != b->n)
        return a->n < b->n ? 1 : -1;
    return (a->sample > b->sample) - (a->sample < b->sample);
}

static int64_t grouping_of(const struct zt_sampler *s, int64_t epoch)
{
    return epoch == s->origin.epoch ? s->origin.grouped : own_grouping(s);
}

/* As transformers' LengthGroupedSampler: up to 50 batches are put in order by length. */
static bool sort_part(const struct zt_sampler *s, int64_t epoch, int64_t index,
                      struct sorted_part *st)
{
    int64_t rows = grouping_of(s, epoch), batches = s->num_blocks / (4 * rows), most;

    batches = batches < 1 ? 1 : batches < 50 ? batches : 50;
    most = batches * rows;
    st->epoch = epoch;
    st->first = index / most * most;
    st->num = s->num_blocks - st->first < most ? s->num_blocks - st->first : most;
    free(st->samples);
    st->samples = malloc((size_t)st->num * sizeof(*st->samples));
    for (int64_t i = 0; st->samples && i < st->num; i++) {
        int64_t at;

        st->samples[i].sample = shuffled(s, epoch, st->first + i);
        zt_dataset_sample(s->ds, st->samples[i].sample, &at, &st->samples[i].n);
    }
    if (st->samples)
        qsort(st->samples, (size_t)st->num, sizeof(*st->samples), compare_sizes);
    return st->samples != NULL;
}

/* What a row of T tokens takes of a sample. */
static struct zt_row_piece piece_of(const struct zt_dataset *ds, int64_t epoch,
                                    int64_t sample, int64_t T)
{
    const struct zt_row_options *rows = zt_dataset_rows(ds);
    struct zt_row_piece p = {.at = sample, .epoch = epoch};
    int64_t a, b, all;

    if (rows->kind == ZT_ROWS_EXAMPLES) {
        p.n = zt_example_cut(rows, zt_dataset_example(ds, sample), T, &a, &b);
    } else {
        p.n = zt_dataset_cut(ds, sample, T, &p.at);
        zt_dataset_sample(ds, sample, &p.at, &all);
        p.cut = all - p.n;
    }
    return p;
}

/* Row `row` of data with samples. False: no memory. */
static bool add_samples(const struct zt_dataset *ds, int64_t epoch, int64_t row,
                        int64_t T, struct row_list *out)
{
    const int64_t *samples;
    int64_t num;
    bool added = true;

    if (zt_dataset_is_packed(ds)) {
        samples = zt_dataset_row(ds, row, &num);
        for (int64_t k = 0; added && k < num; k++)
            added = add_piece(out, piece_of(ds, epoch, samples[k], T));
    } else {
        added = add_piece(out, piece_of(ds, epoch, row, T));
    }
    end_row(out);
    return added;
}

/* Which sample a row is; -1: no memory. */
static int64_t find_sample(const struct zt_sampler *s, struct sorted_part *st,
                           int64_t epoch, int64_t index)
{
    if (!grouping_of(s, epoch))
        return shuffled(s, epoch, index);
    if ((!st->samples || st->epoch != epoch || index < st->first ||
         index >= st->first + st->num) &&
        !sort_part(s, epoch, index, st))
        return -1;
    return st->samples[index - st->first].sample;
}

/* False: no memory. */
static bool find_row(const struct zt_sampler *s, struct sorted_part *st, int64_t epoch,
                     int64_t index, struct row_list *out)
{
    int64_t T = s->cfg.block_size, row;

    if (!s->by_sample) {
        row = block_start(s, epoch, index);
        if (!add_piece(out, (struct zt_row_piece){row, T, epoch, 0}))
            return false;
        end_row(out);
        return true;
    }
    row = find_sample(s, st, epoch, index);
    return row >= 0 && add_samples(s->ds, epoch, row, T, out);
}

static zt_err fill(const struct zt_dataset *ds, const struct zt_field_buffers *out,
                   const struct row_list *l, int64_t T, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t b = 0; !rc && b < l->num_rows; b++)
        rc = zt_data_fill_row(ds, out, b, T, l->pieces + l->first[b],
                              l->first[b + 1] - l->first[b], fault);
    return rc;
}

static int64_t longest_row(const struct row_list *l)
{
    int64_t longest = 0;

    for (int64_t b = 0; b < l->num_rows; b++)
        longest = row_tokens(l, b) > longest ? row_tokens(l, b) : longest;
    return longest;
}

static void prefetch_blocks(const struct zt_sampler *s, int64_t step, int64_t row0)
{
    for (int64_t b = 0; !s->by_sample && b < s->cfg.micro_rows; b++) {
        int64_t epoch, index;

        locate(s, step, row0 + b, &epoch, &index);
        zt_dataset_prefetch(s->ds, block_start(s, epoch, index), s->cfg.block_size + 1);
    }
}

/* The rows of a micro-batch that begins at row `row0` of the step, of data that are pairs. */
static zt_err read_pairs(const struct zt_sampler *s, int64_t step, int64_t row0,
                         const struct zt_field_buffers *out, struct zt_widths *widths,
                         struct zt_fault *fault)
{
    const struct zt_pair_limits most = {s->cfg.block_size, s->cfg.source_size,
                                        s->cfg.padding};
    int64_t B = s->cfg.micro_rows, *samples = malloc((size_t)B * sizeof(*samples));
    struct sorted_part st = {.num = 0};
    bool found = samples != NULL;
    zt_err rc;

    for (int64_t b = 0; found && b < B; b++) {
        int64_t epoch, index;

        locate(s, step - 1, row0 + b, &epoch, &index);
        samples[b] = find_sample(s, &st, epoch, index);
        found = samples[b] >= 0;
    }
    rc = found ? zt_pair_rows_read(s->ds, &most, samples, B, out, widths, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "sampler: no memory");
    free(st.samples);
    free(samples);
    return rc;
}

zt_err zt_sampler_read(const struct zt_sampler *s, int64_t step, int64_t micro,
                       const struct zt_field_buffers *out, struct zt_widths *widths,
                       struct zt_fault *fault)
{
    int64_t T = s->cfg.block_size, B = s->cfg.micro_rows;
    int64_t row0 = zt_sampler_row0(s, micro);
    struct sorted_part st = {.num = 0};
    struct row_list rows;
    bool found;
    zt_err rc;

    if (step < 1 || step > INT64_MAX / 4 / s->global_rows || micro < 0 ||
        micro >= s->cfg.num_micro)
        return zt_fault_set(fault, ZT_E_ARG, "sampler: micro-batch %lld of step %lld",
                            (long long)micro, (long long)step);
    if (zt_dataset_is_pairs(s->ds))
        return read_pairs(s, step, row0, out, widths, fault);
    found = rows_init(&rows, B);
    for (int64_t b = 0; found && b < B; b++) {
        int64_t epoch, index;

        locate(s, step - 1, row0 + b, &epoch, &index);
        found = find_row(s, &st, epoch, index, &rows);
    }
    if (found && s->by_sample)
        T = zt_padded(&s->cfg.padding, longest_row(&rows), T);
    rc = found ? fill(s->ds, out, &rows, T, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "sampler: no memory");
    prefetch_blocks(s, step, row0); /* the same rows of the next step */
    if (widths)
        *widths = (struct zt_widths){T, 0};
    free(st.samples);
    rows_release(&rows);
    return rc;
}

int64_t zt_sampler_row0(const struct zt_sampler *s, int64_t micro)
{
    return (micro * s->cfg.world + s->cfg.rank) * s->cfg.micro_rows;
}

int64_t zt_sampler_num_blocks(const struct zt_sampler *s)
{
    return s->num_blocks;
}

int64_t zt_sampler_global_rows(const struct zt_sampler *s)
{
    return s->global_rows;
}

int64_t zt_sampler_steps_left(const struct zt_sampler *s, double epochs)
{
    double n = (double)s->num_blocks, G = (double)s->global_rows;
    double index = (double)s->origin.index, epoch = (double)s->origin.epoch;
    double per_epoch = s->cfg.drop_last ? floor(n / G) : n / G;
    double made = s->cfg.drop_last ? per_epoch - floor((n - index) / G) : index / G;
    double steps = (epochs - epoch) * per_epoch - made;

    /* 0.1 epochs of 30 steps are 3 steps, whatever 0.1 is in binary */
    steps = ceil(steps - 1e-9 * epochs * per_epoch);
    return steps < -0x1p62  ? -(INT64_C(1) << 62)
           : steps > 0x1p62 ? INT64_C(1) << 62
                            : (int64_t)steps;
}

int64_t zt_sampler_num_steps(const struct zt_sampler *s, double epochs)
{
    int64_t steps = zt_sampler_steps_left(s, epochs);

    return steps < 1 ? 1 : steps;
}

void zt_sampler_tell(const struct zt_sampler *s, int64_t steps,
                     struct zt_sampler_state *out)
{
    struct zt_sampler_state at = s->origin;

    at.blocks = s->num_blocks;
    locate(s, steps, 0, &at.epoch, &at.index);
    at.grouped = grouping_of(s, at.epoch);
    *out = at;
}

zt_err zt_sampler_seek(struct zt_sampler *s, const struct zt_sampler_state *at,
                       struct zt_fault *fault)
{
    int64_t blocks = at->blocks > 0 ? at->blocks : s->num_blocks;

    if (at->fingerprint != s->origin.fingerprint)
        return zt_fault_set(
            fault, ZT_E_CONFIG,
            "the position belongs to other training data (fingerprint "
            "%016llx, these have %016llx); give the same files in the same order, with "
            "the same --packing, tokenizer, columns, --source_prefix and "
            "--assistant_only_loss, the same --block_size where rows "
            "are packed, held out or limited, and what is held out of them for "
            "evaluation as it "
            "was (--do_eval without --eval_file, --eval_fraction, "
            "--max_train_samples), or begin anew from its weights alone: "
            "--model_name_or_path in place of --resume_from_checkpoint",
            (unsigned long long)at->fingerprint,
            (unsigned long long)s->origin.fingerprint);
    if (at->epoch < 0 || at->epoch > INT64_MAX / 4 || at->index < 0 ||
        at->index >= blocks)
        return zt_fault_set(fault, ZT_E_ARG,
                            "block %lld of epoch %lld: an epoch has %lld blocks; was the "
                            "block size another one?",
                            (long long)at->index, (long long)at->epoch,
                            (long long)blocks);
    s->origin = *at;
    if (at->index == 0 || at->grouped < 0 || at->grouped > INT64_MAX / 256)
        s->origin.grouped = own_grouping(s);
    s->origin.blocks = s->num_blocks;
    if (blocks != s->num_blocks)
        s->origin.index =
            (int64_t)((double)at->index / (double)blocks * (double)s->num_blocks);
    return ZT_OK;
}

/* ---- evaluation ---- */

zt_err zt_eval_batches_init(struct zt_eval_batches *ev, const struct zt_dataset *ds,
                            int64_t block_size, int64_t rows, int rank, int world,
                            struct zt_fault *fault)
{
    int64_t tokens = zt_dataset_num_tokens(ds), across = 0, blocks;
    zt_err rc = check_sizes(block_size, rows, 1, rank, world, &across, fault);

    if (rc)
        return rc;
    if (tokens < 2 && !zt_dataset_num_samples(ds))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "the evaluation data have %lld tokens; two are the least",
                            (long long)tokens);
    if (zt_dataset_rows(ds)->kind == ZT_ROWS_NEXT_TOKEN)
        tokens--; /* the first one is read only */
    blocks = (tokens + block_size - 1) / block_size;
    if (zt_dataset_num_rows(ds))
        blocks = zt_dataset_num_rows(ds);
    *ev = (struct zt_eval_batches){
        .ds = ds,
        .block_size = block_size,
        .rows = rows,
        .rank = rank,
        .world = world,
        .num_batches = blocks / across + (blocks % across != 0),
        .num_targets = tokens,
    };
    return ZT_OK;
}

/* Row `row` of the evaluation; past its end one without data. False: no memory. */
static bool eval_row(const struct zt_eval_batches *ev, int64_t row, struct row_list *out)
{
    int64_t T = ev->block_size, rows = zt_dataset_num_rows(ev->ds), at, left;
    bool added = true;

    if (rows && row < rows)
        return add_samples(ev->ds, ZT_EVAL_EPOCH, row, T, out);
    at = row <= ev->num_targets / T ? row * T : ev->num_targets;
    left = ev->num_targets - at;
    if (!rows && left > 0)
        added = add_piece(
            out, (struct zt_row_piece){at, left < T ? left : T, ZT_EVAL_EPOCH, 0});
    end_row(out);
    return added;
}

/* The rows of a batch that begins at row `row0`, of data that are pairs. */
static zt_err eval_pairs(const struct zt_eval_batches *ev, int64_t row0,
                         const struct zt_field_buffers *out, int64_t *num_rows,
                         struct zt_widths *widths, struct zt_fault *fault)
{
    const struct zt_pair_limits most = {ev->block_size, ev->source_size, ev->padding};
    int64_t *samples = malloc((size_t)ev->rows * sizeof(*samples)), rows = 0;
    zt_err rc;

    if (!samples)
        return zt_fault_set(fault, ZT_E_NOMEM, "evaluation: no memory");
    for (int64_t b = 0; b < ev->rows; b++) {
        bool there = row0 + b < zt_dataset_num_samples(ev->ds);

        samples[b] = there ? row0 + b : -1;
        rows += there;
    }
    rc = zt_pair_rows_read(ev->ds, &most, samples, ev->rows, out, widths, fault);
    free(samples);
    if (!rc)
        *num_rows = rows;
    return rc;
}

zt_err zt_eval_batches_read(const struct zt_eval_batches *ev, int64_t batch,
                            const struct zt_field_buffers *out, int64_t *num_rows,
                            struct zt_widths *widths, struct zt_fault *fault)
{
    int64_t T = ev->block_size, B = ev->rows;
    int64_t row0 = (batch * ev->world + ev->rank) * B;
    int64_t samples = zt_dataset_num_rows(ev->ds); /* one of them may have no tokens */
    struct row_list rows;
    bool found;
    zt_err rc;

    if (batch < 0 || batch >= ev->num_batches)
        return zt_fault_set(fault, ZT_E_ARG, "evaluation batch %lld of %lld",
                            (long long)batch, (long long)ev->num_batches);
    if (zt_dataset_is_pairs(ev->ds))
        return eval_pairs(ev, row0, out, num_rows, widths, fault);
    found = rows_init(&rows, B);
    for (int64_t b = 0; found && b < B; b++)
        found = eval_row(ev, row0 + b, &rows);
    if (found && samples)
        T = zt_padded(&ev->padding, longest_row(&rows), T);
    rc = found ? fill(ev->ds, out, &rows, T, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "evaluation: no memory");
    if (!rc) {
        *num_rows = 0;
        for (int64_t b = 0; b < B; b++)
            *num_rows += samples ? row0 + b < samples : row_tokens(&rows, b) > 0;
        if (widths)
            *widths = (struct zt_widths){T, 0};
    }
    rows_release(&rows);
    return rc;
}
