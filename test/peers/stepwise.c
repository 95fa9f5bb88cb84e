/*
 * stepwise.c -- logits of text that is generated token by token, against those of passes
 * over all of it.
 *
 *      stepwise PLUGIN [run options]
 *
 * The text is fixed ids, and so is the source, which is as long as the prompt; passes are cut as
 * generation cuts them. Prints the largest
 * difference of a logit, as a share of the largest logit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/context.h"
#include "worker/engine/engine.h"

struct stepwise {
    struct zt_run *run;
    struct zt_engine *engine;
    struct zt_pool *pool; /* our own, for passes that no run makes */
    void *pool_base;
    size_t pool_bytes;
    struct zt_step *step;
    int32_t *ids;
    int32_t num_source; /* tokens of a source, the first of `ids`; 0: none is read */
    float *generated, *whole; /* (V) */
    double most, largest;
};

static zt_err open_step(struct stepwise *p, struct zt_fault *fault)
{
    struct zt_engine *e = p->engine;
    struct zt_step_config cfg = {
        .backend = e->backend,
        .device = e->device,
        .model = e->model,
        .compute_dtype = e->run->compute_dtype,
        .seed = (uint64_t)e->run->seed,
        .hooks = zt_zero_hooks(e->zero),
    };
    zt_err rc;

    p->pool_bytes = 4 * e->plan.activations + ((size_t)1 << 20);
    rc = e->backend->alloc(e->device, p->pool_bytes, &p->pool_base, fault);
    if (!rc)
        rc = zt_pool_open(p->pool_base, p->pool_bytes, &p->pool, fault);
    cfg.pool = p->pool;
    return rc ? rc : zt_step_open(&cfg, &p->step, fault);
}

/* The last row of (1, R, V) as fp32. */
static zt_err fetch(struct stepwise *p, const struct zt_view *v, float *out,
                    struct zt_fault *fault)
{
    const struct zt_engine *e = p->engine;
    int64_t V = v->shape[2];
    char *last = (char *)v->data +
                 (size_t)((v->shape[1] - 1) * v->stride[1]) * zt_dtype_bytes(v->dtype);
    struct zt_axpby_args a = {.x = zt_view_of(last, v->dtype, 1, &V),
                              .y = zt_view_of(out, ZT_F32, 1, &V),
                              .alpha = 1};
    zt_err rc = e->backend->kernels->axpby(e->device, NULL, &a, fault);

    return rc ? rc : e->backend->sync(e->device, NULL, fault);
}

static zt_err run_pass(struct stepwise *p, zt_mode mode, int64_t from, int64_t to,
                       float *out, struct zt_fault *fault)
{
    struct zt_engine *e = p->engine;
    struct zt_pass pass = {.mode = mode, .B = 1, .T = to - from, .last_only = true};
    zt_tensor *logits = NULL;
    zt_err rc;

    pass.fields[zt_batch_find(&e->model->layout, ZT_TOKENS)] = p->ids + from;
    if (p->num_source && (mode == ZT_MODE_EVAL || from == 0)) {
        pass.S = p->num_source;
        pass.fields[zt_batch_find(&e->model->layout, ZT_SOURCE)] = p->ids;
        pass.fields[zt_batch_find(&e->model->layout, ZT_SOURCE_LENGTHS)] = &p->num_source;
    }
    zt_zero_pass_begin(e->zero, mode, 0);
    rc = zt_step_forward(p->step, &pass, &logits, fault);
    if (!rc)
        rc = fetch(p, zt_tensor_view(logits), out, fault);
    zt_step_end(p->step);
    return rc ? rc : zt_zero_pass_end(e->zero, fault);
}

static void compare(struct stepwise *p)
{
    for (int64_t i = 0; i < p->engine->model->vocab; i++) {
        double d = fabs((double)p->generated[i] - (double)p->whole[i]);

        p->most = d > p->most || isnan(d) ? d : p->most;
        p->largest = fmax(p->largest, fabs((double)p->whole[i]));
    }
}

static zt_err follow(struct stepwise *p, struct zt_fault *fault)
{
    struct zt_engine *e = p->engine;
    bool cached = zt_plugin_has_cache(e->plugin, e->source_size > 0), restart;
    int64_t n = zt_engine_generation(e, &e->prompts).longest,
            stop = n + e->run->generate_tokens;
    struct zt_context c;
    zt_err rc = cached ? zt_step_cache_open(p->step, 1, e->text_size, fault) : ZT_OK;

    if (!rc && cached && p->num_source)
        rc = zt_step_cache_add_sources(p->step, 1, 1, p->num_source, fault);
    zt_context_begin(&c, e->text_size, cached, n);
    for (; !rc && n < stop; n++) {
        int64_t from = zt_context_next(&c, n, &restart);

        if (restart)
            zt_step_cache_reset(p->step);
        rc = run_pass(p, ZT_MODE_GENERATE, from, n, p->generated, fault);
        if (!rc)
            rc = run_pass(p, ZT_MODE_EVAL, c.start, n, p->whole, fault);
        if (!rc)
            compare(p);
    }
    return rc;
}

static zt_err fill(struct stepwise *p, struct zt_fault *fault)
{
    const struct zt_engine *e = p->engine;
    size_t n = (size_t)(e->prompts.longest + e->run->generate_tokens);
    size_t vocab = (size_t)e->model->vocab;

    p->ids = calloc(n, sizeof(*p->ids));
    p->generated = calloc(vocab, sizeof(float));
    p->whole = calloc(vocab, sizeof(float));
    if (e->source_size)
        p->num_source = (int32_t)zt_engine_generation(e, &e->prompts).source_tokens;
    if (!p->ids || !p->generated || !p->whole)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory");
    for (size_t i = 0; i < n; i++)
        p->ids[i] = (int32_t)(i * i * 31 % vocab);
    return ZT_OK;
}

static zt_err stepwise(struct stepwise *p, int argc, char **argv, struct zt_fault *fault)
{
    struct zt_run_facts facts = {.world = 1, .local_world = 1, .program = argv[1]};
    const struct zt_plugin *plugin = NULL;
    zt_err rc = zt_plugin_load(argv[1], &plugin, fault);

    if (rc)
        return rc;
    facts.model_options = plugin->options;
    rc = zt_run_open(argc - 2, argv + 2, &facts, &p->run, fault);
    if (!rc)
        rc = zt_engine_open(p->run, plugin, &p->engine, fault);
    if (!rc)
        rc = open_step(p, fault);
    if (!rc)
        rc = fill(p, fault);
    return rc ? rc : follow(p, fault);
}

int main(int argc, char **argv)
{
    struct zt_fault fault = {0};
    struct stepwise p = {0};
    zt_err rc;

    if (argc < 2) {
        fprintf(stderr, "usage: stepwise PLUGIN [run options]\n");
        return zt_err_exit_code(ZT_E_USAGE);
    }
    rc = stepwise(&p, argc, argv, &fault);
    if (rc)
        fprintf(stderr, "stepwise: %s\n", fault.text);
    else
        printf("%.3g\n", p.most / p.largest);
    zt_step_close(p.step); /* the cache with it */
    zt_pool_close(p.pool);
    if (p.pool_base)
        p.engine->backend->free(p.engine->device, p.pool_base, p.pool_bytes);
    zt_engine_close(p.engine);
    zt_run_close(p.run);
    free(p.ids);
    free(p.generated);
    free(p.whole);
    return zt_err_exit_code(rc);
}
