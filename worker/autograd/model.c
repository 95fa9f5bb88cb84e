#include "worker/autograd/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/options/options.h"
#include "worker/autograd/model_private.h"

/* ---- failing ---- */

/* Only the first sentence counts: what comes after it follows from it. */
static zt_err keep_fault(zt_model *m, zt_err code, const char *fmt, va_list ap)
{
    char text[ZT_FAULT_TEXT];

    if (m->priv->fault.code)
        return m->priv->fault.code;
    vsnprintf(text, sizeof(text), fmt, ap);
    return zt_fault_set(&m->priv->fault, code, "%s", text);
}

zt_err zt_model_fail(zt_model *m, const char *fmt, ...)
{
    va_list ap;
    zt_err rc;

    va_start(ap, fmt);
    rc = keep_fault(m, ZT_E_CONFIG, fmt, ap);
    va_end(ap);
    return rc;
}

zt_err zt_model_misuse(zt_model *m, const char *fmt, ...)
{
    va_list ap;
    zt_err rc;

    va_start(ap, fmt);
    rc = keep_fault(m, ZT_E_PLUGIN, fmt, ap);
    va_end(ap);
    return rc;
}

static void *fail(zt_model *m, const char *fmt, ...) ZT_PRINTF(2, 3);
static void *fail(zt_model *m, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep_fault(m, ZT_E_PLUGIN, fmt, ap);
    va_end(ap);
    return NULL;
}

const char *zt_sizes_text(int ndim, const int64_t *sizes, char out[96])
{
    size_t at = 0;

    out[0] = 0;
    for (int i = 0; i < ndim && at < 96; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%lld", i ? ", " : "(",
                               (long long)sizes[i]);
    if (at < 96)
        snprintf(out + at, 96 - at, "%s", ndim ? ")" : "()");
    return out;
}

zt_err zt_model_status(const zt_model *m)
{
    return m->priv->fault.code;
}

/* The list with room for one more pointer; NULL: no memory, and the old one stays. */
static void *grow(zt_model *m, void *list, int count)
{
    void *more = list;

    if (list && (count & (count - 1))) /* room is always a power of two */
        return list;
    more = realloc(list, (size_t)(count ? 2 * count : 1) * sizeof(void *));
    /* cppcheck-suppress memleak ; it is returned */
    return more ? more : fail(m, "no host memory for its table of parameters");
}

/* ---- declarations ---- */

bool zt_model_may_declare(struct zt_model *m, const char *what)
{
    if (m->priv->declared)
        fail(m, "a %s is declared behind build(), which makes all of the model", what);
    return !m->priv->fault.code;
}

static bool good_name(zt_model *m, const char *what, const char *name)
{
    if (!zt_model_may_declare(m, what))
        return false;
    if (!name || !*name) {
        fail(m, "a %s without a name", what);
        return false;
    }
    return true;
}

/* A file of weights is JSON with a name for each tensor, and one that is none. */
static bool can_be_stored(zt_model *m, const char *name)
{
    json_t *text = json_string(name);
    bool ok = text && strcmp(name, "__metadata__") != 0;

    if (!ok)
        fail(m, "parameter %s: no file of weights can have this name", name);
    json_decref(text);
    return ok;
}

zt_block *zt_model_block(zt_model *m, const char *name)
{
    struct zt_block *b;
    void *list;

    if (!good_name(m, "block", name))
        return NULL;
    for (int i = 0; i < m->num_blocks; i++)
        if (strcmp(m->blocks[i]->name, name) == 0)
            return fail(m, "two blocks are called %s", name);
    list = grow(m, m->blocks, m->num_blocks);
    if (!list)
        return NULL;
    m->blocks = list;
    b = calloc(1, sizeof(*b));
    if (!b)
        return fail(m, "no host memory for block %s", name);
    b->name = strdup(name);
    if (!b->name) {
        free(b);
        return fail(m, "no host memory for block %s", name);
    }
    b->model = m;
    b->index = m->num_blocks;
    m->blocks[m->num_blocks++] = b;
    return b;
}

/* Product of the axes; 0 after a failure. */
static int64_t count_elems(zt_model *m, const char *name, int ndim, const int64_t *shape)
{
    int64_t n = 1;

    if (ndim < 1 || ndim > ZT_MAX_NDIM) {
        fail(m, "parameter %s has %d axes; 1 to %d are possible", name, ndim,
             ZT_MAX_NDIM);
        return 0;
    }
    for (int i = 0; i < ndim; i++) {
        if (shape[i] <= 0 || shape[i] > (INT64_MAX >> 8) / n) {
            fail(m, "parameter %s: axis %d is %lld", name, i, (long long)shape[i]);
            return 0;
        }
        n *= shape[i];
    }
    return n;
}

static bool good_init(zt_model *m, const char *name, struct zt_init init, unsigned flags)
{
    bool ok = (unsigned)init.kind <= ZT_INIT_UNIFORM && isfinite(init.a) &&
              isfinite(init.b) && (init.kind != ZT_INIT_NORMAL || init.b >= 0) &&
              (init.kind != ZT_INIT_UNIFORM || init.a <= init.b);

    if (!ok)
        fail(m, "parameter %s: no such initial values: kind %d, a %g, b %g", name,
             (int)init.kind, (double)init.a, (double)init.b);
    else if (flags & ~(ZT_NO_DECAY | ZT_FROZEN | ZT_EXTRA))
        fail(m, "parameter %s: unknown flags 0x%x", name, flags);
    return !m->priv->fault.code;
}

static bool make_room(struct zt_block *b)
{
    struct zt_model *m = b->model;
    void *of_block = grow(m, b->params, b->num_params), *of_model;

    if (!of_block)
        return false;
    b->params = of_block;
    of_model = grow(m, m->params, m->num_params);
    if (!of_model)
        return false;
    m->params = of_model;
    return true;
}

/* In the block's list and in the model's, which was given room before. */
static void enlist(struct zt_block *b, struct zt_param *p)
{
    struct zt_model *m = b->model;

    p->block = b;
    p->index = m->num_params;
    b->params[b->num_params++] = p;
    m->params[m->num_params++] = p;
    b->numel += p->numel;
    m->numel += p->numel;
    b->frozen = (b->frozen || b->num_params == 1) && (p->flags & ZT_FROZEN);
}

zt_param *zt_block_param(zt_block *block, const char *name, int ndim,
                         const int64_t *shape, struct zt_init init, unsigned flags)
{
    struct zt_param *p;
    struct zt_model *m;
    int64_t numel;

    if (!block)
        return NULL;
    m = block->model;
    if (!good_name(m, "parameter", name) || !can_be_stored(m, name))
        return NULL;
    if (zt_model_find(m, name))
        return fail(m, "two parameters are called %s", name);
    numel = count_elems(m, name, ndim, shape);
    if (!numel || !good_init(m, name, init, flags) || !make_room(block))
        return NULL;
    p = calloc(1, sizeof(*p));
    if (!p)
        return fail(m, "no host memory for parameter %s", name);
    p->name = strdup(name);
    if (!p->name) {
        free(p);
        return fail(m, "no host memory for parameter %s", name);
    }
    p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof(*shape));
    p->numel = numel;
    p->init = init;
    p->flags = flags;
    enlist(block, p);
    return p;
}

void zt_block_share(zt_block *block, zt_param *param)
{
    void *list;

    if (block && !param)
        fail(block->model, "block %s: zt_block_share() of no parameter", block->name);
    else if (!block && param)
        fail(param->block->model, "zt_block_share() of %s with no block", param->name);
    if (!block || !param || block->model->priv->fault.code || param->block == block)
        return;
    for (int i = 0; i < block->num_shared; i++)
        if (block->shared[i] == param)
            return;
    if (!zt_model_may_declare(block->model, "shared parameter"))
        return;
    list = grow(block->model, block->shared, block->num_shared);
    if (!list)
        return;
    block->shared = list;
    block->shared[block->num_shared++] = param;
}

/* Where it is in its block's list, which is the order in memory. */
static int place_of(const struct zt_param *p)
{
    int i = 0;

    while (p->block->params[i] != p)
        i++;
    return i;
}

/* Takes p out of its block's list, and in again at `to`. */
static void move_param(struct zt_param *p, int to)
{
    struct zt_param **list = p->block->params;
    int from = place_of(p), step = from < to ? 1 : -1;

    for (int i = from; i != to; i += step)
        list[i] = list[i + step];
    list[to] = p;
}

void zt_block_adjoin(zt_param *const *params, int num)
{
    for (int i = 1; i < num; i++) {
        if (!params[0])
            return; /* the model has failed */
        if (!params[i]) {
            fail(params[0]->block->model, "zt_block_adjoin() of %s and no parameter",
                 params[0]->name);
            return;
        }
        if (!zt_model_may_declare(params[0]->block->model, "place of a parameter"))
            return;
        if (params[i]->block != params[0]->block) {
            fail(params[0]->block->model, "%s and %s are of two blocks", params[0]->name,
                 params[i]->name);
            return;
        }
        move_param(params[i], place_of(params[i - 1]) +
                                  (place_of(params[i]) > place_of(params[i - 1])));
    }
}

/* What others ask of the model: `what` of the setter's name. */
static void set_number(zt_model *m, const char *what, int64_t value, int64_t *to)
{
    if (!zt_model_may_declare(m, what))
        return;
    if (value < 0)
        fail(m, "zt_model_set_%s(): %lld is below 0", what, (long long)value);
    *to = value;
}

void zt_model_set_hidden_size(zt_model *m, int64_t hidden)
{
    set_number(m, "hidden_size", hidden, &m->hidden_size);
}

void zt_model_set_max_tokens(zt_model *m, int64_t tokens)
{
    set_number(m, "max_tokens", tokens, &m->max_tokens);
}

void zt_model_set_vocab(zt_model *m, int64_t vocab)
{
    set_number(m, "vocab", vocab, &m->vocab);
}

int64_t zt_model_data_vocab(const zt_model *m)
{
    return m->priv->cfg.data_vocab;
}

zt_task zt_model_task(const zt_model *m)
{
    return m->priv->cfg.task;
}

int64_t zt_model_num_labels(const zt_model *m)
{
    return m->priv->cfg.num_labels;
}

int64_t zt_model_block_size(const zt_model *m)
{
    return m->priv->cfg.block_size;
}

const zt_args *zt_model_args(const zt_model *m)
{
    return m->priv->cfg.args;
}

/* ---- the finished table ---- */

struct zt_param *zt_model_find(const struct zt_model *m, const char *name)
{
    for (int i = 0; i < m->num_params; i++)
        if (strcmp(m->params[i]->name, name) == 0)
            return m->params[i];
    return NULL;
}

uint64_t zt_param_init_stream(const struct zt_param *p)
{
    return XXH3_64bits(p->name, strlen(p->name));
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

void zt_model_layout(struct zt_model *m, int world)
{
    for (int i = 0; i < m->num_blocks; i++) {
        struct zt_block *b = m->blocks[i];
        int64_t at = 0;

        for (int j = 0; j < b->num_params; j++) {
            b->params[j]->offset_elems = at;
            at = round_up(at + b->params[j]->numel, ZT_PARAM_ALIGN);
        }
        b->padded_elems = round_up(at, (int64_t)world * ZT_SHARD_ALIGN); /* M3 */
    }
}

void zt_block_bind(struct zt_block *b, void *weights, float *grads)
{
    b->weights = weights;
    b->grads = grads;
    b->requires_grads = grads != NULL;
}

/* ---- opening ---- */

zt_err zt_model_check_options(const struct zt_model *m, struct zt_fault *fault)
{
    const char *misuse = m->priv->cfg.args ? zt_args_misuse(m->priv->cfg.args) : NULL;

    if (misuse)
        return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: %s", m->plugin->name, misuse);
    if (m->priv->declared && m->priv->fault.code)
        return zt_fault_set(fault, m->priv->fault.code, "plugin %s: %s", m->plugin->name,
                            m->priv->fault.text);
    return ZT_OK;
}

static zt_err run_build(struct zt_model *m, struct zt_fault *fault)
{
    zt_err rc = m->plugin->build(m, &m->self), wrong = zt_model_check_options(m, fault);

    if (wrong)
        return wrong;
    if (rc && !m->priv->fault.code)
        zt_model_misuse(m, "build failed without a reason (%s)", zt_err_name(rc));
    else if (!m->num_params)
        zt_model_misuse(m, "build declared no parameters");
    else
        zt_batch_finish(m);
    zt_model_export_labels(m);
    zt_model_export_ends(m);
    zt_model_export_carried(m);
    if (!m->priv->fault.code)
        return ZT_OK;
    return zt_fault_set(fault, m->priv->fault.code, "plugin %s: %s", m->plugin->name,
                        m->priv->fault.text);
}

zt_err zt_model_open(const struct zt_plugin *plugin, const struct zt_model_config *cfg,
                     struct zt_model **out, struct zt_fault *fault)
{
    struct zt_model *m = calloc(1, sizeof(*m));
    zt_err rc;

    if (m)
        m->priv = calloc(1, sizeof(*m->priv));
    if (!m || !m->priv) {
        free(m);
        return zt_fault_set(fault, ZT_E_NOMEM, "model: no host memory");
    }
    m->plugin = plugin;
    m->priv->cfg = *cfg;
    rc = zt_model_read_config(m, cfg->config_json, fault);
    if (rc) {
        zt_model_close(m);
        return rc;
    }
    m->priv->built = true;
    rc = run_build(m, fault);
    if (rc) {
        zt_model_close(m);
        return rc;
    }
    m->priv->declared = true;
    zt_model_layout(m, 1);
    *out = m;
    return ZT_OK;
}

static void free_block(struct zt_block *b)
{
    free(b->name);
    free(b->params);
    free(b->shared);
    free(b);
}

void zt_model_close(struct zt_model *m)
{
    if (!m)
        return;
    if (m->priv->built && m->plugin->release)
        m->plugin->release(m->self);
    else
        free(m->self);
    for (int i = 0; i < m->num_params; i++) {
        free(m->params[i]->adapter);
        free(m->params[i]->name);
        free(m->params[i]);
    }
    for (int i = 0; i < m->num_blocks; i++)
        free_block(m->blocks[i]);
    free(m->params);
    free(m->blocks);
    zt_model_free_config(m);
    zt_batch_release(&m->layout);
    free(m->priv->divisor_field);
    free(m->priv);
    free(m);
}
