#include "worker/tasks/text_scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/tasks/ngrams.h"
#include "worker/text/unicode/chars.h"

#define MOST_BYTES ((size_t)1 << 40) /* of a text */

/* ---- the words of BLEU ---- */

/* What is done goes behind what is not: when all has passed, the buffer holds the result. */
static zt_err replace(struct zt_buf *b, const char *from, const char *to)
{
    size_t n = zt_buf_used(b), length = strlen(from);
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < n;) {
        const char *at = (const char *)zt_buf_head(b);

        if (n - i >= length && memcmp(at, from, length) == 0) {
            zt_buf_drop(b, length);
            i += length;
            rc = zt_buf_put(b, to, strlen(to));
        } else {
            char c = at[0];

            zt_buf_drop(b, 1);
            i++;
            rc = zt_buf_put(b, &c, 1);
        }
    }
    return rc;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_stop(int c)
{
    return c == '.' || c == ',';
}

/* Symbols of ASCII that are words wherever they stand. */
static bool is_symbol(int c)
{
    return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
           (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* What a rule puts in place of the characters a and b, one of which may be a part of a longer
 * character; 0: it does not concern them. */
typedef size_t (*rule)(int a, int b, char out[4]);

static size_t four(char out[4], int a, int b, int c, int d)
{
    out[0] = (char)a;
    out[1] = (char)b;
    out[2] = (char)c;
    out[3] = (char)d;
    return 4;
}

static size_t stop_after_no_digit(int a, int b, char out[4])
{
    return !is_digit(a) && is_stop(b) ? four(out, a, ' ', b, ' ') : 0;
}

static size_t stop_before_no_digit(int a, int b, char out[4])
{
    return is_stop(a) && !is_digit(b) ? four(out, ' ', a, ' ', b) : 0;
}

static size_t dash_after_digit(int a, int b, char out[4])
{
    return is_digit(a) && b == '-' ? four(out, a, ' ', b, ' ') : 0;
}

/* From the left; what a rule has taken is not looked at again. */
static zt_err apply_rule(struct zt_buf *b, rule r)
{
    size_t n = zt_buf_used(b), i = 0;
    zt_err rc = ZT_OK;

    while (!rc && i < n) {
        const uint8_t *at = zt_buf_head(b);
        char out[4] = {(char)at[0]};
        size_t made = i + 1 < n ? r(at[0], at[1], out) : 0;
        size_t taken = made ? 2 : 1;

        zt_buf_drop(b, taken);
        i += taken;
        rc = zt_buf_put(b, out, made ? made : 1);
    }
    return rc;
}

static zt_err put_symbols_apart(struct zt_buf *b)
{
    size_t n = zt_buf_used(b);
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < n; i++) {
        char c = (char)*zt_buf_head(b);
        char apart[3] = {' ', c, ' '};
        bool is = is_symbol((unsigned char)c);

        zt_buf_drop(b, 1);
        rc = zt_buf_put(b, is ? apart : &c, is ? 3 : 1);
    }
    return rc;
}

/* Bytes without the blanks at the end. */
static size_t without_blanks(const char *text, size_t n)
{
    for (size_t at = n; n && zt_is_blank(zt_utf8_previous(text, &at)); n = at)
        if (!at)
            return 0;
    return n;
}

/* Tokenizer 13a: appends the words of the text, with blanks between them. */
static zt_err tokenize_13a(const char *text, size_t n, struct zt_buf *out)
{
    static const char *const marks[][2] = {
        {"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
        {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    static const rule rules[] = {stop_after_no_digit, stop_before_no_digit,
                                 dash_after_digit};
    zt_err rc = zt_buf_put_u8(out, ' ');

    if (!rc)
        rc = zt_buf_put(out, text, without_blanks(text, n));
    for (size_t i = 0; !rc && i < sizeof(marks) / sizeof(marks[0]); i++)
        rc = replace(out, marks[i][0], marks[i][1]);
    if (!rc)
        rc = zt_buf_put_u8(out, ' ');
    if (!rc)
        rc = put_symbols_apart(out);
    for (size_t i = 0; !rc && i < sizeof(rules) / sizeof(rules[0]); i++)
        rc = apply_rule(out, rules[i]);
    return rc;
}

/* ---- the words of ROUGE ---- */

/* Lowered, with a blank in place of what is neither letter nor digit of ASCII. */
static zt_err lower_words(const char *text, size_t n, struct zt_buf *out)
{
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < n;) {
        uint32_t c = zt_utf8_next(text, &at);

        if (c >= 'A' && c <= 'Z')
            c += 'a' - 'A';
        else if (c == 0x212a) /* the sign of kelvin is a k when it is lowered */
            c = 'k';
        if (c == 0x130) /* an I with a dot: i, and the dot */
            rc = zt_buf_put(out, "i ", 2);
        else
            rc = zt_buf_put_u8(
                out, (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? (uint8_t)c : ' ');
    }
    return rc;
}

/* ---- counts ---- */

/* Both texts as words by `split`, which appends them. */
static zt_err split_both(const struct zt_buf text[2],
                         zt_err (*split)(const char *text, size_t n, struct zt_buf *out),
                         struct zt_symbols out[2])
{
    struct zt_buf words[2];
    const char *all[2];
    size_t n[2];
    zt_err rc = ZT_OK;

    zt_buf_init(&words[0], MOST_BYTES);
    zt_buf_init(&words[1], MOST_BYTES);
    for (int i = 0; i < 2; i++) {
        if (!rc)
            rc = split((const char *)zt_buf_head(&text[i]), zt_buf_used(&text[i]),
                       &words[i]);
        all[i] = (const char *)zt_buf_head(&words[i]);
        n[i] = zt_buf_used(&words[i]);
    }
    if (!rc)
        rc = zt_symbols_of_words(all, n, out);
    zt_buf_release(&words[0]);
    zt_buf_release(&words[1]);
    return rc;
}

static zt_err add_bleu(struct zt_text_scores *s, const struct zt_buf text[2])
{
    struct zt_symbols w[2] = {{.at = NULL}};
    int64_t common;
    zt_err rc = split_both(text, tokenize_13a, w);

    s->written_words += w[0].n;
    s->meant_words += w[1].n;
    for (int i = 0; !rc && i < ZT_BLEU_ORDER; i++) {
        rc = zt_common_ngrams(&w[0], &w[1], i + 1, &common);
        if (rc)
            break;
        s->words[i] += zt_num_ngrams(&w[0], i + 1);
        s->right_words[i] += common;
    }
    zt_symbols_release(&w[0]);
    zt_symbols_release(&w[1]);
    return rc;
}

static zt_err add_chrf(struct zt_text_scores *s, const struct zt_buf text[2])
{
    struct zt_symbols c[2] = {{.at = NULL}};
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < 2; i++)
        rc = zt_symbols_of_chars((const char *)zt_buf_head(&text[i]),
                                 zt_buf_used(&text[i]), &c[i]);
    for (int i = 0; !rc && i < ZT_CHRF_ORDER; i++) {
        int64_t common, meant = zt_num_ngrams(&c[1], i + 1);

        rc = zt_common_ngrams(&c[0], &c[1], i + 1, &common);
        if (rc)
            break;
        /* those of an order which the reference has none of do not count */
        s->chars[i] += meant ? zt_num_ngrams(&c[0], i + 1) : 0;
        s->meant_chars[i] += meant;
        s->right_chars[i] += common;
    }
    zt_symbols_release(&c[0]);
    zt_symbols_release(&c[1]);
    return rc;
}

/* F1 of so many in common. */
static double f1(int64_t common, int64_t written, int64_t meant)
{
    double precision = (double)common / (double)(written > 1 ? written : 1);
    double recall = (double)common / (double)(meant > 1 ? meant : 1);

    return common ? 2 * precision * recall / (precision + recall) : 0;
}

static zt_err add_rouge(struct zt_text_scores *s, const struct zt_buf text[2])
{
    struct zt_symbols w[2] = {{.at = NULL}};
    int64_t common;
    zt_err rc = split_both(text, lower_words, w);

    for (int i = 0; !rc && i < 2; i++) {
        rc = zt_common_ngrams(&w[0], &w[1], i + 1, &common);
        if (!rc)
            s->rouge[ZT_ROUGE_1 + i] +=
                f1(common, zt_num_ngrams(&w[0], i + 1), zt_num_ngrams(&w[1], i + 1));
    }
    if (!rc)
        rc = zt_longest_common(&w[0], &w[1], &common);
    if (!rc)
        s->rouge[ZT_ROUGE_L] += f1(common, w[0].n, w[1].n);
    zt_symbols_release(&w[0]);
    zt_symbols_release(&w[1]);
    return rc;
}

zt_err zt_text_scores_add(struct zt_text_scores *s, const char *written, size_t n,
                          const char *meant, size_t num_meant, struct zt_fault *fault)
{
    struct zt_buf text[2];
    uint64_t broken = 0;
    zt_err rc;

    zt_buf_init(&text[0], MOST_BYTES);
    zt_buf_init(&text[1], MOST_BYTES);
    rc = zt_utf8_repair(written, n, &text[0], &broken);
    if (!rc)
        rc = zt_utf8_repair(meant, num_meant, &text[1], &broken);
    if (!rc)
        rc = add_bleu(s, text);
    if (!rc)
        rc = add_chrf(s, text);
    if (!rc)
        rc = add_rouge(s, text);
    s->num++;
    zt_buf_release(&text[0]);
    zt_buf_release(&text[1]);
    return rc ? zt_fault_set(fault, rc, "metrics: no memory for a text") : ZT_OK;
}

/* ---- scores ---- */

double zt_bleu(const struct zt_text_scores *s)
{
    double written = (double)s->written_words, meant = (double)s->meant_words;
    double penalty = written >= meant ? 1 : written > 0 ? exp(1 - meant / written) : 0;
    double sum = 0, smooth = 1;

    if (!s->right_words[0]) /* then none of any order is right */
        return 0;
    for (int i = 0; i < ZT_BLEU_ORDER; i++) {
        if (!s->words[i])
            return 0;
        smooth *= s->right_words[i] ? 1 : 2;
        sum += log(s->right_words[i]
                       ? 100.0 * (double)s->right_words[i] / (double)s->words[i]
                       : 100.0 / (smooth * (double)s->words[i]));
    }
    return penalty * exp(sum / ZT_BLEU_ORDER);
}

double zt_chrf(const struct zt_text_scores *s)
{
    double precision = 0, recall = 0, factor = 4; /* beta * beta */
    int orders = 0;

    for (int i = 0; i < ZT_CHRF_ORDER; i++) {
        if (!s->chars[i] || !s->meant_chars[i])
            continue;
        precision += (double)s->right_chars[i] / (double)s->chars[i];
        recall += (double)s->right_chars[i] / (double)s->meant_chars[i];
        orders++;
    }
    if (!orders || !(precision + recall > 0))
        return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

double zt_rouge(const struct zt_text_scores *s, int kind)
{
    return s->num ? 100 * s->rouge[kind] / (double)s->num : 0;
}
