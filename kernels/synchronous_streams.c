#include "kernels/synchronous_streams.h"

#include <stdlib.h>

struct zt_stream {
    char none;
};

struct zt_stream_event {
    char none;
};

zt_err zt_inorder_stream_open(struct zt_device *dev, struct zt_stream **out,
                              struct zt_fault *fault)
{
    (void)dev;
    *out = calloc(1, sizeof(**out));
    return *out ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "no memory for a stream");
}

void zt_inorder_stream_close(struct zt_device *dev, struct zt_stream *s)
{
    (void)dev;
    free(s);
}

void *zt_inorder_stream_native(struct zt_device *dev, struct zt_stream *s)
{
    (void)dev;
    (void)s;
    return NULL;
}

zt_err zt_inorder_event_open(struct zt_device *dev, struct zt_stream_event **out,
                             struct zt_fault *fault)
{
    (void)dev;
    *out = calloc(1, sizeof(**out));
    return *out ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "no memory for an event");
}

void zt_inorder_event_close(struct zt_device *dev, struct zt_stream_event *e)
{
    (void)dev;
    free(e);
}

zt_err zt_inorder_event_record(struct zt_device *dev, struct zt_stream_event *e,
                               struct zt_stream *s, struct zt_fault *fault)
{
    (void)dev;
    (void)e;
    (void)s;
    (void)fault;
    return ZT_OK;
}

zt_err zt_inorder_event_wait(struct zt_device *dev, struct zt_stream_event *e,
                             struct zt_stream *s, struct zt_fault *fault)
{
    return zt_inorder_event_record(dev, e, s, fault);
}

zt_err zt_inorder_event_passed(struct zt_device *dev, struct zt_stream_event *e,
                               bool *out, struct zt_fault *fault)
{
    *out = true;
    return zt_inorder_event_record(dev, e, NULL, fault);
}
