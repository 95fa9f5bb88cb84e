/*
 * config.h -- a DeepSpeed config file against the table of keys, and the resolved tree.
 *
 *      file --parse--> tree --walk with the table--> items --resolve--> zt_run
 *                                                         \--> resolved tree, to print
 *
 * An item is one value of the file with its key's row: type-checked, spelled canonically
 * (5e8 is 500000000, "true" is true), under the key's documented path whatever alias or
 * old place it was written at.
 * Ownership: everything lives in the config's zt_text_arena.
 * Threads:   one, then const.
 */
#ifndef WORKER_CONFIG_CONFIG_H
#define WORKER_CONFIG_CONFIG_H

#include "common/json/tree.h"
#include "common/options/options.h"
#include "worker/config/schema/schema.h"

struct zt_item {
    struct zt_item *next;
    const struct zt_key *key;
    const char *path;       /* "zero_optimization.stage"; user-chosen names filled in */
    const char *steps;      /* the same with '\x1f' for '.': names may hold dots */
    struct zt_jnode *value; /* canonical; the string "auto" where the file says so */
    const char *where;      /* "ds.json:3:14" */
    bool is_auto;
};

struct zt_config {
    struct zt_text_arena arena;
    struct zt_problems report;
    const char *file; /* as messages call it; NULL: there is none */
    struct zt_jnode *root;
    struct zt_item *items, **items_end; /* in the order of the file */
    zt_args *args, *model_args;         /* of the command line */
    struct zt_jnode *resolved;
};

void zt_config_init(struct zt_config *c);
void zt_config_release(struct zt_config *c);

/*
 * Read and check: a path, or the JSON text itself, as it is or in URL-safe base64. Every
 * problem goes to c->report: ZT_E_NOINPUT for a file that is not there, else ZT_E_CONFIG.
 */
void zt_config_read(struct zt_config *c, const char *path);
/* The same from memory; `name` stands for the file. */
void zt_config_read_text(struct zt_config *c, const char *name, const char *text,
                         size_t n);

/* A key that an option says, beside those of the file, which is read first. */
void zt_config_read_key(struct zt_config *c, const struct zt_foreign_key *key);

/* NULL: not in the file. */
const struct zt_item *zt_config_find(const struct zt_config *c, const char *path);
/* Take a value of the file as its row wants it, into item->value; notes what is odd.
 * False after a problem (or for a null that means: not set). */
bool zt_config_convert(struct zt_config *c, struct zt_item *item, bool strict);
/* Is v in a range as the tables write it, "[0,1)"? NULL: any is. */
bool zt_range_has(const char *range, double v);
/* Problems of status: values that this version does not do. */
void zt_config_check_status(struct zt_config *c, const struct zt_item *item);

/* Hand the items of the "zlaunch" section to c->args and c->model_args. */
void zt_config_to_args(struct zt_config *c);

/* Put a value into the resolved tree, replacing one that is there; `origin` is printed
 * behind it. Objects on the way are made. */
void zt_config_set(struct zt_config *c, const char *path, struct zt_jnode *value,
                   const char *origin);

/* Complete the resolved tree: run options without a DeepSpeed key, then whatever else the
 * file has. Once, before printing. */
void zt_config_complete(struct zt_config *c);

/* The table of keys for the manual, section 5 (roff), and for docs/CONFIG.md. */
void zt_config_print_man(FILE *out);
void zt_config_print_markdown(FILE *out);
/* Parts of it: the optimizers and schedules that are built, from their rows. */
void zt_config_print_optim_markdown(FILE *out);
void zt_config_print_optim_man(FILE *out);

#endif
