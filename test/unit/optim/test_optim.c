/* The rows of the optimizers, which config and docs are made from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "worker/optim/optim.h"

static void test_rows_are_whole(void **state)
{
    (void)state;
    for (int i = 0; zt_optimizers[i]; i++) {
        const struct zt_optimizer *o = zt_optimizers[i];

        assert_true(o->name && o->help && o->params && o->update);
        assert_ptr_equal(zt_optimizer_find(o->name), o);
        assert_true(o->num_states >= 0 && o->num_states <= ZT_OPTIM_MAX_STATES);
        for (int k = 0; k < o->num_states; k++)
            assert_true(o->states[k].name && zt_dtype_bytes(o->states[k].dtype) > 0);
        assert_int_equal(zt_hyper_find(o->params, "lr")->slot, ZT_OPTIM_LR);
        for (const struct zt_hyperparam *p = o->params; p->name; p++) {
            int last = p->slot + (p->type == ZT_HYPER_PAIR);

            assert_true(p->slot >= 0 && last < ZT_HYPER_VALUES);
            assert_ptr_equal(zt_hyper_find(o->params, p->name), p); /* once */
            assert_true(p->def && (p->type != ZT_HYPER_PAIR || p->options[1]));
        }
    }
}

static void test_values_of_the_option_are_aliases(void **state)
{
    const struct zt_optimizer *adamw = zt_optimizer_find("adamw");

    (void)state;
    assert_non_null(adamw);
    assert_ptr_equal(zt_optimizers[0], adamw); /* the default */
    assert_ptr_equal(zt_optimizer_of_option("adamw_torch"), adamw);
    assert_ptr_equal(zt_optimizer_of_option("adamw_torch_fused"), adamw);
    assert_null(zt_optimizer_of_option("adamw_"));
    assert_null(zt_optimizer_find("adamw_torch"));
}

static void test_adam_is_adamw_unless_told(void **state)
{
    const struct zt_optimizer *adam = zt_optimizer_find("Adam");
    double value[ZT_HYPER_VALUES] = {0};

    (void)state;
    assert_ptr_equal(adam->variant(value), adam);
    value[zt_hyper_find(adam->params, "adam_w_mode")->slot] = 1;
    assert_ptr_equal(adam->variant(value), zt_optimizer_find("AdamW"));
}

/* What the optimizer asks the kernel for. */
static struct zt_adamw_args asked;

static zt_err note_adamw(struct zt_device *dev, struct zt_stream *s,
                         const struct zt_adamw_args *a, struct zt_fault *fault)
{
    (void)dev;
    (void)s;
    (void)fault;
    asked = *a;
    return ZT_OK;
}

/* The first step is sign(g) whatever the betas, and the kernel has them in single precision. */
static void test_bias_correction_is_of_the_betas_of_the_kernel(void **state)
{
    static const double betas[] = {0.9, 0.999, 0.99999, 0.9999999};
    const struct zt_kernels kernels = {.adamw = note_adamw};
    const struct zt_backend backend = {.kernels = &kernels};
    const struct zt_optimizer *adamw = zt_optimizer_find("AdamW");
    int pair = zt_hyper_find(adamw->params, "betas")->slot;
    struct zt_optim_config cfg = {.optimizer = adamw};
    const struct zt_optim_step step = {.backend = &backend, .cfg = &cfg, .lr = 1, .t = 1};
    float x[4] = {0};
    const struct zt_optim_slice slice = {.master = x,
                                         .master_dtype = ZT_F32,
                                         .grad = x + 1,
                                         .state = {x + 2, x + 3},
                                         .n = 1};

    (void)state;
    cfg.value[zt_hyper_find(adamw->params, "bias_correction")->slot] = 1;
    for (size_t i = 0; i < sizeof(betas) / sizeof(*betas); i++) {
        cfg.value[pair] = 0.9;
        cfg.value[pair + 1] = betas[i];
        assert_int_equal(adamw->update(&step, &slice, NULL), ZT_OK);
        assert_true(fabs((1 - asked.beta2) * asked.vscale * asked.vscale - 1) < 1e-6);
        assert_true(fabs((1 - asked.beta1) * asked.lr_t - 1) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_whole),
        cmocka_unit_test(test_values_of_the_option_are_aliases),
        cmocka_unit_test(test_adam_is_adamw_unless_told),
        cmocka_unit_test(test_bias_correction_is_of_the_betas_of_the_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
