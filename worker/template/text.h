/* text.h -- of the room: what methods and filters of text share. */
#ifndef WORKER_TEMPLATE_TEXT_H
#define WORKER_TEMPLATE_TEXT_H

#include "worker/template/private.h"

enum zt_strip_sides { ZT_STRIP_LEFT = 1, ZT_STRIP_RIGHT = 2, ZT_STRIP_BOTH = 3 };

/* Without white space, or the characters of `chars` (NULL: white space), at its ends. */
json_t *zt_template_strip(struct zt_template_run *r, const json_t *text,
                          const json_t *chars, enum zt_strip_sides sides);
/* Python's replace(from, to), at most `count` times; < 0: all. */
json_t *zt_template_replace(struct zt_template_run *r, int line, const json_t *text,
                            const json_t *from, const json_t *to, json_int_t count);

typedef enum zt_letters {
    ZT_LETTERS_LOWER,
    ZT_LETTERS_UPPER,
    ZT_LETTERS_CAPITALIZED, /* the first letter of the text upper, the others lower */
    ZT_LETTERS_TITLE,       /* of each word */
    ZT_LETTERS_TITLE_FILTER /* of what blanks and - ( { [ < divide, as Jinja's filter */
} zt_letters;

/* Refused where the text has letters beyond ASCII. */
json_t *zt_template_letters(struct zt_template_run *r, int line, const json_t *text,
                            zt_letters how);

/* The value of an argument by its place, or its keyword; NULL: not given. Evaluates it. */
json_t *zt_template_argument(struct zt_template_run *r, const struct zt_expr *x,
                             int place, const char *keyword);
/* Whether all arguments are among `names`, those that `what` takes by place or keyword, blanks in
 * between. Fails, and is false, where one is not: it would be passed over. */
bool zt_template_takes(struct zt_template_run *r, const struct zt_expr *x,
                       const char *what, const char *names);
bool zt_template_is_text(const struct zt_template_run *r, const json_t *v);
bool zt_template_is_white(const char *s, size_t n); /* a character, as str.isspace() */

#endif
