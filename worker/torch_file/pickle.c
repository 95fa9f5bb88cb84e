/*
 * pickle.c -- the operations of a pickle, on the machine of pickle_machine.h.
 *
 * Values are pushed on a stack, of which marks note heights; a memo holds values by
 * number. An operation is a row of `operations`, found by its byte.
 */
#include "worker/torch_file/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "worker/torch_file/pickle_machine.h"

/* ---- operations; `arg` is the row's: a kind, a width, a count ---- */

static bool op_proto(struct pickle_machine *m, int arg)
{
    uint64_t version = 0;

    (void)arg;
    if (!zt_pickle_take_number(m, 1, &version))
        return false;
    m->why = "it is of a protocol that is not known (2 to 5 are)";
    return version >= 2 && version <= 5;
}

static bool op_frame(struct pickle_machine *m, int arg)
{
    uint64_t n;

    (void)arg;
    return zt_pickle_take_number(m, 8, &n);
}

static bool op_stop(struct pickle_machine *m, int arg)
{
    (void)arg;
    m->out->root = zt_pickle_pop(m);
    m->done = true;
    return m->out->root != NULL;
}

static bool op_mark(struct pickle_machine *m, int arg)
{
    (void)arg;
    if (!zt_pickle_reserve(m, &m->marks, &m->marks_cap, m->num_marks + 1,
                           sizeof(*m->marks)))
        return false;
    m->marks[m->num_marks++] = m->height;
    return true;
}

static bool op_pop(struct pickle_machine *m, int arg)
{
    (void)arg;
    if (m->num_marks && m->height == zt_pickle_floor_of(m)) {
        m->num_marks--;
        return true;
    }
    return zt_pickle_pop(m) != NULL;
}

static bool op_pop_mark(struct pickle_machine *m, int arg)
{
    (void)arg;
    return zt_pickle_pop_mark(m, &m->height);
}

static bool op_dup(struct pickle_machine *m, int arg)
{
    struct zt_pickled *v = zt_pickle_top(m);

    (void)arg;
    return v && zt_pickle_push(m, v);
}

static bool op_none(struct pickle_machine *m, int arg)
{
    return zt_pickle_push(m, arg == 0 ? m->none : arg == 1 ? m->yes : m->no);
}

static bool push_int(struct pickle_machine *m, int64_t value)
{
    struct zt_pickled *v = zt_pickle_make(m->out, ZT_PICKLED_INT);

    if (v)
        v->integer = value;
    return zt_pickle_push(m, v);
}

/* BININT (4 bytes, signed), BININT1, BININT2 */
static bool op_int(struct pickle_machine *m, int arg)
{
    uint64_t n;

    if (!zt_pickle_take_number(m, arg, &n))
        return false;
    return push_int(m, arg == 4 ? (int64_t)(int32_t)(uint32_t)n : (int64_t)n);
}

static bool push_text(struct pickle_machine *m, int kind, const uint8_t *p, uint64_t n);

/* LONG1, LONG4; more than 64 bits stay bytes */
static bool op_long(struct pickle_machine *m, int arg)
{
    uint64_t n, value = 0;
    const uint8_t *p = zt_pickle_take_number(m, arg, &n) ? zt_pickle_take(m, n) : NULL;

    if (!p)
        return false;
    if (n > 8)
        return push_text(m, ZT_PICKLED_BYTES, p, n);
    if (n && p[n - 1] & 0x80)
        value = ~UINT64_C(0);
    for (uint64_t i = n; i > 0; i--)
        value = value << 8 | p[i - 1];
    return push_int(m, (int64_t)value);
}

static bool op_float(struct pickle_machine *m, int arg)
{
    const uint8_t *p = zt_pickle_take(m, 8);
    struct zt_pickled *v = zt_pickle_make(m->out, ZT_PICKLED_FLOAT);
    uint64_t bits = 0;

    (void)arg;
    if (!p)
        return false;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    if (v)
        memcpy(&v->real, &bits, sizeof(bits));
    return zt_pickle_push(m, v);
}

static bool push_text(struct pickle_machine *m, int kind, const uint8_t *p, uint64_t n)
{
    struct zt_pickled *v = zt_pickle_make(m->out, (zt_pickled_kind)kind);

    if (v) {
        v->text = (const char *)p;
        v->text_bytes = n;
    }
    return zt_pickle_push(m, v);
}

/* texts and bytes: the row says how wide their length is */
static bool text_of(struct pickle_machine *m, int kind, int width)
{
    uint64_t n;
    const uint8_t *p = zt_pickle_take_number(m, width, &n) ? zt_pickle_take(m, n) : NULL;

    return p && push_text(m, kind, p, n);
}

static bool op_text(struct pickle_machine *m, int arg)
{
    return text_of(m, ZT_PICKLED_TEXT, arg);
}

static bool op_bytes(struct pickle_machine *m, int arg)
{
    return text_of(m, ZT_PICKLED_BYTES, arg);
}

static bool op_empty(struct pickle_machine *m, int arg)
{
    return zt_pickle_push(m, arg == ZT_PICKLED_TUPLE
                                 ? m->empty
                                 : zt_pickle_make(m->out, (zt_pickled_kind)arg));
}

/* The values above height `first` as items of `to`, which then lies on top. */
static bool gather(struct pickle_machine *m, struct zt_pickled *to, size_t first)
{
    m->why = zt_pickle_no_room;
    for (size_t i = first; to && i < m->height; i++)
        if (!zt_pickle_append(m->out, to, m->stack[i]))
            return false;
    m->height = first;
    return to && zt_pickle_push(m, to);
}

static bool op_tuple(struct pickle_machine *m, int arg)
{
    size_t first = 0;

    (void)arg;
    return zt_pickle_pop_mark(m, &first) &&
           gather(m, zt_pickle_make(m->out, ZT_PICKLED_TUPLE), first);
}

static bool op_short_tuple(struct pickle_machine *m, int arg)
{
    m->why = zt_pickle_short_stack;
    return m->height - zt_pickle_floor_of(m) >= (size_t)arg &&
           gather(m, zt_pickle_make(m->out, ZT_PICKLED_TUPLE), m->height - (size_t)arg);
}

static bool op_frozenset(struct pickle_machine *m, int arg)
{
    size_t first = 0;

    (void)arg;
    return zt_pickle_pop_mark(m, &first) &&
           gather(m, zt_pickle_make(m->out, ZT_PICKLED_LIST), first);
}

/* What lies above `first` goes into the container below it. */
static bool add_items(struct pickle_machine *m, size_t first, bool pairs)
{
    struct zt_pickled *to;

    m->why = zt_pickle_short_stack;
    if (first <= zt_pickle_floor_of(m) || (pairs && (m->height - first) % 2))
        return false;
    to = m->stack[first - 1];
    m->why = pairs ? "it sets entries of something that is no dictionary"
                   : "it appends to something that is no list";
    if (to->kind != (pairs ? ZT_PICKLED_DICT : ZT_PICKLED_LIST) &&
        to->kind != ZT_PICKLED_OBJECT)
        return false;
    m->why = zt_pickle_no_room;
    for (size_t i = first; i < m->height; i++)
        if (!zt_pickle_append(m->out, to, m->stack[i]))
            return false;
    m->height = first;
    return true;
}

static bool op_add_many(struct pickle_machine *m, int arg)
{
    size_t first = 0;

    return zt_pickle_pop_mark(m, &first) && add_items(m, first, arg == 2);
}

static bool op_add_one(struct pickle_machine *m, int arg)
{
    m->why = zt_pickle_short_stack;
    return m->height - zt_pickle_floor_of(m) > (size_t)arg &&
           add_items(m, m->height - (size_t)arg, arg == 2);
}

/* ---- classes and calls ---- */

static bool push_class(struct pickle_machine *m, const char *module, size_t a,
                       const char *name, size_t b)
{
    char *both = zt_pickle_alloc(m->out, a + b + 1);

    m->why = zt_pickle_no_room;
    if (!both)
        return false;
    memcpy(both, module, a);
    both[a] = ' ';
    memcpy(both + a + 1, name, b);
    return push_text(m, ZT_PICKLED_CLASS, (uint8_t *)both, a + b + 1);
}

static bool op_global(struct pickle_machine *m, int arg)
{
    size_t a = 0, b = 0;
    const char *module = (const char *)zt_pickle_take_line(m, &a);
    const char *name = module ? (const char *)zt_pickle_take_line(m, &b) : NULL;

    (void)arg;
    return name && push_class(m, module, a, name, b);
}

static bool op_stack_global(struct pickle_machine *m, int arg)
{
    const struct zt_pickled *name = zt_pickle_pop(m),
                            *module = name ? zt_pickle_pop(m) : NULL;

    (void)arg;
    if (!module)
        return false;
    m->why = "a class whose name is no text";
    return name->kind == ZT_PICKLED_TEXT && module->kind == ZT_PICKLED_TEXT &&
           push_class(m, module->text, module->text_bytes, name->text, name->text_bytes);
}

/* REDUCE, NEWOBJ; with keywords (arg 1) NEWOBJ_EX */
static bool op_call(struct pickle_machine *m, int arg)
{
    struct zt_pickled *named = arg ? zt_pickle_pop(m) : NULL, *args = zt_pickle_pop(m);
    struct zt_pickled *callee = args ? zt_pickle_pop(m) : NULL, *made;

    if (!callee || (arg && !named))
        return false;
    m->why = "a call whose arguments are no tuple";
    if (args->kind != ZT_PICKLED_TUPLE)
        return false;
    made = zt_pickle_call(m->out, callee, args, &m->why);
    return made && zt_pickle_push(m, made);
}

/* State of an object is kept with it; that of a container is not wanted. */
static bool op_build(struct pickle_machine *m, int arg)
{
    struct zt_pickled *state = zt_pickle_pop(m), *of = state ? zt_pickle_top(m) : NULL;

    (void)arg;
    if (!of)
        return false;
    m->why = zt_pickle_no_room;
    return of->kind != ZT_PICKLED_OBJECT || zt_pickle_append(m->out, of, state);
}

static bool op_persistent(struct pickle_machine *m, int arg)
{
    struct zt_pickled *id = zt_pickle_pop(m), *made;

    (void)arg;
    if (!id)
        return false;
    made = zt_pickle_persistent(m->out, id, &m->why);
    return made && zt_pickle_push(m, made);
}

/* ---- the memo ---- */

static bool op_put(struct pickle_machine *m, int arg)
{
    uint64_t i;

    return zt_pickle_take_number(m, arg, &i) && zt_pickle_remember(m, i);
}

static bool op_memoize(struct pickle_machine *m, int arg)
{
    (void)arg;
    return zt_pickle_remember(m, m->next_memo);
}

static bool op_get(struct pickle_machine *m, int arg)
{
    uint64_t i;

    if (!zt_pickle_take_number(m, arg, &i))
        return false;
    m->why = "it takes a memo that it has not set";
    return i < m->memo_cap && m->memo[i] && zt_pickle_push(m, m->memo[i]);
}

static const struct operation {
    bool (*run)(struct pickle_machine *m, int arg);
    int arg;
} operations[256] = {
    [0x80] = {op_proto, 0},
    [0x95] = {op_frame, 0},
    ['.'] = {op_stop, 0},
    ['('] = {op_mark, 0},
    ['0'] = {op_pop, 0},
    ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    ['N'] = {op_none, 0},
    [0x88] = {op_none, 1},
    [0x89] = {op_none, 2},
    ['J'] = {op_int, 4},
    ['K'] = {op_int, 1},
    ['M'] = {op_int, 2},
    [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},
    ['G'] = {op_float, 0},
    ['X'] = {op_text, 4},
    [0x8c] = {op_text, 1},
    [0x8d] = {op_text, 8},
    ['U'] = {op_text, 1},
    ['T'] = {op_text, 4},
    ['B'] = {op_bytes, 4},
    ['C'] = {op_bytes, 1},
    [0x8e] = {op_bytes, 8},
    [0x96] = {op_bytes, 8},
    [']'] = {op_empty, ZT_PICKLED_LIST},
    [')'] = {op_empty, ZT_PICKLED_TUPLE},
    ['}'] = {op_empty, ZT_PICKLED_DICT},
    [0x8f] = {op_empty, ZT_PICKLED_LIST},
    ['t'] = {op_tuple, 0},
    [0x85] = {op_short_tuple, 1},
    [0x86] = {op_short_tuple, 2},
    [0x87] = {op_short_tuple, 3},
    [0x91] = {op_frozenset, 0},
    ['a'] = {op_add_one, 1},
    ['e'] = {op_add_many, 1},
    [0x90] = {op_add_many, 1},
    ['s'] = {op_add_one, 2},
    ['u'] = {op_add_many, 2},
    ['c'] = {op_global, 0},
    [0x93] = {op_stack_global, 0},
    ['R'] = {op_call, 0},
    [0x81] = {op_call, 0},
    [0x92] = {op_call, 1},
    ['b'] = {op_build, 0},
    ['Q'] = {op_persistent, 0},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    [0x94] = {op_memoize, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
};

static zt_err run(struct pickle_machine *m, struct zt_fault *fault)
{
    while (!m->done) {
        size_t begin = m->at;
        const uint8_t *op = zt_pickle_take(m, 1);
        const struct operation *o = op ? &operations[*op] : NULL;

        if (o && !o->run)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "%s: byte %zu of its pickle: operation 0x%02x is not one "
                                "that files of tensors need",
                                m->path, begin, *op);
        if (!o || !o->run(m, o->arg))
            return zt_fault_set(fault,
                                m->why == zt_pickle_no_room ? ZT_E_LIMIT : ZT_E_FORMAT,
                                "%s: byte %zu of its pickle: %s", m->path, begin, m->why);
    }
    return ZT_OK;
}

zt_err zt_pickle_parse(const char *path, const uint8_t *data, size_t bytes,
                       struct zt_pickle *out, size_t *used, struct zt_fault *fault)
{
    struct pickle_machine m = {.out = out, .path = path, .data = data, .bytes = bytes};
    zt_err rc;

    *out = (struct zt_pickle){0};
    if (m.bytes > ZT_PICKLE_BYTES)
        m.bytes = ZT_PICKLE_BYTES;
    m.none = zt_pickle_make(out, ZT_PICKLED_NONE);
    m.yes = zt_pickle_make(out, ZT_PICKLED_BOOL);
    m.no = zt_pickle_make(out, ZT_PICKLED_BOOL);
    m.empty = zt_pickle_make(out, ZT_PICKLED_TUPLE);
    if (m.none && m.yes && m.no && m.empty) {
        m.yes->integer = 1;
        rc = run(&m, fault);
    } else {
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    }
    free(m.stack);
    free(m.marks);
    free(m.memo);
    if (rc)
        zt_pickle_release(out);
    else
        *used = m.at;
    return rc;
}
