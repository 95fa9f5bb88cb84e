/*
 * settings.h -- values of a tokenizer's JSON with their place, for messages.
 *
 *      struct zt_setting model = {0};
 *      zt_setting_get(root, "model", &model);        $.model
 *      zt_setting_at(&merges, 3, &merge);            $.model.merges[3]
 *
 * A value knows the one it is in; both live where the caller keeps them. All reading calls
 * refuse what has another type with file and path, ZT_E_FORMAT.
 */
#ifndef WORKER_TEXT_SETTINGS_H
#define WORKER_TEXT_SETTINGS_H

#include <jansson.h>

#include "common/fault.h"

struct zt_setting {
    const struct zt_setting *in; /* NULL: the root */
    const char *file;
    const char *key;
    size_t index; /* where key is NULL */
    const json_t *value;
};

/* "tokenizer.json: $.model.vocab: TEXT"; returns ZT_E_FORMAT. */
zt_err zt_setting_refuse(const struct zt_setting *s, struct zt_fault *fault,
                         const char *fmt, ...) ZT_PRINTF(3, 4);

/* False: `obj` has no such key, or null. */
bool zt_setting_get(const struct zt_setting *obj, const char *key,
                    struct zt_setting *out);
void zt_setting_at(const struct zt_setting *list, size_t i, struct zt_setting *out);

/* An object, with no key but those of `keys` (words, one blank between two). */
zt_err zt_setting_check_keys(const struct zt_setting *obj, const char *keys,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* Members of an object. Where the key is missing or null: `absent`; strings: NULL, unless
 * `needed`. *out points into the JSON. */
zt_err zt_setting_bool(const struct zt_setting *obj, const char *key, bool absent,
                       bool *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_setting_int(const struct zt_setting *obj, const char *key, int64_t absent,
                      int64_t max, int64_t *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_setting_string(const struct zt_setting *obj, const char *key, bool needed,
                         const char **out, size_t *n,
                         struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_setting_list(const struct zt_setting *obj, const char *key, bool needed,
                       struct zt_setting *out, size_t *num,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
