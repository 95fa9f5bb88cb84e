#include "common/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BRACKETS 8  /* of one item */
#define MAX_DIGITS   18 /* of a number: fits 64 bits */
#define MAX_COUNT    (1 << 20)

struct list_reader {
    const char *text, *p; /* the whole, for messages; where we are */
    struct zt_hostlist list;
    int cap;
    struct zt_fault *fault;
};

static zt_err bad(const struct list_reader *r, const char *what)
{
    return zt_fault_set(r->fault, ZT_E_USAGE, "host list '%.200s': %s at position %zu",
                        r->text, what, (size_t)(r->p - r->text) + 1);
}

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---------------------------------------------------------------- ranges */

struct number {
    unsigned long long value;
    int digits;
};

static zt_err read_number(struct list_reader *r, struct number *out)
{
    *out = (struct number){0};
    if (!is_digit(*r->p))
        return bad(r, "a number is expected");
    for (; is_digit(*r->p); r->p++) {
        if (++out->digits > MAX_DIGITS)
            return bad(r, "a number is too long");
        out->value = 10 * out->value + (unsigned)(*r->p - '0');
    }
    return ZT_OK;
}

/* One range at r->p: its bounds; the width is that of the low one. */
static zt_err read_range(struct list_reader *r, struct number *lo, struct number *hi)
{
    zt_err rc = read_number(r, lo);

    *hi = *lo;
    if (rc || *r->p != '-')
        return rc;
    r->p++;
    rc = read_number(r, hi);
    if (!rc && hi->value < lo->value)
        rc = bad(r, "a range runs backwards");
    if (!rc && hi->value - lo->value >= ZT_HOSTLIST_MAX)
        rc = zt_fault_set(r->fault, ZT_E_LIMIT, "host list '%.200s': more than %d hosts",
                          r->text, ZT_HOSTLIST_MAX);
    return rc;
}

/* Go over a bracket, r->p behind its '['. *members: how many numbers it holds. */
static zt_err skip_bracket(struct list_reader *r, unsigned long long *members)
{
    struct number lo, hi;

    *members = 0;
    for (;; r->p++) {
        zt_err rc = read_range(r, &lo, &hi);

        if (rc)
            return rc;
        *members += hi.value - lo.value + 1;
        if (*r->p == ']')
            break;
        if (*r->p != ',')
            return bad(r, *r->p ? "unexpected character in brackets" : "']' is missing");
    }
    r->p++;
    return ZT_OK;
}

/* ---------------------------------------------------------------- names */

static zt_err add_name(struct list_reader *r, const char *name)
{
    char *copy;

    if (r->list.num == r->cap) {
        int cap = r->cap ? 2 * r->cap : 16;
        char **grown = realloc(r->list.name, (size_t)cap * sizeof(*grown));

        if (!grown)
            return zt_fault_set(r->fault, ZT_E_NOMEM, "host list: no memory");
        r->list.name = grown;
        r->cap = cap;
    }
    copy = strdup(name);
    if (!copy)
        return zt_fault_set(r->fault, ZT_E_NOMEM, "host list: no memory");
    r->list.name[r->list.num++] = copy;
    return ZT_OK;
}

/* The item [p, end), checked before, from its name so far: one call a bracket deep. */
static zt_err expand(struct list_reader *r, const char *p, const char *end, char *name,
                     size_t used)
{
    struct list_reader inner = *r;
    struct number lo, hi;
    zt_err rc = ZT_OK;

    for (; p < end && *p != '['; p++) {
        if (used == ZT_HOSTLIST_NAME)
            goto too_long;
        name[used++] = *p;
    }
    name[used] = 0;
    if (p == end)
        return add_name(r, name);
    inner.p = p + 1;
    p = strchr(p, ']') + 1;
    for (; !rc && inner.p < p; inner.p++) { /* over ',' and at last ']' */
        rc = read_range(&inner, &lo, &hi);
        for (unsigned long long v = lo.value; !rc && v <= hi.value; v++) {
            int n = snprintf(name + used, ZT_HOSTLIST_NAME + 1 - used, "%0*llu",
                             lo.digits, v);

            if (n < 0 || used + (size_t)n > ZT_HOSTLIST_NAME)
                goto too_long;
            rc = expand(r, p, end, name, used + (size_t)n);
        }
    }
    return rc;
too_long:
    return zt_fault_set(r->fault, ZT_E_LIMIT, "host list: a name of more than %d bytes",
                        ZT_HOSTLIST_NAME);
}

/* One item: first all of it is checked and counted, then expanded. */
static zt_err read_item(struct list_reader *r)
{
    unsigned long long total = 1, members;
    char name[ZT_HOSTLIST_NAME + 1];
    const char *start = r->p;
    int brackets = 0;

    while (*r->p && !is_separator(*r->p)) {
        zt_err rc = ZT_OK;

        if (*r->p == ']')
            return bad(r, "']' without '['");
        if (*r->p++ != '[')
            continue;
        if (++brackets > MAX_BRACKETS)
            return bad(r, "too many brackets in one name");
        rc = skip_bracket(r, &members);
        if (rc)
            return rc;
        total = members > ZT_HOSTLIST_MAX ? members : total * members;
        if (total > (unsigned)(ZT_HOSTLIST_MAX - r->list.num))
            return zt_fault_set(r->fault, ZT_E_LIMIT,
                                "host list '%.200s': more than %d hosts", r->text,
                                ZT_HOSTLIST_MAX);
    }
    if (r->list.num == ZT_HOSTLIST_MAX)
        return zt_fault_set(r->fault, ZT_E_LIMIT, "host list: more than %d hosts",
                            ZT_HOSTLIST_MAX);
    return expand(r, start, r->p, name, 0);
}

zt_err zt_hostlist_expand(const char *text, struct zt_hostlist *out,
                          struct zt_fault *fault)
{
    struct list_reader r = {.text = text, .p = text, .fault = fault};
    zt_err rc = ZT_OK;

    while (!rc) {
        while (is_separator(*r.p))
            r.p++;
        if (!*r.p)
            break;
        rc = read_item(&r);
    }
    if (rc) {
        zt_hostlist_release(&r.list);
        return rc;
    }
    *out = r.list;
    return ZT_OK;
}

void zt_hostlist_release(struct zt_hostlist *h)
{
    for (int i = 0; i < h->num; i++)
        free(h->name[i]);
    free(h->name);
    *h = (struct zt_hostlist){0};
}

/* ---------------------------------------------------------------- counts */

static zt_err bad_counts(const char *text, int num_nodes, const char *what,
                         struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_USAGE,
                        "count list '%.200s' for %d nodes: %s; 2(x3),1 would be such a "
                        "list for 4",
                        text, num_nodes, what);
}

/* A number from 1 to MAX_COUNT; 0: none there. */
static int small_number(const char **p)
{
    int v = 0;

    if (!is_digit(**p))
        return 0;
    for (; is_digit(**p); ++*p) {
        v = 10 * v + (**p - '0');
        if (v > MAX_COUNT)
            return 0;
    }
    return v;
}

zt_err zt_counts_expand(const char *text, int num_nodes, int **out,
                        struct zt_fault *fault)
{
    int *count = calloc(num_nodes > 0 ? (size_t)num_nodes : 1, sizeof(*count));
    const char *p = text, *why = NULL;
    int done = 0;

    if (!count)
        return zt_fault_set(fault, ZT_E_NOMEM, "count list: no memory");
    for (;; p++) {
        int v = small_number(&p), repeat = 1;

        if (v && strncmp(p, "(x", 2) == 0) {
            p += 2;
            repeat = small_number(&p);
            if (*p++ != ')')
                repeat = 0;
        }
        if (!v || !repeat)
            why = "malformed";
        else if (repeat > num_nodes - done)
            why = "too long";
        if (why)
            break;
        while (repeat--)
            count[done++] = v;
        if (!*p)
            break;
        if (*p != ',') {
            why = "malformed";
            break;
        }
    }
    if (!why && done < num_nodes)
        why = "too short";
    if (why) {
        free(count);
        return bad_counts(text, num_nodes, why, fault);
    }
    *out = count;
    return ZT_OK;
}
