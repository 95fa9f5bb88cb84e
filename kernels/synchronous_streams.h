/*
 * synchronous_streams.h -- streams and events of a synchronous device, which completes its
 * work before a call returns. The handles are empty, as there is never anything to wait for.
 */
#ifndef KERNELS_SYNCHRONOUS_STREAMS_H
#define KERNELS_SYNCHRONOUS_STREAMS_H

#include "kernels/backend.h"

zt_err zt_inorder_stream_open(struct zt_device *dev, struct zt_stream **out,
                              struct zt_fault *fault);
void zt_inorder_stream_close(struct zt_device *dev, struct zt_stream *s);
void *zt_inorder_stream_native(struct zt_device *dev, struct zt_stream *s); /* NULL */
zt_err zt_inorder_event_open(struct zt_device *dev, struct zt_stream_event **out,
                             struct zt_fault *fault);
void zt_inorder_event_close(struct zt_device *dev, struct zt_stream_event *e);
zt_err zt_inorder_event_record(struct zt_device *dev, struct zt_stream_event *e,
                               struct zt_stream *s, struct zt_fault *fault);
zt_err zt_inorder_event_wait(struct zt_device *dev, struct zt_stream_event *e,
                             struct zt_stream *s, struct zt_fault *fault);
zt_err zt_inorder_event_passed(struct zt_device *dev, struct zt_stream_event *e,
                               bool *out, struct zt_fault *fault);

#define ZT_INORDER_MEMBERS                                                               \
    .stream_open = zt_inorder_stream_open, .stream_close = zt_inorder_stream_close,      \
    .stream_native = zt_inorder_stream_native, .event_open = zt_inorder_event_open,      \
    .event_close = zt_inorder_event_close, .event_record = zt_inorder_event_record,      \
    .event_wait = zt_inorder_event_wait, .event_passed = zt_inorder_event_passed

#endif
