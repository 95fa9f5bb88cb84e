/*
 * Chat templates: parsed and rendered with a conversation. Whatever is written there, both end,
 * within bounds, and what is refused has its line.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/template/template.h"

static bool spans_are_of(const struct zt_buf *spans, const struct zt_buf *text)
{
    const struct zt_template_span *s = (const void *)zt_buf_head(spans);
    size_t at = 0;

    for (size_t i = 0; i < zt_buf_used(spans) / sizeof(*s); i++) {
        if (s[i].from < at || s[i].to < s[i].from || s[i].to > zt_buf_used(text))
            return false;
        at = s[i].to;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char values[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"be \\u00e9\"}, {\"role\": "
    "\"user\", "
    "\"content\": \" a <think>b</think> \"}, {\"role\": \"assistant\", \"content\": "
    "\"c\", "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, "
    "null]}}}]}], "
    "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_template *t = NULL;
    struct zt_buf out, spans;
    json_t *v;
    char *text = malloc(n ? n : 1); /* nothing behind it may be read */

    if (!text || n > 4096) {
        free(text);
        return 0;
    }
    memcpy(text, data, n);
    v = json_loads(values, 0, NULL);
    zt_buf_init(&out, 1 << 20);
    zt_buf_init(&spans, 1 << 20);
    if (zt_template_parse("fuzz", text, n, &t, &fault) == ZT_OK) {
        if (zt_template_render(t, v, &out, &spans, &fault) ? !fault.text[0]
                                                           : !spans_are_of(&spans, &out))
            abort();
    } else if (strncmp(fault.text, "fuzz:", 5) != 0) {
        abort();
    }
    zt_buf_release(&out);
    zt_buf_release(&spans);
    zt_template_close(t);
    json_decref(v);
    free(text);
    return 0;
}
