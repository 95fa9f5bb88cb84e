/*
 * lines.c -- threads take pieces of the text in turn, and give their ids in the same turn.
 */
#include "worker/text/rows/lines.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/proc.h"

#define PIECE_BYTES  ((size_t)1 << 20)
#define MOST_THREADS 256

struct team {
    const struct zt_lines_job *job;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t turned;
    size_t taken;                   /* bytes of the text that somebody has */
    uint64_t pieces, given;         /* pieces taken; pieces whose ids the sink has */
    struct zt_lines_counts *counts; /* the caller's; NULL */
    zt_err rc; /* of the first piece that failed: nothing is taken or given after it */
    struct zt_fault fault;
};

/* A thread's own. */
struct hand {
    struct zt_encoder *encoder;
    struct zt_buf ids, lengths; /* int32_t; uint32_t per line */
    struct zt_buf text;         /* of a conversation */
    struct zt_buf answers;      /* zt_template_span: of it */
    uint64_t blank, replaced;   /* rows of the piece; of all pieces that it gave */
    struct zt_fault fault;
};

static size_t end_of_piece(const struct zt_lines_job *job, size_t from)
{
    size_t least = job->n - from < PIECE_BYTES ? job->n - from : PIECE_BYTES, at = from;
    const char *end;

    if (job->records) {
        while (at < job->n && at - from < least)
            at = zt_records_end(job->records, at);
        return at;
    }
    end = memchr(job->text + from + least - 1, '\n', job->n - from - least + 1);
    return end ? (size_t)(end + 1 - job->text) : job->n;
}

/* The next piece: whole lines. False: nothing is left. */
static bool take_piece(struct team *t, size_t *from, size_t *to, uint64_t *number)
{
    bool left;

    pthread_mutex_lock(&t->lock);
    *from = t->taken;
    left = !t->rc && *from < t->job->n;
    if (left) {
        *to = t->taken = end_of_piece(t->job, *from);
        *number = t->pieces++;
    }
    pthread_mutex_unlock(&t->lock);
    return left;
}

static zt_err put_bytes(const struct zt_lines_job *job, struct hand *h, const char *text,
                        size_t n)
{
    uint8_t *room;
    zt_err rc = zt_buf_reserve(&h->ids, (n + 1) * sizeof(int32_t), &room);
    int32_t *ids = (int32_t *)(void *)room;

    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint8_t)text[i];
    ids[n] = job->end;
    zt_buf_commit(&h->ids, (n + 1) * sizeof(int32_t));
    return ZT_OK;
}

/* A chat template puts what frames a conversation. */
static bool frames(const struct zt_lines_job *job)
{
    return !job->chat;
}

/* A pair ends as what is to be written ends. */
static zt_err put_end(const struct zt_lines_job *job, struct hand *h)
{
    int32_t end = zt_tokenizer_end(job->tokenizer);

    return end < 0 ? ZT_OK : zt_buf_put(&h->ids, &end, sizeof(end));
}

/* Texts of a pair end once, by their own words, by their frame, or by what is put. */
static bool lacks_end(const struct zt_lines_job *job, const int32_t *ids, size_t num)
{
    return job->pair.source && !(num && ids[num - 1] == zt_tokenizer_end(job->tokenizer));
}

static zt_err put_text(const struct zt_lines_job *job, struct hand *h, const char *text,
                       size_t n)
{
    const int32_t *ids;
    size_t num;
    zt_err rc;

    if (!job->tokenizer)
        return put_bytes(job, h, text, n);
    rc = zt_encode(h->encoder, text, n, frames(job), &ids, &num, &h->fault);
    if (rc)
        return rc;
    rc = zt_buf_put(&h->ids, ids, num * sizeof(*ids));
    return !rc && lacks_end(job, ids, num) ? put_end(job, h) : rc;
}

/* The first `source` bytes of the text and the others, as two: ids of the former are marked. */
static zt_err put_both(const struct zt_lines_job *job, struct hand *h, const char *text,
                       size_t n, size_t source)
{
    size_t before = zt_buf_used(&h->ids);
    zt_err rc = put_text(job, h, text, source);
    int32_t *ids = (int32_t *)(void *)(h->ids.data + h->ids.off + before);

    for (size_t i = 0; !rc && i < (zt_buf_used(&h->ids) - before) / sizeof(*ids); i++)
        ids[i] = ~ids[i];
    return rc ? rc : put_text(job, h, text + source, n - source);
}

static bool is_blank(const char *text, size_t n)
{
    while (n && text[n - 1] && strchr(" \t\n\v\f\r", text[n - 1]))
        n--;
    return !n;
}

/* Words of the tokenizer's are in the fault where they say more than that there is no memory. */
static zt_err put_ids(const struct zt_lines_job *job, struct hand *h, const char *text,
                      size_t n)
{
    const struct zt_template_span *target = (const void *)zt_buf_head(&h->answers);
    size_t before = zt_buf_used(&h->ids);
    uint32_t count;
    zt_err rc;

    if (job->masked && is_blank(text, n))
        n = 0;
    if (job->pair.separate)
        rc = put_both(job, h, text, n, target->from);
    else
        rc = put_text(job, h, text, n);
    if (rc && h->fault.code)
        return rc;
    count = (uint32_t)((zt_buf_used(&h->ids) - before) / sizeof(int32_t));
    if (!rc)
        rc = zt_buf_put(&h->lengths, &count, sizeof(count));
    return rc ? zt_fault_set(&h->fault, rc, "no memory for its tokens") : ZT_OK;
}

static zt_err encode_line(const struct zt_lines_job *job, struct hand *h, size_t from,
                          size_t to)
{
    bool feeds = job->masked && to > from && job->text[to - 1] == '\n';
    zt_err rc = put_ids(job, h, job->text + from, to - from - feeds);

    return rc ? zt_fault_context(&h->fault, rc, "%s: line at byte %zu", job->name, from)
              : ZT_OK;
}

static bool marks_context(const struct zt_lines_job *job)
{
    return (job->chat || job->pair.source) && job->answers_only;
}

static zt_err text_of_pair(const struct zt_lines_job *job, struct hand *h,
                           const json_t *row, struct zt_fault *fault)
{
    struct zt_template_span target = {0, 0};
    zt_err rc = zt_pair_render(&job->pair, row, &h->text, &target.from, fault);

    target.to = zt_buf_used(&h->text);
    if (!rc && zt_buf_put(&h->answers, &target, sizeof(target)) != ZT_OK)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "no memory for its text");
    return rc;
}

/*
 * The first row says what all rows are, where nobody else does: one that has more than it would be
 * learnt in part.
 */
static zt_err check_kind(const struct zt_lines_job *job, struct hand *h, size_t from,
                         const json_t *row)
{
    const char *more = NULL;

    if (json_is_array(json_object_get(row, "messages")))
        more = "\"messages\"";
    else if (json_object_get(row, "prompt") && json_object_get(row, "completion"))
        more = "\"prompt\" and \"completion\"";
    else if (json_is_string(json_object_get(row, "text")))
        more = "\"text\"";
    if (!more || strcmp(job->column, "text") == 0)
        return ZT_OK;
    return zt_records_fault(job->records, from, ZT_E_FORMAT, &h->fault,
                            "the row has %s, and the first row only the text of \"%s\": "
                            "give all rows the same columns, or name the one that is "
                            "meant, --text_column %s",
                            more, job->column, job->column);
}

/* The text of a row: a column's, or in h->text what a pair is or the chat template makes of it. */
static zt_err text_of_row(const struct zt_lines_job *job, struct hand *h, size_t from,
                          const json_t *row, const char **text, size_t *n)
{
    struct zt_fault why = {ZT_OK, ""};
    zt_err rc;

    if (!job->chat && !job->pair.source) {
        rc = job->column_is_guessed ? check_kind(job, h, from, row) : ZT_OK;
        return rc ? rc
                  : zt_records_text(job->records, from, row, job->column, text, n,
                                    &h->fault);
    }
    zt_buf_drop(&h->text, zt_buf_used(&h->text));
    zt_buf_drop(&h->answers, zt_buf_used(&h->answers));
    if (job->chat)
        rc = zt_chat_render(job->tokenizer, job->chat, row, job->column, &h->text,
                            marks_context(job) ? &h->answers : NULL, &why);
    else
        rc = text_of_pair(job, h, row, &why);
    if (rc)
        return zt_records_fault(job->records, from, rc, &h->fault, "%s", why.text);
    *n = zt_buf_used(&h->text);
    *text = *n ? (const char *)zt_buf_head(&h->text) : "";
    return ZT_OK;
}

/* How many of the last ids end a pair: those of the frame, and the eos_token behind others. */
static size_t num_ends(const struct zt_tokenizer *t)
{
    const struct zt_row_frame frame = zt_tokenizer_frame(t);
    int32_t end = zt_tokenizer_end(t);
    size_t n = frame.after.num;

    return n + (end >= 0 && !(n && frame.after.ids[n - 1] == end));
}

/* Of the ids that begin at byte `before` of h->ids, what is no answer is marked. */
static zt_err mark_context(const struct zt_lines_job *job, struct hand *h, size_t before,
                           const char *text, size_t n)
{
    const struct zt_template_span *s = (const void *)zt_buf_head(&h->answers);
    int32_t *ids = (int32_t *)(void *)(h->ids.data + h->ids.off + before);
    size_t num = (zt_buf_used(&h->ids) - before) / sizeof(*ids);

    if (job->pair.source && job->tokenizer && s->from == n) { /* what ends it is learnt */
        for (size_t i = 0; i + num_ends(job->tokenizer) < num; i++)
            ids[i] = ~ids[i];
        return ZT_OK;
    }
    if (job->tokenizer)
        return zt_chat_mark_context(h->encoder, text, n, frames(job), &h->answers, ids,
                                    num, &h->fault);
    for (size_t i = 0; i < s->from; i++) /* bytes */
        ids[i] = ~ids[i];
    return ZT_OK;
}

static zt_err encode_text(const struct zt_lines_job *job, struct hand *h, size_t from,
                          const json_t *row)
{
    size_t before = zt_buf_used(&h->ids), n = 0;
    struct zt_fault why;
    const char *text = "";
    zt_err rc = text_of_row(job, h, from, row, &text, &n);

    if (rc)
        return rc;
    rc = put_ids(job, h, text, n);
    if (!rc && marks_context(job) && !job->pair.separate)
        rc = mark_context(job, h, before, text, n);
    why = h->fault;
    return rc ? zt_records_fault(job->records, from, rc, &h->fault, "%s", why.text)
              : ZT_OK;
}

static zt_err encode_example(const struct zt_lines_job *job, struct hand *h, size_t from,
                             const json_t *row)
{
    struct zt_example one;
    zt_err rc = zt_example_encode(job->examples, job->columns, job->records, from, row,
                                  h->encoder, &h->ids, &one, &h->fault);

    if (!rc && zt_buf_put(&h->lengths, &one, sizeof(one)))
        rc = zt_fault_set(&h->fault, ZT_E_NOMEM, "%s: no memory for its rows", job->name);
    return rc;
}

static zt_err encode_row(const struct zt_lines_job *job, struct hand *h, size_t from,
                         size_t to)
{
    const struct zt_records *r = job->records;
    json_t *row = NULL;
    zt_err rc;

    if (zt_records_is_blank(r, from, to)) {
        h->blank++;
        return ZT_OK;
    }
    rc = zt_records_parse(r, from, to, &row, &h->fault);
    if (!rc)
        rc = (job->examples ? encode_example : encode_text)(job, h, from, row);
    json_decref(row);
    return rc;
}

static size_t end_of_line(const struct zt_lines_job *job, size_t from, size_t to)
{
    const char *end;

    if (job->records)
        return zt_records_end(job->records, from);
    end = memchr(job->text + from, '\n', to - from);
    return end ? (size_t)(end + 1 - job->text) : to;
}

static zt_err encode_piece(const struct zt_lines_job *job, struct hand *h, size_t from,
                           size_t to)
{
    zt_err rc = ZT_OK;
    size_t end;

    zt_buf_drop(&h->ids, zt_buf_used(&h->ids));
    zt_buf_drop(&h->lengths, zt_buf_used(&h->lengths));
    for (; !rc && from < to; from = end) {
        end = end_of_line(job, from, to);
        rc = (job->records ? encode_row : encode_line)(job, h, from, end);
    }
    return rc;
}

/* What the piece adds to the counts. */
static void count_piece(struct team *t, struct hand *h)
{
    uint64_t replaced = h->encoder ? zt_encoder_num_replaced(h->encoder) : 0;

    if (t->counts) {
        t->counts->replaced += replaced - h->replaced;
        t->counts->blank += h->blank;
    }
    h->replaced = replaced;
    h->blank = 0;
}

/* Waits for the pieces before. */
static void give_piece(struct team *t, struct hand *h, uint64_t number, size_t to,
                       zt_err rc)
{
    pthread_mutex_lock(&t->lock);
    while (t->given < number)
        pthread_cond_wait(&t->turned, &t->lock);
    count_piece(t, h);
    if (!t->rc && !rc)
        rc = t->job->sink(t->job->user,
                          (const int32_t *)(const void *)zt_buf_head(&h->ids),
                          zt_buf_used(&h->ids) / sizeof(int32_t),
                          (const uint32_t *)(const void *)zt_buf_head(&h->lengths),
                          zt_buf_used(&h->lengths) / sizeof(uint32_t), to, &h->fault);
    if (!t->rc && rc) {
        t->rc = rc;
        t->fault = h->fault;
    }
    t->given++;
    pthread_cond_broadcast(&t->turned);
    pthread_mutex_unlock(&t->lock);
}

static void work(struct team *t)
{
    struct hand h = {0};
    size_t from, to;
    uint64_t number;
    zt_err rc = ZT_OK;

    zt_buf_init(&h.ids, SIZE_MAX / 4);
    zt_buf_init(&h.lengths, SIZE_MAX / 4);
    zt_buf_init(&h.text, ZT_TEXT_MAX_BYTES);
    zt_buf_init(&h.answers, ZT_TEXT_MAX_BYTES);
    if (t->job->tokenizer)
        rc = zt_encoder_open(t->job->tokenizer, &h.encoder, &h.fault);
    while (take_piece(t, &from, &to, &number))
        give_piece(t, &h, number, to, rc ? rc : encode_piece(t->job, &h, from, to));
    zt_encoder_close(h.encoder);
    zt_buf_release(&h.ids);
    zt_buf_release(&h.lengths);
    zt_buf_release(&h.text);
    zt_buf_release(&h.answers);
}

static void *help(void *team)
{
    zt_signal_block_user();
    work(team);
    return NULL;
}

static int num_threads(const struct zt_lines_job *job)
{
    size_t most = job->n / PIECE_BYTES + 1;
    int n = job->threads;
    cpu_set_t own;

    if (n <= 0)
        n = sched_getaffinity(0, sizeof(own), &own) ? 1 : CPU_COUNT(&own);
    n = n < MOST_THREADS ? n : MOST_THREADS;
    return (size_t)n < most ? n : (int)most;
}

zt_err zt_lines_encode(const struct zt_lines_job *job, struct zt_lines_counts *counts,
                       struct zt_fault *fault)
{
    struct team t = {.job = job,
                     .taken = job->from      ? job->from
                              : job->records ? job->records->first
                                             : 0,
                     .counts = counts,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .turned = PTHREAD_COND_INITIALIZER};
    int want = num_threads(job), started = 0;
    pthread_t threads[MOST_THREADS];

    /* this thread is one of them; fewer than wanted do as well */
    while (started + 1 < want && pthread_create(&threads[started], NULL, help, &t) == 0)
        started++;
    work(&t);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&t.turned);
    pthread_mutex_destroy(&t.lock);
    if (t.rc && fault)
        *fault = t.fault;
    return t.rc;
}

static zt_err open_chat(const struct zt_lines_job *job, const struct zt_records *r,
                        const char *column, struct zt_template **out,
                        struct zt_fault *fault)
{
    zt_err rc = zt_records_check_messages(r, column, fault);

    if (rc)
        return rc;
    if (!job->tokenizer)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: \"%s\" holds conversations, which become text by the chat "
            "template of a tokenizer: give its folder, --tokenizer_name "
            "FOLDER; --text_column names another column",
            job->name, column);
    rc = zt_chat_open(job->tokenizer, out, fault);
    return rc ? zt_fault_context(fault, rc, "%s: \"%s\"", job->name, column) : ZT_OK;
}

/* Whether a column may be a side of a pair; one of nothing is told by its row. */
static bool is_side(const struct zt_records *r, const char *column)
{
    return zt_records_has(r, column) && !zt_records_holds_lists(r, column);
}

/* What was asked for, else `prompt` and `completion` where nothing else is meant: both, but of what
 * can be nothing but pairs one, so that the row is named that lacks the other. */
static struct zt_text_pair find_pair(const struct zt_lines_job *job,
                                     const struct zt_records *r, const char *column)
{
    struct zt_text_pair p = job->pair;
    bool source, target;

    if (p.source || column || zt_records_holds_text(r, "text") ||
        zt_records_holds_lists(r, "messages"))
        return p;
    source = is_side(r, "prompt");
    target = is_side(r, "completion");
    if (p.separate ? source || target : source && target) {
        p.source = "prompt";
        p.target = "completion";
    }
    return p;
}

/* What a model that reads one text and writes another cannot learn from. */
static zt_err refuse_texts(const struct zt_lines_job *job, struct zt_fault *fault)
{
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "%s: its rows are no pairs of a text to read and one to write, which "
        "this model learns from: name the columns, --source_column and "
        "--target_column, or the languages, --source_lang and --target_lang",
        job->name);
}

/* A text that is to be written would never end. */
static zt_err refuse_endless(const struct zt_lines_job *job, struct zt_fault *fault)
{
    return zt_fault_set(
        fault, ZT_E_FORMAT,
        "%s: what is to be written ends with the eos_token of the tokenizer, and it has "
        "none: name one of its tokens by \"eos_token\" in its tokenizer_config.json",
        job->name);
}

static bool ends_texts(const struct zt_tokenizer *t)
{
    return !t || zt_tokenizer_end(t) >= 0 || zt_tokenizer_frame(t).after.num > 0;
}

static zt_err find_columns(const struct zt_lines_job *job, const struct zt_records *r,
                           const char *column, struct zt_lines_columns *out,
                           struct zt_fault *fault)
{
    struct zt_text_pair p = find_pair(job, r, column);
    zt_err rc = ZT_OK;

    if (p.source) {
        out->kind = ZT_LINES_PAIRS;
        out->text = strdup(p.source);
        out->target = strdup(p.target);
        return out->text && out->target
                   ? ZT_OK
                   : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", job->name);
    }
    rc = zt_records_find_text(r, column, &out->text, fault);
    if (!rc)
        out->kind = zt_records_holds_lists(r, out->text) ? ZT_LINES_CONVERSATIONS
                                                         : ZT_LINES_TEXTS;
    return rc;
}

zt_err zt_lines_find_columns(const struct zt_lines_job *job,
                             const struct zt_record_format *format, const char *column,
                             struct zt_lines_columns *out, struct zt_fault *fault)
{
    struct zt_lines_columns found = {.kind = ZT_LINES_PLAIN};
    struct zt_records records;
    zt_err rc = ZT_OK;

    if (!job->pair.separate && !job->examples) {
        rc = zt_records_open(&records, format, job->name, job->text, job->n, fault);
        if (rc)
            return rc;
        rc = find_columns(job, &records, column, &found, fault);
        zt_records_release(&records);
    }
    if (rc)
        zt_lines_columns_release(&found);
    else
        *out = found;
    return rc;
}

void zt_lines_columns_release(struct zt_lines_columns *c)
{
    free(c->text);
    free(c->target);
    *c = (struct zt_lines_columns){.kind = ZT_LINES_PLAIN};
}

bool zt_lines_mark_context(const struct zt_lines_job *job,
                           const struct zt_lines_columns *columns)
{
    return job->pair.separate ||
           (job->answers_only &&
            (columns->kind == ZT_LINES_PAIRS || columns->kind == ZT_LINES_CONVERSATIONS));
}

static zt_err encode_examples(const struct zt_lines_job *job,
                              const struct zt_record_format *format,
                              struct zt_lines_counts *counts, struct zt_fault *fault)
{
    struct zt_lines_job rows = *job;
    struct zt_example_columns columns;
    struct zt_records records;
    zt_err rc = zt_records_open(&records, format, job->name, job->text, job->n, fault);

    if (rc)
        return rc;
    rc = zt_example_find_columns(job->examples, &records, &columns, fault);
    rows.records = &records;
    rows.columns = &columns;
    if (!rc)
        rc = zt_lines_encode(&rows, counts, fault);
    zt_example_columns_release(&columns);
    zt_records_release(&records);
    return rc;
}

static zt_err encode_texts(const struct zt_lines_job *job,
                           const struct zt_record_format *format, const char *column,
                           struct zt_lines_counts *counts, struct zt_fault *fault)
{
    struct zt_lines_job rows = *job;
    struct zt_template *chat = NULL;
    struct zt_records records;
    char *found = NULL;
    zt_err rc = zt_records_open(&records, format, job->name, job->text, job->n, fault);

    if (rc)
        return rc;
    rows.pair = find_pair(job, &records, column);
    if (rows.pair.source && !ends_texts(job->tokenizer))
        rc = refuse_endless(job, fault);
    else if (!rows.pair.source && rows.pair.separate)
        rc = refuse_texts(job, fault);
    else if (!rows.pair.source && rows.pair.prefix)
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "%s: --source_prefix is for pairs, and these are texts: name "
                          "the columns, --source_column and --target_column",
                          job->name);
    else if (!rows.pair.source)
        rc = zt_records_find_text(&records, column, &found, fault);
    rows.records = &records;
    rows.column = found;
    rows.column_is_guessed = !column;
    if (!rc && found && zt_records_holds_lists(&records, found))
        rc = open_chat(job, &records, found, &chat, fault);
    rows.chat = chat;
    if (!rc)
        rc = zt_lines_encode(&rows, counts, fault);
    zt_template_close(chat);
    zt_records_release(&records);
    free(found);
    return rc;
}

zt_err zt_lines_encode_records(const struct zt_lines_job *job,
                               const struct zt_record_format *format, const char *column,
                               struct zt_lines_counts *counts, struct zt_fault *fault)
{
    if (job->examples)
        return encode_examples(job, format, counts, fault);
    return encode_texts(job, format, column, counts, fault);
}
