/*
 * folder.c -- folders from before tokenizer.json: vocab.json with merges.txt, or vocab.txt.
 *
 * Their tokenizer is code of its class; what that code amounts to is written here as the
 * JSON that it would be. Classes whose code is not known are refused.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/mapped_file.h"
#include "worker/text/pipeline.h"

#define QWEN2                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

struct folder {
    const char *path;
    json_t *config; /* of zt_folder_settings, or NULL */
    struct zt_fault *fault;
};

static zt_err no_memory(const struct folder *f)
{
    return zt_fault_set(f->fault, ZT_E_NOMEM, "%s: no memory", f->path);
}

json_t *zt_folder_load(const char *folder, const char *name, bool needed, zt_err *rc,
                       struct zt_fault *fault)
{
    char *path = NULL;
    json_error_t why;
    json_t *json = NULL;

    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        *rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
        return NULL;
    }
    if (needed || access(path, F_OK) == 0) {
        json = json_load_file(path, 0, &why);
        /* transformers writes 10^30 for "no longest text" */
        if (!json && why.text[0] && json_error_code(&why) == json_error_numeric_overflow)
            json = json_load_file(path, JSON_DECODE_INT_AS_REAL, &why);
        if (!json && !why.text[0]) /* jansson has no words for it */
            *rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
        else if (!json)
            *rc = zt_fault_set(fault, ZT_E_FORMAT, "%s:%d: %s", path, why.line, why.text);
    }
    free(path);
    return json;
}

static json_t *load(const struct folder *f, const char *name, bool needed, zt_err *rc)
{
    return zt_folder_load(f->path, name, needed, rc, f->fault);
}

json_t *zt_folder_settings(const char *folder, zt_err *rc, struct zt_fault *fault)
{
    json_t *config = zt_folder_load(folder, "tokenizer_config.json", false, rc, fault);
    json_t *special =
        *rc || json_object_get(config, "added_tokens_decoder")
            ? NULL
            : zt_folder_load(folder, "special_tokens_map.json", false, rc, fault);

    if (!*rc && special && !config)
        return special;
    if (special && json_object_update(config, special))
        *rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    json_decref(special);
    if (!*rc)
        return config;
    json_decref(config);
    return NULL;
}

/* What a line of a text file is; the lines are counted from 0. */
typedef zt_err (*take_line)(const struct folder *f, const char *line, size_t n,
                            int64_t number, json_t *into);

static zt_err load_lines(const struct folder *f, const char *name, take_line take,
                         json_t *into)
{
    struct zt_mapping m = {0};
    char *path = NULL;
    int64_t number = 0;
    zt_err rc;

    if (asprintf(&path, "%s/%s", f->path, name) < 0)
        return no_memory(f);
    rc = zt_mapping_open(path, &m, f->fault);
    for (size_t at = 0; !rc && at < m.bytes; number++) {
        const char *line = (const char *)m.data + at;
        const char *end = memchr(line, '\n', m.bytes - at);
        size_t n = end ? (size_t)(end - line) : m.bytes - at;

        at += n + (end != NULL);
        n -=
            end && n && line[n - 1] == '\r'; /* of a file with the line ends of Windows */
        rc = take(f, line, n, number, into);
    }
    zt_mapping_release(&m);
    free(path);
    return rc;
}

static zt_err take_merge(const struct folder *f, const char *line, size_t n,
                         int64_t number, json_t *into)
{
    (void)number;
    if (n >= 8 && strncmp(line, "#version", 8) == 0)
        return ZT_OK;
    if (json_array_append_new(into, json_stringn(line, n)) < 0)
        return zt_fault_set(f->fault, ZT_E_FORMAT, "%s/merges.txt:%lld: is no UTF-8",
                            f->path, (long long)number + 1);
    return ZT_OK;
}

/* A token that stands twice has the id of its last line. */
static zt_err take_token(const struct folder *f, const char *line, size_t n,
                         int64_t number, json_t *into)
{
    char *token = strndup(line, n);
    int bad;

    if (!token)
        return no_memory(f);
    bad = json_object_set_new(into, token, json_integer(number));
    free(token);
    if (bad)
        return zt_fault_set(f->fault, ZT_E_FORMAT, "%s/vocab.txt:%lld: is no UTF-8",
                            f->path, (long long)number + 1);
    return ZT_OK;
}

/* ---- special tokens ---- */

const char *zt_folder_token_text(const json_t *v)
{
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* "sep_token": its text, or NULL. */
static const char *role_text(const struct folder *f, const char *role)
{
    return zt_folder_token_text(json_object_get(f->config, role));
}

/* Of "[SEP]": whether another token has its role. */
static bool is_replaced(const struct folder *f, const char *own)
{
    static const char *const roles[][2] = {{"[UNK]", "unk_token"},
                                           {"[SEP]", "sep_token"},
                                           {"[PAD]", "pad_token"},
                                           {"[CLS]", "cls_token"},
                                           {"[MASK]", "mask_token"}};

    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (strcmp(roles[i][0], own) == 0)
            return role_text(f, roles[i][1]) &&
                   strcmp(role_text(f, roles[i][1]), own) != 0;
    return false;
}

static zt_err add_special(const struct folder *f, const json_t *vocab, const char *text,
                          const json_t *settings, bool needed, json_t *added)
{
    const json_t *id = json_object_get(vocab, text);
    const json_t *other;
    json_t *entry;
    size_t i;

    json_array_foreach(
        added, i, other) if (strcmp(json_string_value(json_object_get(other, "content")),
                                    text) == 0) return ZT_OK;
    if (!id)
        return needed ? zt_fault_set(f->fault, ZT_E_FORMAT,
                                     "%s: its special token \"%s\" is not in its "
                                     "vocabulary; a tokenizer.json beside it would say "
                                     "its id",
                                     f->path, text)
                      : ZT_OK;
    entry = json_object();
    for (const char *const *key =
             (const char *const[]){"lstrip", "rstrip", "single_word", "normalized", NULL};
         json_is_object(settings) && *key; key++)
        if (json_object_get(settings, *key))
            json_object_set(entry, *key, json_object_get(settings, *key));
    if (json_object_set(entry, "id", (json_t *)id) ||
        json_object_set_new(entry, "content", json_string(text)) ||
        json_object_set_new(entry, "special", json_true()) ||
        json_array_append_new(added, entry))
        return no_memory(f);
    return ZT_OK;
}

/* By the two files, else those that the class has by itself. */
static zt_err add_specials(const struct folder *f, const json_t *vocab,
                           const char *const *own, json_t *added)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(names) / sizeof(*names); i++) {
        const json_t *v = json_object_get(f->config, names[i]);

        if (zt_folder_token_text(v))
            rc = add_special(f, vocab, zt_folder_token_text(v), v, true, added);
    }
    for (; !rc && *own; own++)
        if (!is_replaced(f, *own))
            rc = add_special(f, vocab, *own, NULL, false, added);
    return rc;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

    return n > 0 && n < (int)sizeof(path) && access(path, F_OK) == 0;
}

static zt_err check_others(const struct folder *f)
{
    static const char *const keys[] = {"added_tokens_decoder",
                                       "additional_special_tokens"};
    bool there = has_file(f->path, "added_tokens.json");

    for (int i = 0; i < 2; i++)
        there |= json_array_size(json_object_get(f->config, keys[i])) ||
                 json_object_size(json_object_get(f->config, keys[i]));
    if (there)
        return zt_fault_set(f->fault, ZT_E_FORMAT,
                            "%s: has tokens added to its vocabulary and no "
                            "tokenizer.json, which would say how they are found; write "
                            "one: AutoTokenizer.from_pretrained(F).save_pretrained(F)",
                            f->path);
    return ZT_OK;
}

/* ---- classes ---- */

static bool flag(const struct folder *f, const char *key, bool absent)
{
    const json_t *v = json_object_get(f->config, key);

    return json_is_boolean(v) ? json_is_true(v) : absent;
}

static json_t *gpt2(const struct folder *f, json_t *vocab, json_t *merges)
{
    int space = flag(f, "add_prefix_space", false);

    return json_pack("{s:{s:s,s:b},s:{s:s},s:{s:s,s:O,s:O}}", "pre_tokenizer", "type",
                     "ByteLevel", "add_prefix_space", space, "decoder", "type",
                     "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges",
                     merges);
}

static json_t *qwen2(const struct folder *f, json_t *vocab, json_t *merges)
{
    int space = flag(f, "add_prefix_space", false);

    return json_pack("{s:{s:s},s:{s:s,s:[{s:s,s:{s:s},s:s},{s:s,s:b,s:b}]},s:{s:s},"
                     "s:{s:s,s:O,s:O}}",
                     "normalizer", "type", "NFC", "pre_tokenizer", "type", "Sequence",
                     "pretokenizers", "type", "Split", "pattern", "Regex", QWEN2,
                     "behavior", "Isolated", "type", "ByteLevel", "add_prefix_space",
                     space, "use_regex", 0, "decoder", "type", "ByteLevel", "model",
                     "type", "BPE", "vocab", vocab, "merges", merges);
}

static json_t *special_of(const char *name, const json_t *vocab)
{
    return json_pack("{s:s,s:[O],s:[s]}", "id", name, "ids", json_object_get(vocab, name),
                     "tokens", name);
}

static const char *role(const struct folder *f, const char *name, const char *absent)
{
    const char *text = role_text(f, name);

    return text ? text : absent;
}

static json_t *bert(const struct folder *f, json_t *vocab, json_t *merges)
{
    const json_t *accents = json_object_get(f->config, "strip_accents");
    const char *cls = role(f, "cls_token", "[CLS]"), *sep = role(f, "sep_token", "[SEP]");
    json_t *j =
        json_pack("{s:{s:s,s:b,s:b,s:b},s:{s:s},s:{s:s,s:s},s:{s:s,s:O,s:s,s:s}}",
                  "normalizer", "type", "BertNormalizer", "clean_text", 1,
                  "handle_chinese_chars", flag(f, "tokenize_chinese_chars", true),
                  "lowercase", flag(f, "do_lower_case", true), "pre_tokenizer", "type",
                  "BertPreTokenizer", "decoder", "type", "WordPiece", "prefix", "##",
                  "model", "type", "WordPiece", "vocab", vocab, "unk_token",
                  role(f, "unk_token", "[UNK]"), "continuing_subword_prefix", "##");

    (void)merges;
    if (j && accents)
        json_object_set(json_object_get(j, "normalizer"), "strip_accents",
                        (json_t *)accents);
    if (j && json_object_get(vocab, cls) && json_object_get(vocab, sep))
        json_object_set_new(
            j, "post_processor",
            json_pack(
                "{s:s,s:[{s:{s:s}},{s:{s:s}},{s:{s:s}}],s:[{s:{s:s}},{s:{s:s}},{s:{s:s}}"
                ",{s:{s:s,s:i}},{s:{s:s,s:i}}],s:{s:o,s:o}}",
                "type", "TemplateProcessing", "single", "SpecialToken", "id", cls,
                "Sequence", "id", "A", "SpecialToken", "id", sep, "pair", "SpecialToken",
                "id", cls, "Sequence", "id", "A", "SpecialToken", "id", sep, "Sequence",
                "id", "B", "type_id", 1, "SpecialToken", "id", sep, "type_id", 1,
                "special_tokens", cls, special_of(cls, vocab), sep,
                special_of(sep, vocab)));
    return j;
}

static const struct class
{
    const char *name; /* tokenizer_class, less a "Fast" at its end */
    const char *
        types; /* each between blanks: model_type of a config.json, where no class is named */
    bool merges; /* vocab.json and merges.txt, else vocab.txt */
    json_t *(*make)(const struct folder *f, json_t *vocab, json_t *merges);
    const char *special[6];
} classes[] = {
    {"GPT2Tokenizer", " gpt2 ", true, gpt2, {"<|endoftext|>"}},
    {"Qwen2Tokenizer", " qwen2 qwen3 ", true, qwen2, {"<|endoftext|>"}},
    {"BertTokenizer",
     " bert ",
     false,
     bert,
     {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    {"DistilBertTokenizer",
     " distilbert ",
     false,
     bert,
     {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    {"ElectraTokenizer",
     " electra ",
     false,
     bert,
     {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
};

/* Models whose tokenizers have these files, too, and are code of other classes. */
static const char other_types[] =
    " bart blenderbot blenderbot-small roberta deberta longformer led opt mpnet ";

/* By its name, else by the model beside it, else GPT-2's, or BERT's. */
static const struct class *find_class(const struct folder *f, bool merges, zt_err *rc)
{
    const char *name = json_string_value(json_object_get(f->config, "tokenizer_class"));
    json_t *config = name ? NULL : load(f, "config.json", false, rc);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const struct class *found = NULL, *first = NULL;
    size_t n = name ? strlen(name) : 0;
    char among[64];

    if (n > 4 && strcmp(name + n - 4, "Fast") == 0)
        n -= 4;
    snprintf(among, sizeof(among), " %.60s ", type ? type : "");
    for (size_t i = 0; !*rc && !found && i < sizeof(classes) / sizeof(*classes); i++) {
        const struct class *c = &classes[i];

        if (c->merges != merges)
            continue;
        first = first ? first : c;
        if (name ? strlen(c->name) == n && strncmp(c->name, name, n) == 0
                 : strstr(c->types, among) != NULL)
            found = c;
    }
    if (!name && !strstr(other_types, among))
        found = found ? found : first;
    if (!*rc && !found && name)
        *rc = zt_fault_set(
            f->fault, ZT_E_FORMAT,
            "%s/tokenizer_config.json: tokenizer_class %s is not known without a "
            "tokenizer.json; write one: "
            "AutoTokenizer.from_pretrained(F).save_pretrained(F)",
            f->path, name);
    else if (!*rc && !found)
        *rc = zt_fault_set(
            f->fault, ZT_E_FORMAT,
            "%s: the tokenizer of model_type %s (config.json) is not known without "
            "a tokenizer.json; write one: "
            "AutoTokenizer.from_pretrained(F).save_pretrained(F), or name another "
            "tokenizer_class in tokenizer_config.json",
            f->path, type);
    json_decref(config);
    return found;
}

/* Frames that the code of GPT-2's classes would put around a text. */
static zt_err check_frame(const struct folder *f, bool merges)
{
    static const char *const keys[] = {"add_bos_token", "add_eos_token"};

    for (int i = 0; merges && i < 2; i++)
        if (flag(f, keys[i], false))
            return zt_fault_set(
                f->fault, ZT_E_FORMAT,
                "%s/tokenizer_config.json: %s needs a tokenizer.json, which says "
                "where the token goes; write one: "
                "AutoTokenizer.from_pretrained(F).save_pretrained(F)",
                f->path, keys[i]);
    return ZT_OK;
}

static int hash_part(const char *s, size_t n, void *state)
{
    return XXH3_64bits_update(state, s, n) == XXH_OK ? 0 : -1;
}

static zt_err hash_json(const struct folder *f, const json_t *json, uint64_t *hash)
{
    XXH3_state_t *state = XXH3_createState();
    int bad = !state || XXH3_64bits_reset(state) != XXH_OK ||
              json_dump_callback(json, hash_part, state, JSON_COMPACT | JSON_SORT_KEYS);

    if (!bad)
        *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return bad ? no_memory(f) : ZT_OK;
}

static zt_err make(const struct folder *f, bool merges, json_t **out)
{
    zt_err rc = ZT_OK;
    const struct class *c = find_class(f, merges, &rc);
    json_t *vocab = NULL, *list = json_array(), *added = json_array(), *json = NULL;

    if (!rc)
        rc = check_others(f);
    if (!rc)
        rc = check_frame(f, merges);
    if (!rc && merges) {
        vocab = load(f, "vocab.json", true, &rc);
        if (!rc)
            rc = load_lines(f, "merges.txt", take_merge, list);
    } else if (!rc) {
        vocab = json_object();
        rc = load_lines(f, "vocab.txt", take_token, vocab);
    }
    if (!rc)
        rc = add_specials(f, vocab, c->special, added);
    if (!rc) {
        json = c->make(f, vocab, list);
        if (!json || json_object_set(json, "added_tokens", added))
            rc = no_memory(f);
    }
    json_decref(vocab);
    json_decref(list);
    json_decref(added);
    if (rc)
        json_decref(json);
    else
        *out = json;
    return rc;
}

/* Why there is no tokenizer in it. */
static zt_err refuse(const char *path, struct zt_fault *fault)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "%s: there is no such folder; the tokenizer of a model on the "
            "Hugging Face hub is downloaded before (hf download NAME "
            "--local-dir FOLDER)",
            path);
    if (!S_ISDIR(st.st_mode))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: that is a file; name the folder that it is in", path);
    if (access(path, R_OK | X_OK))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    if (has_file(path, "spm.model"))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: spm.model, as DeBERTa has it, is not known without a "
                            "tokenizer.json; write one: "
                            "AutoTokenizer.from_pretrained(F).save_pretrained(F)",
                            path);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "%s: has no tokenizer: neither tokenizer.json, nor "
                        "tokenizer.model or spiece.model, nor vocab.json with "
                        "merges.txt, nor vocab.txt",
                        path);
}

zt_err zt_folder_to_json(const char *folder, json_t **out, uint64_t *hash,
                         struct zt_fault *fault)
{
    struct folder f = {.path = folder, .fault = fault};
    json_t *json = NULL;
    bool merges = has_file(folder, "vocab.json");
    zt_err rc = ZT_OK;

    if (!zt_tokenizer_is_in(folder))
        return refuse(folder, fault);
    f.config = zt_folder_settings(folder, &rc, fault);
    if (!rc)
        rc = make(&f, merges, &json);
    if (!rc)
        rc = hash_json(&f, json, hash);
    if (rc)
        json_decref(json);
    else
        *out = json;
    json_decref(f.config);
    return rc;
}

/* Tokens of classes themselves, whose tokenizer_config.json need not say them. */
static const struct class_tokens {
    const char *class, *model_type; /* config.json's, where no class is named */
    const char *bos, *eos;
} class_tokens[] = {
    {"GPT2Tokenizer", "gpt2", "<|endoftext|>", "<|endoftext|>"},
    {"Qwen2Tokenizer", "qwen2", NULL, "<|endoftext|>"},
    {"Qwen2Tokenizer", "qwen3", NULL, "<|endoftext|>"},
    {"LlamaTokenizer", "llama", "<s>", "</s>"},
    {"LlamaTokenizer", "mistral", "<s>", "</s>"},
    {"GemmaTokenizer", "gemma", "<bos>", "<eos>"},
    {"T5Tokenizer", "t5", NULL, "</s>"},
    {"BartTokenizer", "bart", "<s>", "</s>"},
};

static bool is_class(const struct class_tokens *t, const char *class, const char *type)
{
    size_t n = class ? strlen(class) : 0;

    if (!class)
        return type && strcmp(t->model_type, type) == 0;
    if (n > 4 && strcmp(class + n - 4, "Fast") == 0)
        n -= 4;
    return strlen(t->class) == n && strncmp(t->class, class, n) == 0;
}

static const char *token_of_class(const char *folder, const char *class, bool begins)
{
    struct folder f = {.path = folder};
    zt_err rc = ZT_OK;
    json_t *config = class ? NULL : load(&f, "config.json", false, &rc);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *found = NULL;

    for (size_t i = 0; !found && i < sizeof(class_tokens) / sizeof(*class_tokens); i++)
        if (is_class(&class_tokens[i], class, type))
            found = begins ? class_tokens[i].bos : class_tokens[i].eos;
    json_decref(config);
    return found;
}

/* Of bos_token and eos_token. */
char *zt_folder_token(const char *folder, const char *role)
{
    zt_err rc = ZT_OK;
    json_t *settings = zt_folder_settings(folder, &rc, NULL);
    const char *class = json_string_value(json_object_get(settings, "tokenizer_class"));
    const json_t *said = json_object_get(settings, role);
    const char *text =
        said ? zt_folder_token_text(said)
             : token_of_class(folder, class, strcmp(role, "bos_token") == 0);
    char *token = text ? strdup(text) : NULL;

    json_decref(settings);
    return token;
}

bool zt_folder_leaves_types_out(const char *folder)
{
    struct folder f = {.path = folder};
    zt_err rc = ZT_OK;
    json_t *json = load(&f, "tokenizer_config.json", false, &rc), *name;
    const json_t *names = json_object_get(json, "model_input_names");
    const char *class = json_string_value(json_object_get(json, "tokenizer_class"));
    /* of transformers 5, which has no such input unless told; 4 always has it */
    bool out =
        names ? json_is_array(names) : class && strcmp(class, "TokenizersBackend") == 0;
    size_t i;

    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);

        if (text && strcmp(text, "token_type_ids") == 0)
            out = false;
    }
    json_decref(json);
    return out;
}

/* ---- beside a tokenizer.json ---- */

static zt_err check_token(const struct zt_tokenizer *t, const char *folder,
                          const char *name, const char *text, struct zt_fault *fault)
{
    if (!text || zt_tokenizer_id(t, text) >= 0)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_FORMAT,
        "%s/%s: the token \"%s\" is not in tokenizer.json, where transformers would add "
        "it: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it there",
        folder, name, text);
}

zt_err zt_folder_check_tokens(const char *folder, const struct zt_tokenizer *t,
                              struct zt_fault *fault)
{
    static const char *const roles[] = {"bos_token", "eos_token"};
    static const char *const lists[] = {
        "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"};
    static const char config_name[] = "tokenizer_config.json";
    static const char added_name[] = "added_tokens.json";
    struct folder f = {.path = folder, .fault = fault};
    zt_err rc = ZT_OK;
    json_t *config = load(&f, config_name, false, &rc), *one;
    json_t *added = rc ? NULL : load(&f, added_name, false, &rc);
    json_t *settings = rc ? NULL : zt_folder_settings(folder, &rc, fault);
    const char *key;
    size_t i;

    for (i = 0; !rc && i < sizeof(roles) / sizeof(*roles); i++) {
        json_t *said = json_object_get(settings, roles[i]);
        bool of_config = json_equal(said, json_object_get(config, roles[i]));

        rc = check_token(t, folder, of_config ? config_name : "special_tokens_map.json",
                         zt_folder_token_text(said), fault);
    }
    json_decref(settings);
    for (size_t k = 0; k < sizeof(lists) / sizeof(*lists); k++) {
        json_t *list = json_object_get(config, lists[k]);

        json_object_foreach(list, key, one) if (!rc) rc =
            check_token(t, folder, config_name, zt_folder_token_text(one), fault);
        json_array_foreach(list, i, one) if (!rc) rc =
            check_token(t, folder, config_name, zt_folder_token_text(one), fault);
    }
    json_object_foreach(added, key, one) if (!rc) rc =
        check_token(t, folder, added_name, key, fault);
    json_decref(config);
    json_decref(added);
    return rc;
}
