/* load_mpi.c -- finds and loads the transport for MPI. */
#include "worker/comm/mesh/transport.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "common/loadable.h"

#define FILE_NAME "backends/mpi.so"

static zt_err check_table(const char *path, const struct zt_transport *w,
                          struct zt_fault *fault)
{
    if (!w)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "comm: %s exports no %s: rebuild it",
                            path, ZT_TRANSPORT_SYMBOL);
    if (w->abi != ZT_TRANSPORT_ABI || w->struct_bytes != sizeof(*w))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: %s is of another version of zlaunch: run make again",
                            path);
    return ZT_OK;
}

/* Where the object is; false: nowhere. */
static bool find_object(char path[ZT_LOADABLE_PATH])
{
    return zt_loadable_find("ZLAUNCH_MPI_BACKEND", FILE_NAME, path, ZT_LOADABLE_PATH);
}

bool zt_transport_mpi_is_built(void)
{
    char path[ZT_LOADABLE_PATH];

    return find_object(path);
}

bool zt_transport_prefers_mpi(void)
{
    static const char *const marks[] = {"PMI_FD", "PMI_RANK", "PMIX_RANK",
                                        "OMPI_COMM_WORLD_SIZE"};
    const char *without = getenv(ZT_TRANSPORT_NO_MPI);
    bool is_started = false;

    if (without && *without)
        return false;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        is_started = is_started || getenv(marks[i]);
    return is_started && zt_transport_mpi_is_built();
}

zt_err zt_transport_load_mpi(const struct zt_transport **out, struct zt_fault *fault)
{
    static const struct zt_transport *loaded;
    const struct zt_transport *w;
    char path[ZT_LOADABLE_PATH];
    void *object;
    zt_err rc;

    if (!loaded) {
        if (!find_object(path))
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "comm: this build has no MPI (%s is not beside the "
                                "program): apt install mpich libmpich-dev, then run make",
                                FILE_NAME);
        /* UCX reads it when loaded: no backtrace where a peer's death makes it abort */
        setenv("UCX_HANDLE_ERRORS", "none", 0);
        setenv("UCX_DEBUG_SIGNO", "0", 0); /* or it takes SIGHUP for itself */
        /* global: Open MPI loads parts of itself that look for its symbols; never
         * unloaded, since an MPI library does not start twice in a process */
        object = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        if (!object)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "comm: MPI cannot be used: %s (is the library it was "
                                "built with installed? apt install mpich)",
                                dlerror());
        w = dlsym(object, ZT_TRANSPORT_SYMBOL);
        rc = check_table(path, w, fault);
        if (rc)
            return rc;
        loaded = w;
    }
    *out = loaded;
    return ZT_OK;
}
