#include "common/options/struct_member.h"

#include <assert.h>
#include <string.h>

bool zt_enum_word_find(const struct zt_enum_word *words, const char *text, int *out)
{
    for (const struct zt_enum_word *w = words; w->word; w++)
        if (!strcmp(w->word, text)) {
            *out = w->value;
            return true;
        }
    return false;
}

void zt_struct_member_set(const struct zt_struct_member *s, void *base,
                          const struct zt_value *v)
{
    void *at = (char *)base + s->offset;
    int word;

    switch (s->type) {
    case ZT_MEMBER_NONE:
        break;
    case ZT_MEMBER_BOOL:
        *(bool *)at = v->boolean;
        break;
    case ZT_MEMBER_INT:
        *(int *)at = (int)v->integer;
        break;
    case ZT_MEMBER_INT64:
        *(int64_t *)at = v->integer;
        break;
    case ZT_MEMBER_DOUBLE:
        *(double *)at = v->real;
        break;
    case ZT_MEMBER_STRING:
        *(const char **)at = v->text;
        break;
    case ZT_MEMBER_LIST:
        *(const char *const **)at = v->list;
        break;
    case ZT_MEMBER_ENUM:
        /* the parser takes no other word than the row's choices, which all have one */
        if (v->text && zt_enum_word_find(s->words, v->text, &word))
            memcpy(at, &word, sizeof(word));
        else
            assert(!v->text);
        break;
    }
}
