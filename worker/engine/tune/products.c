#include "worker/engine/tune/products.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/engine/agree.h"

#define MOST_BYTES ((size_t)16 << 20) /* of the file */

/* The whole file; *out stays NULL where there is none yet. */
static zt_err read_choices(const char *path, char **out, struct zt_fault *fault)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t n = 0;
    bool ok;

    if (!f && errno == ENOENT)
        return ZT_OK;
    if (!f)
        return zt_fault_set(fault, ZT_E_NOINPUT, "--product_tuning %s: %s", path,
                            strerror(errno));
    text = malloc(MOST_BYTES + 1);
    if (text)
        n = fread(text, 1, MOST_BYTES + 1, f);
    ok = text && !ferror(f) && n <= MOST_BYTES;
    fclose(f);
    if (!ok || memchr(text, 0, n)) {
        free(text);
        return zt_fault_set(
            fault, text ? ZT_E_FORMAT : ZT_E_NOMEM, "--product_tuning %s: %s", path,
            text ? "not what an earlier run has written: remove it" : "no host memory");
    }
    text[n] = 0;
    *out = text;
    return ZT_OK;
}

static zt_err write_choices(const char *path, const char *text, struct zt_fault *fault)
{
    struct zt_atomic_file f = {.fd = -1};
    size_t n = strlen(text);
    zt_err rc = zt_atomic_file_open(&f, path, (int64_t)n, fault);

    if (!rc)
        rc = zt_atomic_file_write(&f, text, n, fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    return rc;
}

/* What rank 0 does: the choices of all products, in the file as well. */
static zt_err find_choices(struct zt_engine *e, const struct zt_memory_plan_inputs *in,
                           char **out, struct zt_fault *fault)
{
    const char *path = e->run->product_tuning;
    struct zt_memory_plan_inputs noted = *in;
    struct zt_products products = {.at = NULL};
    struct zt_memory_plan plan;
    char *known = NULL;
    zt_err rc = read_choices(path, &known, fault);

    noted.products = &products;
    if (!rc)
        rc = zt_memory_plan_make(&noted, &plan, fault);
    if (!rc && products.incomplete)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "the products of a step: no host memory");
    if (!rc)
        rc = e->backend->tune(e->device, products.at, products.num, known, out, fault);
    if (!rc && (!known || strcmp(known, *out) != 0))
        rc = write_choices(path, *out, fault);
    free(known);
    zt_products_release(&products);
    return rc;
}

struct tuning_outcome {
    int64_t rc, bytes;
};

/* *text of rank 0 on all ranks. */
static zt_err share_choices(struct zt_engine *e, zt_err mine, char **text,
                            struct zt_fault *fault)
{
    struct tuning_outcome o = {mine, *text ? (int64_t)strlen(*text) + 1 : 0};
    bool first = e->run->rank == 0;
    zt_err rc =
        zt_broadcast(e->comm, &o, sizeof(o), ZT_U8, 0, first && mine ? NULL : fault);

    if (rc || mine)
        return mine ? mine : rc;
    if (o.rc)
        return zt_fault_set(fault, ZT_E_PEER,
                            "rank 0 has not tuned the products; its error says why");
    if (!first)
        *text = calloc(1, (size_t)o.bytes);
    if (!*text)
        return zt_fault_set(fault, ZT_E_NOMEM, "the choices of products: no host memory");
    return zt_broadcast(e->comm, *text, (size_t)o.bytes, ZT_U8, 0, fault);
}

zt_err zt_engine_tune_products(struct zt_engine *e,
                               const struct zt_memory_plan_inputs *in,
                               struct zt_fault *fault)
{
    char *text = NULL;
    zt_err rc = ZT_OK;

    if (!e->run->product_tuning)
        return ZT_OK;
    if (!e->backend->tune) {
        if (e->run->rank == 0)
            zt_info("products", "--product_tuning is for GPUs: it has no effect on %s",
                    e->backend->name);
        return ZT_OK;
    }
    zt_event_phase("tuning matrix products");
    if (e->run->rank == 0)
        rc = find_choices(e, in, &text, fault);
    rc = share_choices(e, rc, &text, fault);
    if (!rc)
        rc = e->backend->use_tuning(e->device, text, fault);
    if (!rc)
        rc = zt_agree(e->comm, "the tuning of products", text, fault);
    free(text);
    return rc;
}
