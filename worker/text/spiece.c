/*
 * spiece.c -- folders whose tokenizer is a model file of SentencePiece.
 *
 * With a tokenizer_class that is known, or a config.json of its family, it is what the
 * class's Python code does: added and special tokens are cut out of the text first, and
 * each stretch between them is a text of its own to SentencePiece. They are written here as
 * the JSON that added.c and frame.c read. Without either it is SentencePiece alone, and its
 * control symbols are not found in text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/mapped_file.h"
#include "worker/text/pipeline.h"

static const char *const files[] = {"tokenizer.model", "spiece.model"};
#define NUM_FILES (sizeof(files) / sizeof(*files))

static const char *const special_keys[] = {"bos_token", "eos_token", "unk_token",
                                           "sep_token", "pad_token", "cls_token",
                                           "mask_token"};
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, NUM_SPECIAL };

static const struct spiece_class {
    const char *name,
        *model_type; /* tokenizer_class; config.json's, where it is missing */
    const char *special[NUM_SPECIAL];
    bool add_bos, add_eos; /* where the config does not say */
    bool frame_is_fixed;   /* nor may */
    int64_t extra_ids;
} classes[] = {
    {"T5Tokenizer",
     "t5",
     {[EOS] = "</s>", [UNK] = "<unk>", [PAD] = "<pad>"},
     .add_eos = true,
     .frame_is_fixed = true,
     .extra_ids = 100},
    {"LlamaTokenizer",
     "llama",
     {[BOS] = "<s>", [EOS] = "</s>", [UNK] = "<unk>"},
     .add_bos = true},
    {"GemmaTokenizer",
     "gemma",
     {[BOS] = "<bos>", [EOS] = "<eos>", [UNK] = "<unk>", [PAD] = "<pad>"},
     .add_bos = true},
};

#define NUM_CLASSES (sizeof(classes) / sizeof(*classes))

struct spiece_folder {
    const char *path;
    const struct spiece_class *class;      /* NULL: SentencePiece alone */
    json_t *config, *special, *added_file; /* {} or NULL: not there */
    json_t *added;                         /* a list, as added.c reads it */
    const char *chosen[NUM_SPECIAL];       /* NULL: none */
    int64_t next_id;
    struct zt_tokenizer *t;
    struct zt_fault *fault;
};

static zt_err no_memory(const struct spiece_folder *f)
{
    return zt_fault_set(f->fault, ZT_E_NOMEM, "%s: no host memory", f->path);
}

static const char *find_file(const char *folder)
{
    for (size_t i = 0; i < NUM_FILES; i++) {
        char *path = NULL;
        bool there;

        if (asprintf(&path, "%s/%s", folder, files[i]) < 0)
            return NULL;
        there = access(path, F_OK) == 0;
        free(path);
        if (there)
            return files[i];
    }
    return NULL;
}

bool zt_spiece_is_in(const char *folder)
{
    return find_file(folder) != NULL;
}

/* ---- the class ---- */

static zt_err find_class(struct spiece_folder *f)
{
    const char *name = json_string_value(json_object_get(f->config, "tokenizer_class"));
    size_t n = name ? strlen(name) : 0;
    const char *type;
    json_t *config;
    zt_err rc = ZT_OK;

    if (n > 4 && strcmp(name + n - 4, "Fast") == 0)
        n -= 4;
    for (size_t i = 0; name && i < NUM_CLASSES; i++)
        if (strlen(classes[i].name) == n && strncmp(classes[i].name, name, n) == 0)
            f->class = &classes[i];
    if (name && !f->class)
        return zt_fault_set(f->fault, ZT_E_FORMAT,
                            "%s/tokenizer_config.json: tokenizer_class %s is not known "
                            "without a tokenizer.json; write one: "
                            "AutoTokenizer.from_pretrained(F).save_pretrained(F)",
                            f->path, name);
    if (name)
        return ZT_OK;
    config = zt_folder_load(f->path, "config.json", false, &rc, f->fault);
    type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; type && i < NUM_CLASSES; i++)
        if (strcmp(classes[i].model_type, type) == 0)
            f->class = &classes[i];
    json_decref(config);
    return rc;
}

/* Settings that would make other ids of the same text. */
static zt_err check_config(const struct spiece_folder *f)
{
    const char *key = NULL;

    if (json_is_false(json_object_get(f->config, "add_prefix_space")))
        key = "add_prefix_space";
    if (json_object_size(json_object_get(f->config, "sp_model_kwargs")))
        key = "sp_model_kwargs";
    if (f->class && f->class->frame_is_fixed &&
        (json_object_get(f->config, "add_bos_token") ||
         json_object_get(f->config, "add_eos_token")))
        key = "add_bos_token or add_eos_token";
    if (!key)
        return ZT_OK;
    return zt_fault_set(f->fault, ZT_E_FORMAT,
                        "%s/tokenizer_config.json: %s is not known without a "
                        "tokenizer.json; write one: "
                        "AutoTokenizer.from_pretrained(F).save_pretrained(F)",
                        f->path, key);
}

/* ---- added tokens ---- */

static json_t *find_added(const struct spiece_folder *f, const char *text)
{
    json_t *one;
    size_t i;

    json_array_foreach(f->added, i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "content")), text) == 0)
            return one;
    }
    return NULL;
}

/* `settings`: NULL, or an object with its flags. All are looked for in the text as it came:
 * `normalized` is false. */
static zt_err add(struct spiece_folder *f, const char *text, int64_t id, bool special,
                  const json_t *settings)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    json_t *one = json_object();
    int bad = !one || json_object_set_new(one, "content", json_string(text)) ||
              json_object_set_new(one, "id", json_integer(id)) ||
              json_object_set_new(one, "special", json_boolean(special)) ||
              json_object_set_new(one, "normalized", json_false());

    for (size_t i = 0; !bad && i < 3; i++) {
        json_t *v = json_object_get(settings, flags[i]);

        bad = json_is_boolean(v) && json_object_set(one, flags[i], v);
    }
    if (bad || json_array_append(f->added, one))
        bad = 1;
    json_decref(one);
    if (id >= f->next_id)
        f->next_id = id + 1;
    return bad ? no_memory(f) : ZT_OK;
}

/* In the vocabulary, or behind all others. */
static zt_err add_special(struct spiece_folder *f, const char *text,
                          const json_t *settings)
{
    int32_t id = zt_vocab_id(&f->t->model.vocab, text, strlen(text));
    json_t *there = find_added(f, text);

    if (!there)
        return add(f, text, id >= 0 ? id : f->next_id, true, settings);
    return json_object_set_new(there, "special", json_true()) ? no_memory(f) : ZT_OK;
}

/* {"32000": {"content": ..., "lstrip": ...}, ...} */
static zt_err add_decoder(struct spiece_folder *f, const json_t *decoder)
{
    const char *key;
    json_t *v;
    zt_err rc = ZT_OK;

    json_object_foreach((json_t *)decoder, key, v)
    {
        const char *text = zt_folder_token_text(v);
        char *end;
        long long id = strtoll(key, &end, 10);

        if (!text || end == key || *end || id < 0)
            return zt_fault_set(f->fault, ZT_E_FORMAT,
                                "%s/tokenizer_config.json: added_tokens_decoder: \"%s\" "
                                "is no id of a token",
                                f->path, key);
        rc = add(f, text, id, json_is_true(json_object_get(v, "special")), v);
        if (rc)
            break;
    }
    return rc;
}

/* {"<mask>": 32001, ...} */
static zt_err add_file(struct spiece_folder *f)
{
    const char *text;
    json_t *id;

    json_object_foreach(f->added_file, text, id)
    {
        zt_err rc;

        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return zt_fault_set(f->fault, ZT_E_FORMAT,
                                "%s/added_tokens.json: \"%s\" has no id", f->path, text);
        rc = find_added(f, text) ? ZT_OK
                                 : add(f, text, json_integer_value(id), false, NULL);
        if (rc)
            return rc;
    }
    return ZT_OK;
}

/* T5's sentinels, from the last id down. */
static zt_err add_extra_ids(struct spiece_folder *f)
{
    const json_t *v = json_object_get(f->config, "extra_ids");
    int64_t num = json_is_integer(v) ? json_integer_value(v) : f->class->extra_ids;
    int64_t base = zt_sentencepiece_num(f->t->spiece.model);
    json_t *strip = json_pack("{s:b,s:b}", "lstrip", 1, "rstrip", 1);
    zt_err rc = strip ? ZT_OK : no_memory(f);

    if (!rc && (num < 0 || num > 4096))
        rc = zt_fault_set(f->fault, ZT_E_FORMAT,
                          "%s/tokenizer_config.json: extra_ids %lld is not between 0 and "
                          "4096",
                          f->path, (long long)num);
    for (int64_t i = 0; !rc && f->class->extra_ids && i < num; i++) {
        char text[40];

        snprintf(text, sizeof(text), "<extra_id_%lld>", (long long)i);
        if (!find_added(f, text))
            rc = add(f, text, base + num - 1 - i, true, strip);
    }
    json_decref(strip);
    return rc;
}

static const json_t *setting_of(const struct spiece_folder *f, const char *key)
{
    const json_t *v = json_object_get(f->special, key);

    return v ? v : json_object_get(f->config, key);
}

static zt_err add_specials(struct spiece_folder *f)
{
    const json_t *list = setting_of(f, "additional_special_tokens");
    const json_t *v;
    size_t i;
    zt_err rc = ZT_OK;

    for (int k = 0; !rc && k < NUM_SPECIAL; k++) {
        v = setting_of(f, special_keys[k]);
        f->chosen[k] = v          ? zt_folder_token_text(v)
                       : f->class ? f->class->special[k]
                                  : NULL;
        if (f->chosen[k])
            rc = add_special(f, f->chosen[k], v);
    }
    for (i = 0; !rc && i < json_array_size(list); i++) {
        v = json_array_get(list, i);
        if (!zt_folder_token_text(v))
            return zt_fault_set(f->fault, ZT_E_FORMAT,
                                "%s: additional_special_tokens[%zu] is no token", f->path,
                                i);
        rc = add_special(f, zt_folder_token_text(v), v);
    }
    return rc;
}

static zt_err find_added_tokens(struct spiece_folder *f)
{
    zt_err rc = add_decoder(f, json_object_get(f->config, "added_tokens_decoder"));

    if (!rc)
        rc = add_file(f);
    if (!rc && f->class)
        rc = add_extra_ids(f);
    return rc ? rc : add_specials(f);
}

/* ---- what frames a text ---- */

static bool flag(const struct spiece_folder *f, const char *key, bool absent)
{
    const json_t *v = json_object_get(f->config, key);

    return json_is_boolean(v) ? json_is_true(v) : absent;
}

static int put_item(const struct spiece_folder *f, json_t *single, json_t *tokens, int k)
{
    const json_t *one = f->chosen[k] ? find_added(f, f->chosen[k]) : NULL;

    if (!one)
        return 0;
    return json_array_append_new(
               single, json_pack("{s:{s:s}}", "SpecialToken", "id", f->chosen[k])) ||
           json_object_set_new(tokens, f->chosen[k],
                               json_pack("{s:s,s:[O],s:[s]}", "id", f->chosen[k], "ids",
                                         json_object_get(one, "id"), "tokens",
                                         f->chosen[k]));
}

/* NULL: no memory. */
static json_t *frame_of(const struct spiece_folder *f)
{
    json_t *single = json_array(), *tokens = json_object();
    int bad = 0;

    if (f->class && flag(f, "add_bos_token", f->class->add_bos))
        bad |= put_item(f, single, tokens, BOS);
    bad |= json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (f->class && flag(f, "add_eos_token", f->class->add_eos))
        bad |= put_item(f, single, tokens, EOS);
    if (bad) {
        json_decref(single);
        json_decref(tokens);
        return NULL;
    }
    return json_pack("{s:s,s:o,s:o}", "type", "TemplateProcessing", "single", single,
                     "special_tokens", tokens);
}

/* ---- opening ---- */

static zt_err add_pieces(const struct spiece_folder *f)
{
    const struct zt_sentencepiece *m = f->t->spiece.model;
    zt_err rc = ZT_OK;

    for (int32_t id = 0; !rc && id < zt_sentencepiece_num(m); id++) {
        size_t n;
        const char *text = zt_sentencepiece_piece(m, id, &n);

        rc = zt_vocab_add(&f->t->model.vocab, text, n, id, true);
    }
    return rc ? no_memory(f) : ZT_OK;
}

static zt_err load_model(const struct spiece_folder *f, const char *name)
{
    struct zt_mapping map = {0};
    char *path = NULL;
    zt_err rc;

    if (asprintf(&path, "%s/%s", f->path, name) < 0)
        return no_memory(f);
    rc = zt_mapping_open(path, &map, f->fault);
    if (!rc)
        rc = zt_sentencepiece_parse(path, map.data, map.bytes, &f->t->spiece.model,
                                    f->fault);
    if (!rc)
        f->t->hash = XXH3_64bits(map.data, map.bytes);
    zt_mapping_release(&map);
    free(path);
    return rc;
}

/* The same model with other added tokens is another tokenizer. */
static zt_err hash_rest(const struct spiece_folder *f, const json_t *rest)
{
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return no_memory(f);
    f->t->hash =
        XXH3_64bits_withSeed(text, strlen(text), f->t->hash + f->t->spiece.continues);
    free(text);
    return ZT_OK;
}

static zt_err read_rest(struct spiece_folder *f)
{
    struct zt_setting root = {.file = f->path};
    json_t *rest, *frame;
    zt_err rc;

    if (f->class || json_object_size(f->config) || json_object_size(f->special) ||
        json_object_size(f->added_file)) {
        rc = find_added_tokens(f);
        if (rc)
            return rc;
    }
    f->t->spiece.continues = !flag(f, "legacy", true);
    frame = frame_of(f);
    rest = frame
               ? json_pack("{s:O,s:o}", "added_tokens", f->added, "post_processor", frame)
               : NULL;
    if (!rest)
        return no_memory(f);
    root.value = rest;
    rc = hash_rest(f, rest);
    if (!rc)
        rc = zt_tokenizer_read_around(&root, f->t, f->fault);
    json_decref(rest);
    if (!rc && f->chosen[EOS])
        f->t->end = zt_tokenizer_id(f->t, f->chosen[EOS]);
    else if (!rc)
        f->t->end = zt_sentencepiece_end_id(f->t->spiece.model);
    return rc;
}

zt_err zt_spiece_open(const char *folder, struct zt_tokenizer *t, struct zt_fault *fault)
{
    struct spiece_folder f = {
        .path = folder, .t = t, .fault = fault, .added = json_array()};
    zt_err rc = ZT_OK;

    if (!f.added)
        return no_memory(&f);
    f.config = zt_folder_load(folder, "tokenizer_config.json", false, &rc, fault);
    if (!rc)
        f.special = zt_folder_load(folder, "special_tokens_map.json", false, &rc, fault);
    if (!rc)
        f.added_file = zt_folder_load(folder, "added_tokens.json", false, &rc, fault);
    if (!rc)
        rc = find_class(&f);
    if (!rc)
        rc = check_config(&f);
    if (!rc)
        rc = load_model(&f, find_file(folder));
    if (!rc)
        rc = add_pieces(&f);
    f.next_id = rc ? 0 : zt_sentencepiece_num(t->spiece.model);
    if (!rc)
        rc = read_rest(&f);
    json_decref(f.config);
    json_decref(f.special);
    json_decref(f.added_file);
    json_decref(f.added);
    return rc;
}

/* ---- ids and texts ---- */

zt_err zt_spiece_encode(const struct zt_tokenizer *t, struct zt_sp_work *w,
                        const char *text, const struct zt_text_piece *p,
                        struct zt_buf *ids, uint64_t *replaced, struct zt_fault *fault)
{
    zt_sp_start start = p->first || !t->spiece.continues ? ZT_SP_TEXT : ZT_SP_CONTINUED;
    zt_err rc = zt_sentencepiece_encode(t->spiece.model, w, text + p->at, p->n, start,
                                        ids, replaced);

    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

zt_err zt_spiece_decode(const struct zt_tokenizer *t, struct zt_sp_decoding *d,
                        int32_t id, bool skip_special, struct zt_buf *out,
                        struct zt_fault *fault)
{
    size_t n = 0;
    const char *text = zt_tokenizer_token(t, id, &n);
    zt_err rc;

    if (!text || (skip_special && zt_tokenizer_is_special(t, id)))
        return ZT_OK;
    if (id < t->vocab && t->added_by_id[id] >= 0) {
        rc = zt_sentencepiece_end(d, out);
        if (!rc)
            rc = zt_buf_put(out, text, n);
    } else {
        rc = zt_sentencepiece_put(t->spiece.model, d, id, out);
    }
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}
