/*
 * probe.c -- one batch through a plugin, with everything inside laid open.
 *
 *      probe PLUGIN BATCH.safetensors OUT.safetensors [run options]
 *
 * BATCH holds fields of the model by their names, `tokens` (B, T) I32 among them; one that it
 * lacks is absent. The run options are those of a training run; weights come from
 * --model_name_or_path. OUT gets, in fp32:
 *
 *      loss            (1)        mean over what the model divides it by
 *      logits          as the plugin returns them without the labels
 *      grad.<param>    as param   of that mean, before any clipping; of what is trained
 *
 * For comparisons with other implementations; nothing is trained.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/safetensors.h"
#include "worker/engine/batch.h"

struct probe {
    struct zt_run *run;
    struct zt_engine *engine;
    int64_t B, T, S;             /* S: of `source`; 0: the model has none */
    void *fields[ZT_MAX_FIELDS]; /* of the model; NULL: absent */
    double divisor;
    struct zt_pool *pool; /* our own: a training run never holds all logits at once */
    void *pool_base;
    size_t pool_bytes;
    struct zt_step *step;
    float loss;
    float *logits; /* (num_logits), of logits_shape */
    int64_t num_logits, logits_shape[ZT_MAX_NDIM];
    int logits_ndim;
};

static zt_err read_sizes(struct probe *p, const struct zt_safetensors_file *f,
                         struct zt_fault *fault)
{
    const struct zt_safetensors_tensor *t = zt_safetensors_find(f, ZT_TOKENS);

    if (!t || t->ndim != 2 || t->elems < 1)
        return zt_fault_set(fault, ZT_E_FORMAT, "batch: no (B, T) I32 tensor tokens");
    p->B = t->shape[0];
    p->T = t->shape[1];
    t = zt_safetensors_find(f, ZT_SOURCE);
    p->S = t && t->ndim == 2 ? t->shape[1] : 0;
    return ZT_OK;
}

/* A field as memory of our own. */
static zt_err read_field(struct probe *p, const struct zt_safetensors_file *f, int i,
                         struct zt_fault *fault)
{
    const struct zt_field *field = &p->engine->model->layout.fields[i];
    const struct zt_safetensors_tensor *t = zt_safetensors_find(f, field->name);

    if (!t)
        return ZT_OK;
    if (!t->loadable || t->dtype != field->dtype ||
        t->bytes != zt_field_bytes(field, (struct zt_extent){p->B, p->T, p->S}))
        return zt_fault_set(fault, ZT_E_FORMAT, "batch: %s is of another type",
                            field->name);
    p->fields[i] = malloc(t->bytes);
    if (!p->fields[i])
        return zt_fault_set(fault, ZT_E_NOMEM, "batch: no memory");
    memcpy(p->fields[i], t->data, t->bytes);
    return ZT_OK;
}

static zt_err read_batch(struct probe *p, const char *path, struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &p->engine->model->layout;
    struct zt_field_buffers batch = {.fields = l->fields, .num = l->num};
    struct zt_safetensors_file *f = NULL;
    zt_err rc = zt_safetensors_open(path, &f, fault);

    if (!rc)
        rc = read_sizes(p, f, fault);
    for (int i = 0; !rc && i < l->num; i++) {
        rc = read_field(p, f, i, fault);
        batch.data[i] = p->fields[i];
    }
    if (!rc)
        p->divisor = zt_batch_divisor(p->engine, &batch,
                                      (struct zt_extent){p->B, p->T, p->S}, p->B);
    zt_safetensors_close(f);
    return rc;
}

static zt_err open_step(struct probe *p, struct zt_fault *fault)
{
    struct zt_engine *e = p->engine;
    struct zt_step_config cfg = {
        .backend = e->backend,
        .device = e->device,
        .model = e->model,
        .compute_dtype = e->run->compute_dtype,
        .recompute = e->run->gradient_checkpointing,
        .label_smoothing = (float)e->run->label_smoothing_factor,
        .seed = (uint64_t)e->run->seed,
        .hooks = zt_zero_hooks(e->zero),
    };
    zt_err rc;

    p->pool_bytes = 2 * e->plan.activations + (size_t)(p->B * p->T * e->model->vocab) * 8;
    rc = e->backend->alloc(e->device, p->pool_bytes, &p->pool_base, fault);
    if (!rc)
        rc = zt_pool_open(p->pool_base, p->pool_bytes, &p->pool, fault);
    cfg.pool = p->pool;
    return rc ? rc : zt_step_open(&cfg, &p->step, fault);
}

/* The values behind a handle as fp32, whatever the compute dtype. */
static zt_err fetch(struct probe *p, const zt_tensor *t, float *out,
                    struct zt_fault *fault)
{
    const struct zt_view *v = zt_tensor_view(t);
    int64_t n = zt_view_numel(v);
    struct zt_axpby_args a = {.x = zt_view_of(v->data, v->dtype, 1, &n),
                              .y = zt_view_of(out, ZT_F32, 1, &n),
                              .alpha = 1};
    zt_err rc = p->engine->backend->kernels->axpby(p->engine->device, NULL, &a, fault);

    return rc ? rc : p->engine->backend->sync(p->engine->device, NULL, fault);
}

static void set_fields(const struct probe *p, struct zt_pass *pass, bool labels)
{
    const struct zt_batch_layout *l = &p->engine->model->layout;

    for (int i = 0; i < l->num; i++)
        pass->fields[i] = labels || !l->fields[i].label ? p->fields[i] : NULL;
}

static zt_err keep_logits(struct probe *p, const zt_tensor *t, struct zt_fault *fault)
{
    const struct zt_view *v = zt_tensor_view(t);

    p->num_logits = zt_view_numel(v);
    p->logits_ndim = v->ndim;
    memcpy(p->logits_shape, v->shape, sizeof(p->logits_shape));
    p->logits = malloc((size_t)p->num_logits * sizeof(float));
    return p->logits ? fetch(p, t, p->logits, fault)
                     : zt_fault_set(fault, ZT_E_NOMEM, "logits: no memory");
}

static zt_err run_logits(struct probe *p, struct zt_fault *fault)
{
    struct zt_pass pass = {.mode = ZT_MODE_EVAL, .B = p->B, .T = p->T, .S = p->S};
    zt_tensor *out = NULL;
    zt_err rc;

    set_fields(p, &pass, false);
    zt_zero_pass_begin(p->engine->zero, pass.mode, 0);
    rc = zt_step_forward(p->step, &pass, &out, fault);
    if (!rc)
        rc = keep_logits(p, out, fault);
    zt_step_end(p->step);
    return rc ? rc : zt_zero_pass_end(p->engine->zero, fault);
}

static zt_err run_gradients(struct probe *p, struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_TRAIN, .step = 1, .B = p->B, .T = p->T, .S = p->S};
    zt_tensor *loss = NULL;
    zt_err rc;

    set_fields(p, &pass, true);
    zt_zero_pass_begin(p->engine->zero, pass.mode, 0);
    rc = zt_step_forward(p->step, &pass, &loss, fault);
    if (!rc)
        rc = fetch(p, loss, &p->loss, fault);
    if (!rc)
        rc = zt_step_backward(p->step, loss, (float)(1 / p->divisor), fault);
    if (!rc)
        rc = zt_zero_pass_end(p->engine->zero, fault);
    if (!rc)
        rc = p->engine->backend->sync(p->engine->device, NULL, fault);
    zt_step_end(p->step);
    p->loss /= (float)p->divisor;
    return rc;
}

/* One rank: gradients are whole, here. Frozen blocks have none. */
static const float *gradient(const struct zt_param *q)
{
    const float *g = q->block->grads;

    return g && !(q->flags & ZT_FROZEN) ? g + q->offset_elems : NULL;
}

static zt_err put_results(struct probe *p, struct zt_safetensors_writer *w,
                          struct zt_fault *fault)
{
    const struct zt_engine *e = p->engine;
    zt_err rc = zt_safetensors_writer_put(w, &p->loss, sizeof(p->loss), fault);

    if (!rc)
        rc = zt_safetensors_writer_put(w, p->logits,
                                       (size_t)p->num_logits * sizeof(float), fault);
    for (int i = 0; !rc && i < e->model->num_params; i++) {
        const struct zt_param *q = e->model->params[i];

        if (gradient(q))
            rc = zt_safetensors_writer_put(w, gradient(q),
                                           (size_t)q->numel * sizeof(float), fault);
    }
    return rc ? rc : zt_safetensors_writer_commit(w, fault);
}

static zt_err write_results(struct probe *p, const char *path, struct zt_fault *fault)
{
    const struct zt_model *m = p->engine->model;
    int64_t one = 1;
    struct zt_safetensors_decl *decls = calloc((size_t)m->num_params + 2, sizeof(*decls));
    int num = 2;
    char(*names)[160] = calloc((size_t)m->num_params + 1, sizeof(*names));
    struct zt_safetensors_writer *w = NULL;
    zt_err rc = ZT_OK;

    if (!decls || !names)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    for (int i = 0; !rc && i < m->num_params; i++) {
        const struct zt_param *q = m->params[i];

        if (!gradient(q))
            continue;
        snprintf(names[i], sizeof(names[i]), "grad.%s", q->name);
        decls[num++] = (struct zt_safetensors_decl){names[i], ZT_F32, q->ndim, q->shape};
    }
    if (!rc) {
        decls[0] = (struct zt_safetensors_decl){"loss", ZT_F32, 1, &one};
        decls[1] = (struct zt_safetensors_decl){"logits", ZT_F32, p->logits_ndim,
                                                p->logits_shape};
        rc = zt_safetensors_writer_open(path, decls, num, &w, fault);
    }
    if (!rc)
        rc = put_results(p, w, fault);
    zt_safetensors_writer_close(w);
    free(names);
    free(decls);
    return rc;
}

static zt_err probe(struct probe *p, int argc, char **argv, struct zt_fault *fault)
{
    struct zt_run_facts facts = {.world = 1, .local_world = 1, .program = argv[1]};
    const struct zt_plugin *plugin = NULL;
    zt_err rc = zt_plugin_load(argv[1], &plugin, fault);

    if (rc)
        return rc;
    facts.model_options = plugin->options;
    rc = zt_run_open(argc - 4, argv + 4, &facts, &p->run, fault);
    if (!rc)
        rc = zt_engine_open(p->run, plugin, &p->engine, fault);
    if (!rc && !p->run->do_train)
        rc = zt_fault_set(fault, ZT_E_USAGE, "gradients need --do_train");
    if (!rc)
        rc = read_batch(p, argv[2], fault);
    if (!rc)
        rc = open_step(p, fault);
    if (!rc)
        rc = run_logits(p, fault);
    if (!rc)
        rc = run_gradients(p, fault);
    return rc ? rc : write_results(p, argv[3], fault);
}

static void release(struct probe *p)
{
    zt_step_close(p->step);
    zt_pool_close(p->pool);
    if (p->pool_base)
        p->engine->backend->free(p->engine->device, p->pool_base, p->pool_bytes);
    zt_engine_close(p->engine);
    zt_run_close(p->run);
    for (int i = 0; i < ZT_MAX_FIELDS; i++)
        free(p->fields[i]);
    free(p->logits);
}

int main(int argc, char **argv)
{
    struct zt_fault fault = {0};
    struct probe p = {0};
    zt_err rc;

    if (argc < 4) {
        fprintf(stderr, "usage: probe PLUGIN BATCH.safetensors OUT.safetensors [run "
                        "options]\n");
        return zt_err_exit_code(ZT_E_USAGE);
    }
    rc = probe(&p, argc, argv, &fault);
    if (rc)
        fprintf(stderr, "probe: %s\n", fault.text);
    release(&p);
    return zt_err_exit_code(rc);
}
