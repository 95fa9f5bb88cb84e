/*
 * Events, and streams other than the main one. These have neither scratch nor workspace,
 * so they run transfers, collectives, and kernels that need none.
 */
#include <stdlib.h>

#include "kernels/cuda/cuda.h"

struct zt_stream_event {
    cudaEvent_t cuda;
};

zt_err zt_cuda_stream_open(struct zt_device *dev, struct zt_stream **out,
                           struct zt_fault *fault)
{
    struct zt_stream *s = static_cast<struct zt_stream *>(calloc(1, sizeof(*s)));
    int least = 0, greatest = 0;
    cudaError_t e;

    *out = NULL;
    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a stream");
    (void)cudaSetDevice(dev->ordinal);
    /* its work is short and others wait for it: it goes before kernels of the main one
     */
    e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&s->cuda, cudaStreamNonBlocking, greatest);
    if (e != cudaSuccess) {
        free(s);
        return zt_cuda_failed("a stream", e, fault);
    }
    *out = s;
    return ZT_OK;
}

void zt_cuda_stream_close(struct zt_device *dev, struct zt_stream *s)
{
    if (!s)
        return;
    (void)cudaSetDevice(dev->ordinal);
    (void)cudaStreamSynchronize(s->cuda);
    (void)cudaStreamDestroy(s->cuda);
    free(s);
}

void *zt_cuda_stream_native(struct zt_device *dev, struct zt_stream *s)
{
    return zt_cuda_stream(dev, s)->cuda;
}

zt_err zt_cuda_event_open(struct zt_device *dev, struct zt_stream_event **out,
                          struct zt_fault *fault)
{
    struct zt_stream_event *v =
        static_cast<struct zt_stream_event *>(calloc(1, sizeof(*v)));
    cudaError_t e;

    *out = NULL;
    if (!v)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for an event");
    (void)cudaSetDevice(dev->ordinal);
    e = cudaEventCreateWithFlags(&v->cuda, cudaEventDisableTiming);
    if (e != cudaSuccess) {
        free(v);
        return zt_cuda_failed("an event", e, fault);
    }
    *out = v;
    return ZT_OK;
}

void zt_cuda_event_close(struct zt_device *dev, struct zt_stream_event *v)
{
    if (!v)
        return;
    (void)cudaSetDevice(dev->ordinal);
    (void)cudaEventDestroy(v->cuda);
    free(v);
}

zt_err zt_cuda_event_record(struct zt_device *dev, struct zt_stream_event *v,
                            struct zt_stream *s, struct zt_fault *fault)
{
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    e = cudaEventRecord(v->cuda, zt_cuda_stream(dev, s)->cuda);
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed("recording an event", e, fault);
}

zt_err zt_cuda_event_wait(struct zt_device *dev, struct zt_stream_event *v,
                          struct zt_stream *s, struct zt_fault *fault)
{
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    e = cudaStreamWaitEvent(zt_cuda_stream(dev, s)->cuda, v->cuda, 0);
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed("waiting for an event", e, fault);
}

zt_err zt_cuda_event_passed(struct zt_device *dev, struct zt_stream_event *v, bool *out,
                            struct zt_fault *fault)
{
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    e = cudaEventQuery(v->cuda);
    *out = e == cudaSuccess;
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no error: or the next launch would report it */
        e = cudaSuccess;
    }
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed("the work of a stream", e, fault);
}
