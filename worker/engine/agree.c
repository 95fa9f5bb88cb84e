/*
 * agree.c -- hashes first; then rank 0's text in pieces, which everybody compares with
 * its own while they pass by; then what each rank found.
 *
 * Nothing here is as long as a text: a rank holds one piece, one line of its own, and the
 * line of rank 0 that differs, whose beginning is in its own text, too.
 */
#include "worker/engine/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "worker/autograd/adapter.h"

#define LINE_BYTES  300
#define PIECE_BYTES ((size_t)16384)

/* What ranks compare; whole words, so that it can be compared as memory. */
struct text_digest {
    uint64_t high, low, bytes;
};

/* What a rank found. */
struct line_difference {
    char differs; /* from rank 0 */
    char mine[LINE_BYTES + 1], theirs[LINE_BYTES + 1];
};

/* A rank's own text beside that of rank 0, which comes in pieces. */
struct text_comparison {
    const char *text;
    size_t bytes, at;            /* at: how far both are the same */
    size_t line;                 /* where the line of `at` begins */
    bool found, over;            /* the difference; the end of rank 0's line behind it */
    struct line_difference *out; /* theirs is filled as it comes */
    size_t num_theirs;
};

static struct text_digest digest_text(const char *text)
{
    struct text_digest d = {.bytes = strlen(text)};
    XXH128_hash_t h = XXH3_128bits(text, d.bytes);

    d.high = h.high64;
    d.low = h.low64;
    return d;
}

/* ---- the first line that differs ---- */

/* Where to begin to show a line so that the difference is in what is shown. */
static size_t shown_from(const struct text_comparison *r)
{
    return r->at - r->line > LINE_BYTES * 2 / 3 ? r->at - LINE_BYTES / 3 : r->line;
}

static void append(char line[LINE_BYTES + 1], size_t *n, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && *n < LINE_BYTES; i++)
        line[(*n)++] = text[i];
}

/* Rank 0's line from the difference on, as far as this piece has it. */
static void append_rank0_line(struct text_comparison *r, const char *piece, size_t bytes)
{
    const char *end = memchr(piece, '\n', bytes);

    append(r->out->theirs, &r->num_theirs, piece, end ? (size_t)(end - piece) : bytes);
    r->over = end != NULL;
}

/* The difference is at r->at: our line, and what rank 0's has in common with it. */
static void note_difference(struct text_comparison *r)
{
    size_t from = shown_from(r), n = 0;
    const char *dots = from > r->line ? "..." : "";

    r->found = true;
    r->out->differs = 1;
    append(r->out->mine, &n, dots, strlen(dots));
    append(r->out->theirs, &r->num_theirs, dots, strlen(dots));
    append(r->out->mine, &n, r->text + from, strcspn(r->text + from, "\n"));
    append(r->out->theirs, &r->num_theirs, r->text + from, r->at - from);
}

/* The next piece of rank 0's text. */
static void compare(struct text_comparison *r, const char *piece, size_t bytes)
{
    size_t i = 0;

    while (!r->found && i < bytes) {
        if (r->at == r->bytes || r->text[r->at] != piece[i]) {
            note_difference(r);
            break;
        }
        r->at++;
        if (piece[i++] == '\n')
            r->line = r->at;
    }
    if (r->found && !r->over)
        append_rank0_line(r, piece + i, bytes - i);
}

/* All pieces are seen; ours may be longer. */
static void end_comparison(struct text_comparison *r)
{
    if (!r->found && r->at < r->bytes)
        note_difference(r);
}

static zt_err read_rank0(struct zt_comm *c, struct text_comparison *r, size_t bytes,
                         struct zt_fault *fault)
{
    char piece[PIECE_BYTES];
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < bytes; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

        if (zt_comm_rank(c) == 0)
            memcpy(piece, r->text + at, n);
        rc = zt_broadcast(c, piece, n, ZT_U8, 0, fault);
        if (!rc)
            compare(r, piece, n);
    }
    end_comparison(r);
    return rc;
}

/* ---- what is said about it ---- */

/* A line that was cut may end in half a character. */
static void drop_partial_character(char line[LINE_BYTES + 1])
{
    size_t n = strlen(line), i = n;

    if (n < LINE_BYTES)
        return;
    while (i > 0 && i > n - 4 && (line[i - 1] & 0xc0) == 0x80)
        i--;
    line[i > 0 && (line[i - 1] & 0x80) ? i - 1 : n] = 0;
}

/* The name of a line "name: value"; 0: it has none. */
static size_t name_bytes(const char *line)
{
    size_t n = strcspn(line, " ");

    return n && line[n] && line[n - 1] == ':' ? n : 0;
}

/* Lines of two names, which are in the order of the alphabet: who has the later one lacks the
 * other, and has nothing in its place. */
static void drop_unrelated_line(struct line_difference *d)
{
    size_t n = name_bytes(d->mine), k = name_bytes(d->theirs);

    if (n && k && (n != k || memcmp(d->mine, d->theirs, n) != 0))
        *(strcmp(d->mine, d->theirs) < 0 ? d->theirs : d->mine) = 0;
}

static zt_err report_difference(const char *what, struct line_difference *all, int world,
                                struct zt_fault *fault)
{
    int first = 0, others = -1;
    char more[32] = "";

    for (int r = world - 1; r > 0; r--) {
        if (all[r].differs) {
            first = r;
            others++;
        }
    }
    if (!first) /* hashes differ and texts do not: a peer contradicts itself */
        return zt_fault_set(fault, ZT_E_PEER,
                            "%s is not the same on all ranks, but no line differs", what);
    if (others)
        snprintf(more, sizeof(more), " (and %d more)", others);
    drop_partial_character(all[first].mine);
    drop_partial_character(all[first].theirs);
    drop_unrelated_line(&all[first]);
    return zt_fault_set(
        fault, ZT_E_PEER,
        "rank %d%s differs from rank 0 in %s: it has \"%s\" where rank 0 has \"%s\"; "
        "start all ranks with the same",
        first, more, what, *all[first].mine ? all[first].mine : "(nothing)",
        *all[first].theirs ? all[first].theirs : "(nothing)");
}

static zt_err find_difference(struct zt_comm *c, const char *what, const char *text,
                              size_t rank0_bytes, struct line_difference *all,
                              struct zt_fault *fault)
{
    struct line_difference *own = &all[zt_comm_rank(c)];
    struct text_comparison r = {.text = text, .bytes = strlen(text), .out = own};
    zt_err rc = read_rank0(c, &r, rank0_bytes, fault);

    if (!rc)
        rc = zt_all_gather(c, own, all, sizeof(*own), ZT_U8, fault);
    return rc ? rc : report_difference(what, all, zt_comm_world(c), fault);
}

static bool all_equal(const struct text_digest *d, int world)
{
    for (int r = 1; r < world; r++)
        if (memcmp(&d[r], &d[0], sizeof(*d)) != 0)
            return false;
    return true;
}

zt_err zt_agree(struct zt_comm *c, const char *what, const char *text,
                struct zt_fault *fault)
{
    size_t world = (size_t)zt_comm_world(c);
    struct line_difference *findings = calloc(world, sizeof(*findings));
    struct text_digest *digests = calloc(world, sizeof(*digests)),
                       own = digest_text(text);
    zt_err rc;

    if (!findings || !digests)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "comparing %s: no host memory", what);
    else
        rc = zt_all_gather(c, &own, digests, sizeof(own), ZT_U8, fault);
    if (!rc && !all_equal(digests, (int)world))
        rc = find_difference(c, what, text, digests[0].bytes, findings, fault);
    free(findings);
    free(digests);
    return rc;
}

/* ---- texts ---- */

/* Close the stream that writes *text; a failure frees it. */
static zt_err close_text(FILE *f, char **text, const char *what, struct zt_fault *fault)
{
    bool ok = f && !ferror(f);

    if (f && fclose(f))
        ok = false;
    if (ok)
        return ZT_OK;
    free(*text);
    *text = NULL;
    return zt_fault_set(fault, ZT_E_NOMEM, "describing %s: no host memory", what);
}

static void put_init(FILE *f, const struct zt_init *init)
{
    static const char *const names[] = {[ZT_INIT_ZEROS] = "zeros",
                                        [ZT_INIT_CONSTANT] = "constant",
                                        [ZT_INIT_NORMAL] = "normal",
                                        [ZT_INIT_UNIFORM] = "uniform"};

    fprintf(f, "%s", names[init->kind]);
    if (init->kind == ZT_INIT_CONSTANT)
        fprintf(f, " %.9g", (double)init->a);
    else if (init->kind != ZT_INIT_ZEROS)
        fprintf(f, " %.9g %.9g", (double)init->a, (double)init->b);
}

static void put_param(FILE *f, const struct zt_param *p)
{
    fprintf(f, "parameter %s: (", p->name);
    for (int i = 0; i < p->ndim; i++)
        fprintf(f, "%s%" PRId64, i ? ", " : "", p->shape[i]);
    fprintf(f, ")%s%s%s, ", p->flags & ZT_NO_DECAY ? ", no decay" : "",
            p->flags & ZT_FROZEN ? ", frozen" : "", p->flags & ZT_EXTRA ? ", extra" : "");
    put_init(f, &p->init);
    fputc('\n', f);
}

static void put_field(FILE *f, const struct zt_field *field)
{
    char type[96];

    fprintf(f, "field %s: %s%s%s, padded with %.9g\n", field->name,
            zt_field_text(field, type), field->required ? ", required" : "",
            field->label ? ", a label" : "", field->pad);
}

static void put_layout(FILE *f, const struct zt_batch_layout *l)
{
    static const char *const names[] = {[ZT_DIVISOR_TARGETS] = "targets of",
                                        [ZT_DIVISOR_ROWS] = "rows",
                                        [ZT_DIVISOR_FIELD_SUM] = "the sum of"};

    for (int i = 0; i < l->num; i++)
        put_field(f, &l->fields[i]);
    fprintf(f, "loss divided by %s %s\n", names[l->divisor],
            l->divisor_field < 0 ? "" : l->fields[l->divisor_field].name);
}

static void put_adapter(FILE *f, const struct zt_param *p)
{
    if (p->adapter)
        fprintf(f, "adapter of %s: scale %.9g, dropout %.9g\n", p->name,
                (double)p->adapter->scale, (double)p->adapter->dropout);
}

zt_err zt_agree_model_text(const struct zt_model *m, char **out, struct zt_fault *fault)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    zt_err rc;

    if (f)
        fprintf(f, "plugin %s\nhidden size %" PRId64 "\nvocabulary %" PRId64 "\n",
                m->plugin->name, m->hidden_size, m->vocab);
    if (f)
        put_layout(f, &m->layout);
    for (int i = 0; f && i < m->num_blocks; i++) {
        const struct zt_block *b = m->blocks[i];

        fprintf(f, "block %s\n", b->name);
        for (int k = 0; k < b->num_params; k++)
            put_param(f, b->params[k]);
        for (int k = 0; k < b->num_params; k++)
            put_adapter(f, b->params[k]);
        for (int k = 0; k < b->num_shared; k++)
            fprintf(f, "shares %s\n", b->shared[k]->name);
    }
    rc = close_text(f, &text, "the model", fault);
    if (!rc)
        *out = text;
    return rc;
}

static void put_data(FILE *f, const char *which, const struct zt_dataset *ds)
{
    if (!ds) {
        fprintf(f, "%s: none\n", which);
        return;
    }
    fprintf(f, "%s: %" PRId64 " tokens of %s\n", which, zt_dataset_num_tokens(ds),
            zt_dataset_format(ds));
    fprintf(f, "%s: vocabulary %" PRId64 "\n", which, zt_dataset_vocab(ds));
    fprintf(f, "%s: contents %016" PRIx64 "\n", which, zt_dataset_fingerprint(ds));
}

zt_err zt_agree_data_text(const struct zt_dataset *train, const struct zt_dataset *eval,
                          char **out, struct zt_fault *fault)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    zt_err rc;

    if (f) {
        put_data(f, "training data", train);
        put_data(f, "evaluation data", eval);
    }
    rc = close_text(f, &text, "the data", fault);
    if (!rc)
        *out = text;
    return rc;
}
