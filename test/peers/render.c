/*
 * Renders chat templates for comparison. One JSON object a line of standard input:
 * {"template": "...", "values": {...}}; one line each of standard output: a JSON text, or
 * {"error": "..."}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/template/template.h"

static json_t *answer(const json_t *o)
{
    const json_t *text = json_object_get(o, "template");
    struct zt_template *t = NULL;
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_buf out;
    json_t *a;
    zt_err rc = zt_template_parse("template", json_string_value(text),
                                  json_string_length(text), &t, &fault);

    zt_buf_init(&out, (size_t)1 << 30);
    if (!rc)
        rc = zt_template_render(t, json_object_get(o, "values"), &out, NULL, &fault);
    a = rc ? json_pack("{s:s}", "error", fault.text)
        : zt_buf_used(&out)
            ? json_stringn((const char *)zt_buf_head(&out), zt_buf_used(&out))
            : json_string("");
    zt_buf_release(&out);
    zt_template_close(t);
    return a;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        json_t *o = json_loads(line, 0, NULL), *a = o ? answer(o) : NULL;

        if (!a || json_dumpf(a, stdout, JSON_ENCODE_ANY | JSON_COMPACT)) {
            fprintf(stderr, "render: %s\n", o ? "no answer" : "malformed input");
            return 1;
        }
        putchar('\n');
        json_decref(a);
        json_decref(o);
    }
    free(line);
    return 0;
}
