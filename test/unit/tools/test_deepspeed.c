/*
 * Checkpoints of DeepSpeed, stages 1 to 3, as its ranks write them: values and moments come
 * out of the parts, and files that do not fit together are refused by name. The files are
 * made here; test/peers/deepspeed_checkpoints.py does the same with DeepSpeed itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/unit/data/files.h"
#include "worker/tools/convert.h"
#include "worker/tools/export.h"
#include "worker/torch_file/torch_write.h"

static struct zt_fault fault;

/* Two groups: a (3, 2) and b (5); c (4). Values count up: a 0.., b 100.., c 200..;
 * moments are those plus 1000 and 2000. */
static const struct {
    const char *name;
    int group, ndim;
    int64_t shape[2], numel;
    float base;
} params[] = {
    {"a", 0, 2, {3, 2}, 6, 0}, {"b", 0, 1, {5}, 5, 100}, {"c", 1, 1, {4}, 4, 200}};

#define WORLD 2

/* ---- making one ---- */

static void begin(struct zt_torch_values *v)
{
    zt_torch_values_init(v);
    zt_torch_put_mark(v, ZT_TORCH_DICT);
}

static void finish(struct zt_torch_values *v, const char *name, const float *data, int n)
{
    struct zt_torch_writer *w = NULL;

    zt_torch_put_end(v, ZT_TORCH_DICT);
    if (zt_torch_writer_open(in_scratch(name), v, &w, &fault) ||
        zt_torch_writer_put(w, data, (size_t)n * sizeof(*data), &fault) ||
        zt_torch_writer_commit(w, &fault))
        fail_msg("%s", fault.text);
    zt_torch_writer_close(w);
    zt_torch_values_release(v);
}

static void put_shapes(struct zt_torch_values *v)
{
    zt_torch_put_text(v, "param_shapes");
    zt_torch_put_mark(v, ZT_TORCH_LIST);
    for (int g = 0; g < 2; g++) {
        zt_torch_put_mark(v, ZT_TORCH_DICT);
        for (int i = 0; i < 3; i++)
            if (params[i].group == g) {
                zt_torch_put_text(v, params[i].name);
                zt_torch_put_mark(v, ZT_TORCH_TUPLE);
                for (int k = 0; k < params[i].ndim; k++)
                    zt_torch_put_int(v, params[i].shape[k]);
                zt_torch_put_end(v, ZT_TORCH_TUPLE);
            }
        zt_torch_put_end(v, ZT_TORCH_DICT);
    }
    zt_torch_put_end(v, ZT_TORCH_LIST);
}

static void write_model(const char *file, bool bf16)
{
    static const int64_t two[] = {2};
    const struct zt_safetensors_decl d = {"mask", ZT_F32, 1, two};
    struct zt_torch_values v;

    begin(&v);
    zt_torch_put_text(&v, "module");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "mask");
    zt_torch_put_tensor(&v, &d);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "buffer_names");
    zt_torch_put_mark(&v, ZT_TORCH_LIST);
    zt_torch_put_text(&v, "mask");
    zt_torch_put_end(&v, ZT_TORCH_LIST);
    put_shapes(&v);
    zt_torch_put_text(&v, "shared_params");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "tied");
    zt_torch_put_text(&v, "b");
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "global_steps");
    zt_torch_put_int(&v, 7);
    zt_torch_put_text(&v, "skipped_steps");
    zt_torch_put_int(&v, 2);
    zt_torch_put_text(&v, "ds_config");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "bf16");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "enabled");
    zt_torch_put_bool(&v, bf16);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    finish(&v, file, (const float[]){9, 8}, 2);
}

/* One rank's part of one group: elements, and of which parameter from where. */
struct part {
    float values[16];
    int num;
    struct {
        const char *name;
        int start, numel;
    } slices[4];
    int num_slices;
};

static void add_slice(struct part *p, int param, int first, int n)
{
    p->slices[p->num_slices].name = params[param].name;
    p->slices[p->num_slices].start = p->num;
    p->slices[p->num_slices++].numel = n;
    for (int i = 0; i < n; i++)
        p->values[p->num++] = params[param].base + (float)(first + i);
}

/* Stages 1 and 2: the group end to end, cut in the middle; stage 3: each parameter cut. */
static struct part part_of(int stage, int rank, int group)
{
    struct part p = {.num = 0};
    int all = group ? 4 : 11, half = (all + 1) / 2, at = 0;
    int from = rank * half, to = from + half < all ? from + half : all;

    for (int i = 0; i < 3; i++) {
        int n = (int)params[i].numel, share = (n + 1) / 2;
        int first = stage == 3 ? rank * share : from > at ? from - at : 0;
        int last = stage == 3 ? first + share : to - at;

        if (params[i].group != group)
            continue;
        last = last > n ? n : last;
        if (last > first)
            add_slice(&p, i, first, last - first);
        at += n;
        while (stage == 3 && p.num < (i == 1 && group == 0 ? 6 : 0))
            p.values[p.num++] = -1; /* padding */
    }
    return p;
}

static void put_flat(struct zt_torch_values *v, int n, int64_t *shape)
{
    struct zt_safetensors_decl d = {"", ZT_F32, 1, shape};

    *shape = n;
    zt_torch_put_tensor(v, &d);
}

static void put_states(struct zt_torch_values *v, const struct part *parts,
                       int64_t *shape)
{
    zt_torch_put_mark(v, ZT_TORCH_DICT);
    zt_torch_put_text(v, "state");
    zt_torch_put_mark(v, ZT_TORCH_DICT);
    for (int g = 0; g < 2; g++) {
        zt_torch_put_int(v, g);
        zt_torch_put_mark(v, ZT_TORCH_DICT);
        zt_torch_put_text(v, "step");
        zt_torch_put_int(v, 5);
        zt_torch_put_text(v, "exp_avg");
        put_flat(v, parts[g].num, shape);
        zt_torch_put_text(v, "exp_avg_sq");
        put_flat(v, parts[g].num, shape);
        zt_torch_put_end(v, ZT_TORCH_DICT);
    }
    zt_torch_put_end(v, ZT_TORCH_DICT);
    zt_torch_put_end(v, ZT_TORCH_DICT);
}

static void put_mappings(struct zt_torch_values *v, const struct part *parts)
{
    zt_torch_put_text(v, "param_slice_mappings");
    zt_torch_put_mark(v, ZT_TORCH_LIST);
    for (int g = 0; g < 2; g++) {
        zt_torch_put_mark(v, ZT_TORCH_DICT);
        for (int i = 0; i < parts[g].num_slices; i++) {
            zt_torch_put_text(v, parts[g].slices[i].name);
            zt_torch_put_mark(v, ZT_TORCH_DICT);
            zt_torch_put_text(v, "start");
            zt_torch_put_int(v, parts[g].slices[i].start);
            zt_torch_put_text(v, "numel");
            zt_torch_put_int(v, parts[g].slices[i].numel);
            zt_torch_put_end(v, ZT_TORCH_DICT);
        }
        zt_torch_put_end(v, ZT_TORCH_DICT);
    }
    zt_torch_put_end(v, ZT_TORCH_LIST);
}

static void write_optim(const char *file, int stage, int rank, bool mapped)
{
    struct part parts[2] = {part_of(stage, rank, 0), part_of(stage, rank, 1)};
    float data[96];
    struct zt_torch_values v;
    int64_t shape = 0;
    int n = 0;

    begin(&v);
    zt_torch_put_text(&v, "optimizer_state_dict");
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "zero_stage");
    zt_torch_put_int(&v, stage);
    zt_torch_put_text(&v, "partition_count");
    zt_torch_put_int(&v, WORLD);
    zt_torch_put_text(&v, stage == 3 ? "fp32_flat_groups"
                                     : "single_partition_of_fp32_groups");
    zt_torch_put_mark(&v, ZT_TORCH_LIST);
    for (int g = 0; g < 2; g++) {
        put_flat(&v, parts[g].num, &shape);
        for (int i = 0; i < parts[g].num; i++)
            data[n++] = parts[g].values[i];
    }
    zt_torch_put_end(&v, ZT_TORCH_LIST);
    if (mapped)
        put_mappings(&v, parts);
    zt_torch_put_text(&v, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    put_states(&v, parts, &shape);
    for (int g = 0; g < 2; g++)
        for (int k = 1; k <= 2; k++)
            for (int i = 0; i < parts[g].num; i++)
                data[n++] = parts[g].values[i] + 1000.0f * (float)k;
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    finish(&v, file, data, n);
}

static void make(int stage, bool mapped)
{
    char name[96];

    (void)mkdir(in_scratch("tag7"), 0777);
    put_file("latest", "tag7", 4);
    for (int r = 0; r < WORLD; r++) {
        snprintf(name, sizeof(name),
                 "tag7/bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt", r);
        write_optim(name, stage, r, mapped);
        snprintf(name, sizeof(name), "tag7/zero_pp_rank_%d_mp_rank_00_model_states.pt",
                 r);
        if (stage == 3)
            write_model(name, true);
    }
    if (stage != 3)
        write_model("tag7/mp_rank_00_model_states.pt", true);
}

/* ---- looking ---- */

static struct zt_checkpoint_source *opened(const char *path)
{
    struct zt_checkpoint_source *s = NULL;

    if (zt_source_open(path, NULL, &s, &fault))
        fail_msg("%s", fault.text);
    return s;
}

static void check_kind(struct zt_checkpoint_source *s, const char *kind, float plus)
{
    int k = zt_source_find_kind(s, kind);
    float got[8];

    for (int i = 0; i < 3; i++) {
        int t = zt_source_find(s, params[i].name);

        assert_true(t >= 0);
        assert_int_equal(s->tensors[t].t.numel, params[i].numel);
        if (zt_source_read(s, k, t, 0, params[i].numel, got, &fault))
            fail_msg("%s", fault.text);
        for (int e = 0; e < params[i].numel; e++)
            assert_true(got[e] == params[i].base + (float)e + plus);
        assert_int_equal(zt_source_read(s, k, t, 1, 2, got, &fault), ZT_OK);
        assert_true(got[1] == params[i].base + 2 + plus);
    }
}

static void check_all(struct zt_checkpoint_source *s)
{
    check_kind(s, "value", 0);
    check_kind(s, "exp_avg", 1000);
    check_kind(s, "exp_avg_sq", 2000);
}

static void check_stage(int stage, bool mapped)
{
    struct zt_checkpoint_source *s;
    float mask[2];

    make(stage, mapped);
    s = opened(scratch_dir);
    check_all(s);
    assert_int_equal(s->num, 5);
    assert_true(s->tensors[3].buffer);
    assert_int_equal(zt_source_read(s, 0, 3, 0, 2, mask, &fault), ZT_OK);
    assert_true(mask[0] == 9 && mask[1] == 8);
    assert_string_equal(s->tensors[4].t.name, "tied");
    assert_string_equal(s->tensors[4].t.alias_of, "b");
    assert_int_equal(s->deepspeed->optimizer_step, 5);
    zt_source_close(s);
    scratch_remove(NULL);
    scratch_make(NULL);
}

static void test_values_and_moments_come_out_of_each_stage(void **state)
{
    (void)state;
    check_stage(1, true);
    check_stage(2, true);
    check_stage(2, false); /* as older versions wrote it */
    check_stage(3, false);
}

static void test_what_does_not_fit_together_is_refused_by_name(void **state)
{
    struct zt_checkpoint_source *s = NULL;

    (void)state;
    make(2, true);
    unlink(in_scratch("tag7/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"));
    assert_int_equal(zt_source_open(scratch_dir, NULL, &s, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "1 files of optimizer states"));
    make(2, true);
    unlink(in_scratch("tag7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"));
    assert_int_equal(zt_source_open(scratch_dir, NULL, &s, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "saved by 2 ranks"));
    write_optim("tag7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", 2, 0, true);
    assert_int_equal(zt_source_open(scratch_dir, NULL, &s, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "elements of its"));
    put_file("tag7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "x", 1);
    assert_int_equal(zt_source_open(scratch_dir, NULL, &s, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "rank_1_mp_rank_00_optim_states.pt"));
}

static void test_it_becomes_a_checkpoint_of_ours_with_its_moments(void **state)
{
    const json_t *training;
    struct zt_checkpoint_source *s;
    char path[128];

    (void)state;
    make(3, false);
    s = opened(scratch_dir);
    snprintf(path, sizeof(path), "%s/ours", scratch_dir);
    if (zt_convert_to_zlaunch(s, path, false, &fault))
        fail_msg("%s", fault.text);
    zt_source_close(s);
    s = opened(in_scratch("ours/checkpoint-7"));
    check_all(s);
    assert_int_equal(s->num, 4); /* and the second name of one of the 3 */
    assert_string_equal(s->tensors[3].t.alias_of, "b");
    assert_non_null(s->ours);
    training = json_object_get(zt_ckpt_manifest(s->ours)->root, "training");
    assert_int_equal(json_integer_value(json_object_get(training, "step")), 7);
    assert_int_equal(json_integer_value(json_object_get(training, "steps_taken")), 5);
    assert_int_equal(zt_ckpt_find_kind(zt_ckpt_manifest(s->ours), "weights"), 0);
    assert_int_equal(zt_ckpt_manifest(s->ours)->kinds[0].dtype, ZT_BF16);
    if (zt_ckpt_verify(s->ours, &fault))
        fail_msg("%s", fault.text);
    zt_source_close(s);
}

/* What converts `s` says on stderr, in `text`. */
static void convert_and_hear(struct zt_checkpoint_source *s, bool universal, char *text,
                             size_t cap)
{
    const char *file = in_scratch("said");
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), before = dup(2);
    char out[128];
    ssize_t n;
    zt_err rc;

    snprintf(out, sizeof(out), "%s/%s", scratch_dir, universal ? "uni" : "heard");
    assert_true(fd >= 0 && before >= 0 && dup2(fd, 2) == 2);
    rc = universal ? zt_convert_to_universal(s, out, false, &fault)
                   : zt_convert_to_zlaunch(s, out, false, &fault);
    fflush(stderr);
    assert_int_equal(dup2(before, 2), 2);
    close(before);
    n = pread(fd, text, cap - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    if (rc)
        fail_msg("%s", fault.text);
}

static void test_buffers_that_a_form_has_not_are_told(void **state)
{
    struct zt_checkpoint_source *s;
    char text[512];

    (void)state;
    make(3, false);
    s = opened(scratch_dir);
    for (int universal = 0; universal < 2; universal++) {
        convert_and_hear(s, universal, text, sizeof(text));
        assert_non_null(strstr(text, ": without 1 tensor (mask): "));
    }
    zt_source_close(s);
}

static void test_exports_hold_the_same_values(void **state)
{
    static const char *const outputs[] = {"w.bin", "w.safetensors", "shards", "safe"};
    struct zt_checkpoint_source *s;

    (void)state;
    make(3, false);
    s = opened(scratch_dir);
    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
        struct zt_tensor_export how = {
            .to = in_scratch(outputs[i]), .shard_bytes = 30, .safe = i == 3};
        struct zt_checkpoint_source *back;
        struct zt_exported made;

        if (zt_export(s, &how, &made, &fault))
            fail_msg("%s", fault.text);
        back = opened(how.to);
        check_kind(back, "value", 0);
        assert_int_equal(back->num, i % 3 ? 4 + (i == 2) : 5 - (i == 3));
        zt_source_close(back);
    }
    assert_int_equal(access(in_scratch("shards/pytorch_model.bin.index.json"), R_OK), 0);
    zt_source_close(s);
}

static void test_the_public_header_reads_them(void **state)
{
    zt_checkpoint *c = NULL;
    char why[256] = "";
    float got[4];

    (void)state;
    make(3, false);
    assert_int_equal(zt_checkpoint_open(scratch_dir, NULL, &c, why, sizeof(why)), ZT_OK);
    assert_int_equal(zt_checkpoint_count(c), 5);
    assert_string_equal(zt_checkpoint_at(c, 1)->name, "b");
    assert_int_equal(zt_checkpoint_find(c, "c"), 2);
    assert_int_equal(zt_checkpoint_read(c, 2, 1, 2, got, why, sizeof(why)), ZT_OK);
    assert_true(got[0] == 201 && got[1] == 202);
    assert_int_equal(zt_checkpoint_read(c, 2, 3, 2, got, why, sizeof(why)), ZT_E_ARG);
    assert_true(why[0]);
    zt_checkpoint_close(c);
    assert_int_equal(zt_checkpoint_open("/nowhere", NULL, &c, why, sizeof(why)),
                     ZT_E_NOINPUT);
    assert_non_null(strstr(why, "/nowhere"));
}

static void test_sizes_are_parsed_as_deepspeed_writes_them(void **state)
{
    int64_t n = 0;

    (void)state;
    assert_true(zt_parse_size("5GB", &n) && n == INT64_C(5000000000));
    assert_true(zt_parse_size("2GiB", &n) && n == INT64_C(2) << 30);
    assert_true(zt_parse_size("500mb", &n) && n == 500000000);
    assert_false(zt_parse_size("GB", &n));
    assert_false(zt_parse_size("-1GB", &n));
    assert_false(zt_parse_size("99999999999TB", &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_moments_come_out_of_each_stage),
        cmocka_unit_test(test_what_does_not_fit_together_is_refused_by_name),
        cmocka_unit_test(test_it_becomes_a_checkpoint_of_ours_with_its_moments),
        cmocka_unit_test(test_buffers_that_a_form_has_not_are_told),
        cmocka_unit_test(test_exports_hold_the_same_values),
        cmocka_unit_test(test_the_public_header_reads_them),
        cmocka_unit_test(test_sizes_are_parsed_as_deepspeed_writes_them),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
