/* batch.c -- declaring the fields of a model's batches, and their sizes. */
#include "worker/autograd/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/abi.h"
#include "worker/autograd/model_private.h"

int zt_batch_find(const struct zt_batch_layout *l, const char *name)
{
    for (int i = 0; i < l->num; i++)
        if (strcmp(l->fields[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- sizes ---- */

int zt_field_shape(const struct zt_field *f, struct zt_extent e,
                   int64_t shape[ZT_MAX_NDIM])
{
    int n = 0;

    for (; n < ZT_MAX_NDIM && f->shape[n]; n++)
        shape[n] = f->shape[n] == ZT_DIM_B   ? e.B
                   : f->shape[n] == ZT_DIM_T ? e.T
                   : f->shape[n] == ZT_DIM_S ? e.S
                                             : f->shape[n];
    return n;
}

int64_t zt_field_numel(const struct zt_field *f, struct zt_extent e)
{
    int64_t shape[ZT_MAX_NDIM], n = 1;
    int ndim = zt_field_shape(f, e, shape);

    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

size_t zt_field_bytes(const struct zt_field *f, struct zt_extent e)
{
    return (size_t)zt_field_numel(f, e) * zt_dtype_bytes(f->dtype);
}

bool zt_field_is_of_source(const struct zt_field *f)
{
    for (int i = 0; i < ZT_MAX_NDIM && f->shape[i]; i++)
        if (f->shape[i] == ZT_DIM_S)
            return true;
    return strcmp(f->name, ZT_SOURCE_LENGTHS) == 0;
}

const char *zt_field_text(const struct zt_field *f, char out[96])
{
    size_t at = (size_t)snprintf(out, 96, "%s (", zt_dtype_name(f->dtype));

    for (int i = 0; i < ZT_MAX_NDIM && f->shape[i] && at < 96; i++) {
        const char *comma = i ? ", " : "";

        if (f->shape[i] < 0)
            at += (size_t)snprintf(out + at, 96 - at, "%s%c", comma,
                                   f->shape[i] == ZT_DIM_B   ? 'B'
                                   : f->shape[i] == ZT_DIM_T ? 'T'
                                                             : 'S');
        else
            at += (size_t)snprintf(out + at, 96 - at, "%s%lld", comma,
                                   (long long)f->shape[i]);
    }
    if (at < 96)
        snprintf(out + at, 96 - at, ")");
    return out;
}

/* ---- declaring ---- */

#define MOST_ELEMS ((int64_t)1 << 40) /* of a row's sizes that are not symbols */

/* Why a field cannot be; NULL: it can. */
static const char *fault_of(const struct zt_field *f)
{
    int64_t sizes = 1;
    int n = 0;

    if (f->dtype < 0 || f->dtype >= ZT_NUM_DTYPE)
        return "it has no such dtype";
    if (f->shape[0] != ZT_DIM_B)
        return "its first axis must be ZT_DIM_B: a field has an entry for every row";
    for (n = 1; n < ZT_MAX_NDIM && f->shape[n]; n++) {
        if (f->shape[n] == ZT_DIM_T || f->shape[n] == ZT_DIM_S)
            continue;
        if (f->shape[n] < 0 || f->shape[n] > MOST_ELEMS / sizes)
            return "its axes must be ZT_DIM_B, then ZT_DIM_T, ZT_DIM_S or sizes";
        sizes *= f->shape[n];
    }
    if (!isfinite(f->pad))
        return "its padding must be finite";
    if (f->dtype >= ZT_I32 && f->pad != floor(f->pad))
        return "its padding must be a whole number";
    return NULL;
}

void zt_model_field(zt_model *m, const struct zt_field *field)
{
    struct zt_batch_layout *l = &m->layout;
    uint32_t bytes = field ? field->struct_bytes : 0;
    struct zt_field f;
    const char *why;

    if (!zt_model_may_declare(m, "field"))
        return;
    if (!zt_abi_take(&f, sizeof(f), field, bytes,
                     ZT_ABI_THROUGH(struct zt_field, shape))) {
        zt_model_misuse(m, "a field of %u bytes: make it with ZT_BATCH_FIELD()", bytes);
        return;
    }
    why = f.name && *f.name ? fault_of(&f) : "it has no name";
    if (why)
        zt_model_misuse(m, "field %s: %s", f.name ? f.name : "?", why);
    else if (zt_batch_find(l, f.name) >= 0)
        zt_model_misuse(m, "two fields are called %s", f.name);
    else if (l->num == ZT_MAX_FIELDS)
        zt_model_misuse(m, "field %s: a model has %d fields at most", f.name,
                        ZT_MAX_FIELDS);
    else if (!(f.name = strdup(f.name)))
        zt_model_misuse(m, "no host memory for a field");
    else
        l->fields[l->num++] = f;
}

void zt_model_language_fields(zt_model *m)
{
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKENS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TARGETS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true,
                                     .label = true, .pad = ZT_IGNORE_TARGET));
}

void zt_model_packed_fields(zt_model *m)
{
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_POSITIONS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_SEGMENT_BEGIN, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
}

void zt_model_pair_fields(zt_model *m, int32_t start)
{
    if (!zt_model_status(m) && start < 0)
        zt_model_misuse(m, "decoder_start_token_id %d is no token", (int)start);
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_SOURCE, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_S}, .required = true));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_SOURCE_LENGTHS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B}, .required = true));
    zt_model_language_fields(m);
    m->layout.start = start;
}

void zt_model_set_loss_divisor(zt_model *m, zt_divisor divisor, const char *field)
{
    struct zt_model_private *priv = m->priv;

    if (zt_model_status(m))
        return;
    if ((unsigned)divisor > ZT_DIVISOR_FIELD_SUM) {
        zt_model_misuse(m, "there is no loss divisor %d", (int)divisor);
    } else if ((divisor == ZT_DIVISOR_FIELD_SUM) != (field != NULL) &&
               divisor != ZT_DIVISOR_TARGETS) {
        zt_model_misuse(m, "the loss divisor %s",
                        field ? "of rows has no field"
                              : "of a field's sum needs a field");
    } else {
        free(priv->divisor_field);
        priv->divisor_field = field ? strdup(field) : NULL;
        m->layout.divisor = divisor;
        if (field && !priv->divisor_field)
            zt_model_misuse(m, "no host memory for the name of a field");
    }
}

/* The field that the divisor counts. */
static void find_divisor(struct zt_model *m)
{
    struct zt_batch_layout *l = &m->layout;
    const char *name = m->priv->divisor_field ? m->priv->divisor_field : ZT_TARGETS;
    int i = zt_batch_find(l, name);

    l->divisor_field = l->divisor == ZT_DIVISOR_ROWS ? -1 : i;
    if (l->divisor == ZT_DIVISOR_ROWS)
        return;
    if (i < 0)
        zt_model_misuse(m,
                        "the loss is divided by what field %s holds, but there is "
                        "no such field: see zt_model_set_loss_divisor()",
                        name);
    else if (!l->fields[i].required)
        zt_model_misuse(
            m, "the loss is divided by what field %s holds: it must be required", name);
    else if (l->divisor == ZT_DIVISOR_TARGETS
                 ? l->fields[i].dtype != ZT_I32
                 : l->fields[i].dtype != ZT_I32 && l->fields[i].dtype != ZT_F32)
        zt_model_misuse(m, "the loss cannot be divided by field %s, which is %s", name,
                        zt_dtype_name(l->fields[i].dtype));
}

void zt_batch_finish(struct zt_model *m)
{
    if (!m->layout.num)
        zt_model_language_fields(m);
    if (zt_batch_find(&m->layout, ZT_SOURCE) < 0)
        m->layout.start = -1;
    if (!zt_model_status(m))
        find_divisor(m);
}

void zt_batch_release(struct zt_batch_layout *l)
{
    for (int i = 0; i < l->num; i++)
        free((char *)l->fields[i].name);
    l->num = 0;
}
