#include "worker/text/rows/pairs.h"

#include <stdio.h>
#include <string.h>

/* With the columns that there are, as far as they fit. */
static zt_err refuse_row(const json_t *row, const char *column, struct zt_fault *fault)
{
    char names[160] = "";
    const char *key;
    json_t *value;
    size_t at = 0;

    json_object_foreach((json_t *)row, key, value)
    {
        if (at < sizeof(names))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
                                   key);
    }
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "the row has no \"%s\", it has %s: name its columns, "
                        "--source_column and --target_column, or take the row out",
                        column, names);
}

static zt_err put_part(const json_t *row, const char *column, const char *lang,
                       struct zt_buf *out, struct zt_fault *fault)
{
    const json_t *value = json_object_get(row, column);

    if (!value)
        return refuse_row(row, column, fault);
    if (lang && !json_object_get(value, lang))
        return zt_fault_set(fault, ZT_E_FORMAT, "\"%s\" has no language \"%s\"", column,
                            lang);
    if (lang)
        value = json_object_get(value, lang);
    if (!json_is_string(value))
        return zt_fault_set(
            fault, ZT_E_FORMAT, "\"%s\" is no text%s", lang ? lang : column,
            json_is_object(value) ? ": --source_lang and --target_lang say what in it is"
                                  : "");
    return zt_buf_put(out, json_string_value(value), json_string_length(value)) == ZT_OK
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_NOMEM, "no memory for its text");
}

zt_err zt_pair_render_source(const struct zt_text_pair *p, const json_t *row,
                             struct zt_buf *out, struct zt_fault *fault)
{
    return put_part(row, p->source, p->source_lang, out, fault);
}

zt_err zt_pair_render_target(const struct zt_text_pair *p, const json_t *row,
                             struct zt_buf *out, struct zt_fault *fault)
{
    return put_part(row, p->target, p->target_lang, out, fault);
}

zt_err zt_pair_render(const struct zt_text_pair *p, const json_t *row, struct zt_buf *out,
                      size_t *source_bytes, struct zt_fault *fault)
{
    size_t before = zt_buf_used(out);
    zt_err rc = ZT_OK;

    if (p->prefix && zt_buf_put(out, p->prefix, strlen(p->prefix)) != ZT_OK)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "no memory for its text");
    if (!rc)
        rc = zt_pair_render_source(p, row, out, fault);
    *source_bytes = zt_buf_used(out) - before;
    return rc ? rc : zt_pair_render_target(p, row, out, fault);
}
