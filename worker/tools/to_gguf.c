/*
 * to_gguf.c -- models of GPT-2's and Llama's kinds as llama.cpp names and lays them out.
 *
 * gguf_names.c says what a tensor is called there. Two kinds change on the way: GPT-2's
 * matrices are transposed (Hugging Face has them [in, out]), and the rows of Llama's
 * queries and keys are reordered, because llama.cpp rotates adjacent pairs and Hugging
 * Face halves.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/tools/hf_config.h"
#include "worker/tools/convert.h"
#include "worker/tools/gguf.h"
#include "worker/tools/gguf_model.h"
#include "worker/tools/gguf_names.h"

struct gguf_item {
    int of;
    const struct zt_gguf_name *name;
    zt_gguf_type type;
    int ndim;
    int64_t shape[ZT_MAX_NDIM];
};

struct conversion {
    struct zt_checkpoint_source *s;
    struct zt_hf_config *config;
    const struct zt_gguf_kind *kind;
    zt_gguf_type type;
    struct gguf_item *items;
    int num;
    int64_t width, layers, heads, kv_heads, head_dim, vocab;
    double theta;
    const char *rope; /* the object of the config that says how heads are turned */
    float *freqs;     /* of Llama 3.1's scaling; NULL: none */
    struct zt_gguf out;
};

/* ---- what the model is ---- */

static zt_err get(const struct conversion *c, const char *gpt2, const char *llama,
                  int64_t def, int64_t *out, struct zt_fault *fault)
{
    const char *key = c->kind->gpt2 ? gpt2 : llama;
    zt_err rc = zt_hf_config_int(c->config, key, def, out, fault);

    if (!rc && *out <= 0)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: config.json says no `%s`", c->s->path,
                          key);
    return rc;
}

static zt_err open_config(struct conversion *c, struct zt_fault *fault)
{
    char *path;
    const char *type = "";
    zt_err rc = zt_source_neighbour(c->s, "config.json", &path, fault);

    if (rc)
        return rc;
    if (!path)
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: there is no config.json beside it, which says what model "
            "it is",
            c->s->path);
    rc = zt_hf_config_open(path, &c->config, fault);
    free(path);
    if (!rc)
        rc = zt_hf_config_string(c->config, "model_type", "", &type, fault);
    c->kind = zt_gguf_kind_find(type);
    if (!rc && !c->kind)
        rc = zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "%s: a model of type \"%s\"; gpt2, llama, mistral, qwen2 and qwen3 "
            "are written as GGUF",
            c->s->path, type);
    return rc;
}

/* Newer files have one object, rope_parameters; older ones rope_scaling, and the base outside. */
static zt_err read_theta(struct conversion *c, struct zt_fault *fault)
{
    bool newer = zt_hf_config_has(c->config, "rope_parameters");
    char key[64];
    zt_err rc;

    if (newer && zt_hf_config_has(c->config, "rope_scaling"))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: config.json has rope_parameters and rope_scaling, of "
                            "which transformers reads the latter alone: leave one of "
                            "them out",
                            c->s->path);
    c->rope = newer ? "rope_parameters" : "rope_scaling";
    snprintf(key, sizeof(key), "%s.rope_theta", c->rope);
    rc = zt_hf_config_float(c->config, "rope_theta", 10000, &c->theta, fault);
    return rc ? rc : zt_hf_config_float(c->config, key, c->theta, &c->theta, fault);
}

static zt_err read_sizes(struct conversion *c, struct zt_fault *fault)
{
    zt_err rc = get(c, "n_embd", "hidden_size", 0, &c->width, fault);

    if (!rc)
        rc = get(c, "n_layer", "num_hidden_layers", 0, &c->layers, fault);
    if (!rc)
        rc = get(c, "n_head", "num_attention_heads", 0, &c->heads, fault);
    if (!rc)
        rc = get(c, "n_head", "num_key_value_heads", c->heads, &c->kv_heads, fault);
    if (!rc)
        rc = get(c, "vocab_size", "vocab_size", 0, &c->vocab, fault);
    if (!rc)
        rc = get(c, "head_dim", "head_dim", c->heads ? c->width / c->heads : 0,
                 &c->head_dim, fault);
    return rc || c->kind->gpt2 ? rc : read_theta(c, fault);
}

/* ---- rotary scaling ---- */

static zt_err scaling_type(const struct conversion *c, const char **type,
                           struct zt_fault *fault)
{
    char key[64];
    zt_err rc;

    snprintf(key, sizeof(key), "%s.type", c->rope);
    rc = zt_hf_config_string(c->config, key, "default", type, fault);
    snprintf(key, sizeof(key), "%s.rope_type", c->rope);
    return rc ? rc : zt_hf_config_string(c->config, key, *type, type, fault);
}

static zt_err scaling_value(const struct conversion *c, const char *name, double *out,
                            struct zt_fault *fault)
{
    char key[80];
    zt_err rc;

    snprintf(key, sizeof(key), "%s.%s", c->rope, name);
    rc = zt_hf_config_float(c->config, key, 0, out, fault);
    if (!rc && !(*out > 0))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: config.json says no `%s`", c->s->path,
                          key);
    return rc;
}

/* Llama 3.1: by what each frequency is divided; in between the two borders blended. */
static zt_err llama3_freqs(struct conversion *c, struct zt_fault *fault)
{
    double factor = 0, low = 0, high = 0, old = 0;
    zt_err rc = scaling_value(c, "factor", &factor, fault);

    if (!rc)
        rc = scaling_value(c, "low_freq_factor", &low, fault);
    if (!rc)
        rc = scaling_value(c, "high_freq_factor", &high, fault);
    if (!rc)
        rc = scaling_value(c, "original_max_position_embeddings", &old, fault);
    if (rc)
        return rc;
    c->freqs = calloc((size_t)c->head_dim / 2 + 1, sizeof(*c->freqs));
    if (!c->freqs)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", c->s->path);
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        double freq = pow(c->theta, -2.0 * (double)i / (double)c->head_dim);
        double turns = old * freq / (2 * M_PI); /* within the old context */
        double smooth = (turns - low) / (high - low);

        c->freqs[i] = turns > high  ? 1
                      : turns < low ? (float)factor
                                    : (float)(1 / ((1 - smooth) / factor + smooth));
    }
    return ZT_OK;
}

static zt_err put_rope(struct conversion *c, struct zt_fault *fault)
{
    const char *type = NULL, *arch = c->kind->arch;
    double factor = 1;
    char key[96];
    zt_err rc = scaling_type(c, &type, fault);

    snprintf(key, sizeof(key), "%s.rope.dimension_count", arch);
    zt_gguf_put_u32(&c->out, key, (uint32_t)c->head_dim);
    snprintf(key, sizeof(key), "%s.rope.freq_base", arch);
    zt_gguf_put_f32(&c->out, key, (float)c->theta);
    if (rc || strcmp(type, "default") == 0)
        return rc;
    if (strcmp(type, "llama3") == 0)
        return llama3_freqs(c, fault);
    if (strcmp(type, "linear") != 0)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: rotary scaling of type \"%s\" is not written as GGUF",
                            c->s->path, type);
    rc = scaling_value(c, "factor", &factor, fault);
    snprintf(key, sizeof(key), "%s.rope.scaling.type", arch);
    zt_gguf_put_text(&c->out, key, "linear");
    snprintf(key, sizeof(key), "%s.rope.scaling.factor", arch);
    zt_gguf_put_f32(&c->out, key, (float)factor);
    return rc;
}

/* ---- keys ---- */

static void put_size(struct conversion *c, const char *name, int64_t value)
{
    char key[96];

    snprintf(key, sizeof(key), "%s.%s", c->kind->arch, name);
    zt_gguf_put_u32(&c->out, key, (uint32_t)value);
}

static zt_err put_keys(struct conversion *c, struct zt_fault *fault)
{
    bool gpt2 = c->kind->gpt2;
    int64_t context = 0, inner = 0;
    double eps = 0;
    char key[96];
    zt_err rc = get(c, "n_positions", "max_position_embeddings", 0, &context, fault);

    if (!rc)
        rc = get(c, "n_inner", "intermediate_size", gpt2 ? 4 * c->width : 0, &inner,
                 fault);
    if (!rc)
        rc = zt_gguf_check_model(
            &(struct zt_gguf_model){c->s->path, c->kind, c->config, c->layers, context},
            fault);
    if (!rc)
        rc = zt_hf_config_float(c->config, gpt2 ? "layer_norm_epsilon" : "rms_norm_eps",
                                gpt2 ? 1e-5 : 1e-6, &eps, fault);
    if (rc)
        return rc;
    zt_gguf_put_text(&c->out, "general.architecture", c->kind->arch);
    zt_gguf_put_text(&c->out, "general.name", c->kind->model_type);
    zt_gguf_put_u32(&c->out, "general.file_type",
                    c->type == ZT_GGUF_F32    ? 0
                    : c->type == ZT_GGUF_F16  ? 1
                    : c->type == ZT_GGUF_Q8_0 ? 7
                                              : 32);
    put_size(c, "context_length", context);
    put_size(c, "embedding_length", c->width);
    put_size(c, "block_count", c->layers);
    put_size(c, "feed_forward_length", inner);
    put_size(c, "attention.head_count", c->heads);
    put_size(c, "attention.head_count_kv", c->kv_heads);
    put_size(c, "vocab_size", c->vocab);
    snprintf(key, sizeof(key), "%s.attention.layer_norm%s_epsilon", c->kind->arch,
             gpt2 ? "" : "_rms");
    zt_gguf_put_f32(&c->out, key, (float)eps);
    if (c->head_dim * c->heads != c->width) {
        put_size(c, "attention.key_length", c->head_dim);
        put_size(c, "attention.value_length", c->head_dim);
    }
    zt_gguf_put_text(&c->out, "tokenizer.ggml.model", "none");
    return gpt2 ? ZT_OK : put_rope(c, fault);
}

/* ---- tensors ---- */

static bool is_tied(const struct conversion *c)
{
    bool tied = c->kind->gpt2;

    (void)!zt_hf_config_bool(c->config, "tie_word_embeddings", tied, &tied, NULL);
    return tied;
}

/* GPT-2's head is its embedding; buffers of masks are no weights. */
static bool is_left_out(const struct conversion *c, const struct zt_source_tensor *t)
{
    return t->t.alias_of || t->buffer || !t->t.readable ||
           (is_tied(c) && strcmp(t->t.name, "lm_head.weight") == 0);
}

/* A tensor that some models of the kind have and others not. */
static bool may_lack(const struct conversion *c, const char *name)
{
    const char *arch = c->kind->arch;

    if (strstr(name, ".bias"))
        return !c->kind->gpt2 && (strcmp(arch, "qwen2") != 0 || strstr(name, "o_proj"));
    if (strstr(name, "q_norm") || strstr(name, "k_norm"))
        return strcmp(arch, "qwen3") != 0;
    return strcmp(name, "lm_head.weight") == 0 && is_tied(c);
}

/* A file with one shard of several, or with a layer less, is none that computes anything. */
static zt_err check_whole(const struct conversion *c, struct zt_fault *fault)
{
    for (const struct zt_gguf_name *n = c->kind->names; n->ours; n++) {
        int64_t want = strstr(n->ours, "%d") ? c->layers : 1, num = 0;

        for (int i = 0; i < c->num; i++)
            num += c->items[i].name == n;
        if (num != want && (num || !may_lack(c, n->ours)))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: has %lld tensors %s, and a model of its config.json "
                                "has %lld: it is not whole",
                                c->s->path, (long long)num, n->ours, (long long)want);
    }
    return ZT_OK;
}

/* Vectors and positions stay fp32, as the kernels of llama.cpp want them. */
static zt_gguf_type type_of(const struct conversion *c, const struct gguf_item *item)
{
    if (item->ndim < 2 || strcmp(item->name->theirs, "position_embd.weight") == 0)
        return ZT_GGUF_F32;
    if (c->type == ZT_GGUF_Q8_0 && item->shape[item->ndim - 1] % ZT_GGUF_BLOCK)
        return ZT_GGUF_F16;
    return c->type;
}

static zt_err check_rows(const struct conversion *c, const struct gguf_item *item,
                         struct zt_fault *fault)
{
    int64_t heads = item->name->change == ZT_GGUF_QUERY_ROWS ? c->heads : c->kv_heads;

    if (item->name->change == ZT_GGUF_TRANSPOSED && item->ndim != 2)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s is no matrix", c->s->path,
                            c->s->tensors[item->of].t.name);
    if ((item->name->change == ZT_GGUF_QUERY_ROWS ||
         item->name->change == ZT_GGUF_KEY_ROWS) &&
        (item->shape[0] != heads * c->head_dim || c->head_dim % 2))
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: %s has %lld rows where config.json says %lld heads of %lld", c->s->path,
            c->s->tensors[item->of].t.name, (long long)item->shape[0], (long long)heads,
            (long long)c->head_dim);
    return ZT_OK;
}

static zt_err add_item(struct conversion *c, int of, struct gguf_item *item,
                       struct zt_fault *fault)
{
    const struct zt_checkpoint_tensor *t = &c->s->tensors[of].t;
    char name[128];
    int layer = 0;
    zt_err rc;

    *item =
        (struct gguf_item){.of = of,
                           .name = zt_gguf_name_find(c->kind, t->name, c->layers, &layer),
                           .ndim = t->ndim};
    if (!item->name || t->ndim < 1 || t->ndim > 2)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: tensor %s has no place in a GGUF file of type %s",
                            c->s->path, t->name, c->kind->arch);
    for (int i = 0; i < t->ndim; i++)
        item->shape[i] =
            t->shape[item->name->change == ZT_GGUF_TRANSPOSED ? t->ndim - 1 - i : i];
    rc = check_rows(c, item, fault);
    if (rc)
        return rc;
    item->type = type_of(c, item);
    snprintf(name, sizeof(name), item->name->theirs, layer);
    zt_gguf_put_tensor(&c->out, name, item->type, item->ndim, item->shape);
    return ZT_OK;
}

/* The tensor of the source that has this name in the file; -1: none. */
static int find_named(const struct conversion *c, const char *theirs)
{
    int layer;

    for (int i = 0; i < c->s->num; i++) {
        const struct zt_source_tensor *t = &c->s->tensors[i];
        const struct zt_gguf_name *n =
            zt_gguf_name_find(c->kind, t->t.name, c->layers, &layer);

        if (n && !t->t.alias_of && t->t.readable && strcmp(n->theirs, theirs) == 0)
            return i;
    }
    return -1;
}

/* A head that is left out, because it is the embedding, is that number by number. */
static zt_err check_tied_head(const struct conversion *c, struct zt_fault *fault)
{
    int head = zt_source_find(c->s, "lm_head.weight");
    int embedding = find_named(c, "token_embd.weight");
    const struct zt_checkpoint_tensor *a, *b;
    float pieces[2][1024];
    bool same;
    zt_err rc = ZT_OK;

    if (!is_tied(c) || head < 0 || embedding < 0 || c->s->tensors[head].t.alias_of ||
        !c->s->tensors[head].t.readable)
        return ZT_OK;
    a = &c->s->tensors[head].t;
    b = &c->s->tensors[embedding].t;
    same = a->ndim == b->ndim && a->numel == b->numel;
    for (int64_t at = 0, n = 1024; !rc && same && at < a->numel; at += n) {
        n = a->numel - at < n ? a->numel - at : n;
        rc = zt_source_read(c->s, 0, head, at, n, pieces[0], fault);
        if (!rc)
            rc = zt_source_read(c->s, 0, embedding, at, n, pieces[1], fault);
        same = !rc && memcmp(pieces[0], pieces[1], (size_t)n * sizeof(float)) == 0;
    }
    if (rc || same)
        return rc;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: %s is not the same as %s, as its config.json says; if they "
                        "are two, it must say \"tie_word_embeddings\": false",
                        c->s->path, a->name, b->name);
}

static zt_err add_items(struct conversion *c, struct zt_fault *fault)
{
    int64_t half = c->head_dim / 2;
    zt_err rc = ZT_OK;

    if (c->freqs)
        zt_gguf_put_tensor(&c->out, "rope_freqs.weight", ZT_GGUF_F32, 1, &half);
    for (int i = 0; !rc && i < c->s->num; i++)
        if (!is_left_out(c, &c->s->tensors[i]))
            rc = add_item(c, i, &c->items[c->num++], fault);
    if (!rc)
        rc = check_whole(c, fault);
    return rc ? rc : check_tied_head(c, fault);
}

/* ---- data ---- */

/* Row r of the output is this row of the source. */
static int64_t row_of(const struct conversion *c, const struct gguf_item *item, int64_t r)
{
    int64_t within = r % c->head_dim;

    if (!c->kind->pairs || (item->name->change != ZT_GGUF_QUERY_ROWS &&
                            item->name->change != ZT_GGUF_KEY_ROWS))
        return r;
    return r - within + within % 2 * (c->head_dim / 2) + within / 2;
}

/* The whole of a matrix that is transposed; GPT-2's are small. *out is to be freed in any
 * case. */
static zt_err read_transposed(const struct conversion *c, const struct gguf_item *item,
                              float **out, struct zt_fault *fault)
{
    int64_t rows = item->shape[0], columns = item->shape[1];
    float *in = malloc((size_t)(rows * columns) * sizeof(*in) + 1);
    float *turned = malloc((size_t)(rows * columns) * sizeof(*in) + 1);
    zt_err rc;

    *out = turned;
    if (!in || !turned) {
        free(in);
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", c->s->path);
    }
    rc = zt_source_read(c->s, 0, item->of, 0, rows * columns, in, fault);
    for (int64_t r = 0; !rc && r < rows; r++)
        for (int64_t k = 0; k < columns; k++)
            turned[r * columns + k] = in[k * rows + r];
    free(in);
    return rc;
}

static float limit_of(zt_gguf_type type)
{
    return type == ZT_GGUF_BF16 ? ZT_BF16_LIMIT : ZT_F16_LIMIT;
}

/* Floats that are lost become infinite, and stay NaN; a block of bytes has neither, and none of
 * its other numbers either where its scale, of the largest over 127, is more than f16 has. */
static zt_err check_blocks(const struct conversion *c, const struct gguf_item *item,
                           const float *row, int64_t columns, struct zt_fault *fault)
{
    for (int64_t i = 0; i < columns; i++)
        if (!(fabsf(row[i]) < 127 * ZT_F16_LIMIT))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: %s has the number %g, which q8_0 has not: write it "
                                "with --dtype f32 (zckpt verify lists what is not "
                                "finite)",
                                c->s->path, c->s->tensors[item->of].t.name,
                                (double)(isnan(row[i]) ? NAN : row[i])); /* not -nan */
    return ZT_OK;
}

static zt_err write_item(struct conversion *c, const struct gguf_item *item,
                         struct zt_fault *fault)
{
    /* a vector is one row, or one of single elements where these are reordered */
    bool single = item->ndim == 1 && row_of(c, item, 1) != 1;
    int64_t columns = single ? 1 : item->shape[item->ndim - 1];
    int64_t rows = item->ndim == 2 || single ? item->shape[0] : 1;
    float *row = malloc((size_t)columns * sizeof(*row) + 1), *whole = NULL, *from;
    void *coded = malloc((size_t)columns * sizeof(*row) + ZT_GGUF_BLOCK_BYTES);
    zt_err rc = row && coded
                    ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", c->s->path);

    if (!rc && item->name->change == ZT_GGUF_TRANSPOSED)
        rc = read_transposed(c, item, &whole, fault);
    for (int64_t r = 0; !rc && r < rows; r++) {
        if (!whole)
            rc = zt_source_read(c->s, 0, item->of, row_of(c, item, r) * columns, columns,
                                row, fault);
        from = whole ? whole + r * columns : row;
        if (!rc && item->type == ZT_GGUF_Q8_0)
            rc = check_blocks(c, item, from, columns, fault);
        if (rc)
            break;
        if (item->type == ZT_GGUF_F16 || item->type == ZT_GGUF_BF16)
            zt_source_note_lost(c->s, item->of, from, columns, limit_of(item->type));
        zt_gguf_encode(item->type, from, columns, coded);
        rc = zt_gguf_write(&c->out, coded, zt_gguf_bytes(item->type, columns), fault);
    }
    free(row);
    free(whole);
    free(coded);
    return rc ? rc : zt_gguf_end_tensor(&c->out, fault);
}

static zt_err write_data(struct conversion *c, const char *to, struct zt_fault *fault)
{
    zt_err rc = zt_gguf_begin(&c->out, to, fault);

    if (!rc && c->freqs) {
        rc = zt_gguf_write(&c->out, c->freqs, (size_t)c->head_dim / 2 * sizeof(*c->freqs),
                           fault);
        if (!rc)
            rc = zt_gguf_end_tensor(&c->out, fault);
    }
    for (int i = 0; !rc && i < c->num; i++)
        rc = write_item(c, &c->items[i], fault);
    return rc ? rc : zt_gguf_commit(&c->out, fault);
}

static zt_err convert(struct conversion *c, const char *to, struct zt_fault *fault)
{
    zt_err rc = open_config(c, fault);

    if (!rc)
        rc = read_sizes(c, fault);
    if (!rc)
        rc = put_keys(c, fault);
    if (!rc)
        rc = add_items(c, fault);
    return rc ? rc : write_data(c, to, fault);
}

/* Where q8_0 was asked for: rows that it cannot cut into blocks. */
static void say_in_what(const struct conversion *c, char *out, size_t room)
{
    int other = 0;

    for (int i = 0; i < c->num; i++)
        other += c->type == ZT_GGUF_Q8_0 && c->items[i].type == ZT_GGUF_F16;
    out[0] = '\0';
    if (other)
        snprintf(out, room, " (%d in f16: their rows are no multiple of %d)", other,
                 ZT_GGUF_BLOCK);
}

zt_err zt_convert_to_gguf(struct zt_checkpoint_source *s, const char *to,
                          const char *type, struct zt_fault *fault)
{
    struct gguf_item *items = calloc((size_t)s->num + 1, sizeof(*items));
    struct conversion c = {.s = s,
                           .items = items,
                           .type = strcmp(type, "f16") == 0    ? ZT_GGUF_F16
                                   : strcmp(type, "bf16") == 0 ? ZT_GGUF_BF16
                                   : strcmp(type, "q8_0") == 0 ? ZT_GGUF_Q8_0
                                                               : ZT_GGUF_F32};
    char others[80];
    zt_err rc;

    zt_gguf_init(&c.out);
    rc = items ? convert(&c, to, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", s->path);
    if (!rc) {
        say_in_what(&c, others, sizeof(others));
        printf("%s: %d tensors in %s%s, of type %s; without a tokenizer, which zlaunch "
               "does not "
               "export yet: llama.cpp takes token ids, or texts once its own tools have "
               "added "
               "one\n",
               to, c.num, type, others, c.kind->arch);
    }
    if (!rc)
        zt_source_tell_lost(s, to, type);
    zt_gguf_release(&c.out);
    zt_hf_config_close(c.config);
    free(items);
    free(c.freqs);
    return rc;
}
