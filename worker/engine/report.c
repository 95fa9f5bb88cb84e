#include "worker/engine/report.h"

#include "common/loadable.h"
#include "common/json/line.h"
#include "common/options/options.h"
#include "include/zlaunch/plugin.h"
#include "kernels/backend.h"
#include "kernels/cpu/features.h"
#include "worker/comm/mesh/transport.h"
#include "worker/comm/nccl/library.h"
#include "worker/config/run.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <xxhash.h>

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, zt_json_text(text, strlen(text)));
}

/* ------------------------------------------------------------------ libraries */

static json_t *libraries(void)
{
    const dnnl_version_t *dnnl = dnnl_version();
    unsigned hwloc = hwloc_get_api_version(), xx = XXH_versionNumber();
    json_t *o = json_object();
    char text[64];

    snprintf(text, sizeof(text), "%d.%d.%d", dnnl->major, dnnl->minor, dnnl->patch);
    set_text(o, "oneDNN", text);
    set_text(o, "jansson", jansson_version_str());
    set_text(o, "libuv", uv_version_string());
    set_text(o, "libsodium", sodium_version_string());
    snprintf(text, sizeof(text), "%u.%u.%u", xx / 10000, xx / 100 % 100, xx % 100);
    set_text(o, "xxhash", text);
    snprintf(text, sizeof(text), "%u.%u", hwloc >> 16, hwloc >> 8 & 255);
    set_text(o, "hwloc", text);
    return o;
}

/* ------------------------------------------------------------------ backends */

/* Returns the entry, which belongs to the list. */
static json_t *add_backend(json_t *list, const char *name, bool built, bool usable,
                           const char *text)
{
    json_t *o = json_object();

    set_text(o, "name", name);
    json_object_set_new(o, "built", json_boolean(built));
    json_object_set_new(o, "usable", json_boolean(usable));
    set_text(o, "text", text);
    json_array_append_new(list, o);
    return o;
}

/* What to do where a backend that runs want cannot be used; without `required` they do
 * without it. */
static void add_remedy(json_t *backend, bool required, const char *todo)
{
    json_object_set_new(backend, "required", json_boolean(required));
    set_text(backend, "todo", todo);
}

/* The processor as runs from here use it: up to the level of ZLAUNCH_CPU_ISA. What is
 * wrong with other options is not asked here. */
static zt_err limit_processor(struct zt_fault *fault)
{
    struct zt_text_arena arena = {0};
    struct zt_problems ignored;
    zt_args *args = NULL;
    unsigned features = 0;
    zt_err rc = zt_args_open(zt_run_options(), &args, fault);

    if (rc)
        return rc;
    zt_problems_init(&ignored, &arena);
    zt_args_read_env(args, &ignored);
    rc = zt_cpu_features_at(zt_args_value(args, "cpu_isa")->text, &features, fault);
    if (!rc)
        rc = zt_cpu_limit_features(features, fault);
    zt_args_close(args);
    zt_text_arena_release(&arena);
    return rc;
}

/* What comes as an object is reported beside its driver: add_cuda(). */
static void add_kernels(json_t *list)
{
    for (const struct zt_backend_info *b = zt_backends; b->name; b++) {
        struct zt_fault fault = {0};

        if (!b->built_in)
            continue;
        if (b->built_in->runs_on_processor && limit_processor(&fault))
            add_remedy(add_backend(list, b->name, true, false, fault.text), true,
                       "unset ZLAUNCH_CPU_ISA, or give another level");
        else
            add_backend(list, b->name, true, true, b->describe());
    }
}

static void add_mpi(json_t *list)
{
    const struct zt_transport *transport;
    struct zt_fault fault = {0};
    int (*version)(char *, int *), n = 0;
    char text[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of every MPI fits */

    if (zt_transport_load_mpi(&transport, &fault)) {
        add_remedy(
            add_backend(list, "mpi", zt_transport_mpi_is_built(), false, fault.text),
            false,
            "apt install mpich libmpich-dev, then run make; without it several "
            "nodes talk by TCP");
        return;
    }
    snprintf(text, sizeof(text), "%s", transport->name);
    *(void **)&version = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    if (version && version(text, &n) == 0) /* may be asked before MPI starts */
        text[strcspn(text, "\n")] = 0;
    for (char *p = text; *p; p++)
        *p = (char)(*p == '\t' ? ' ' : *p);
    add_backend(list, "mpi", true, true, text);
}

/* ------------------------------------------------------------------ CUDA */

struct cuda {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*count)(int *);
    int (*name)(char *, int, int);
    int (*bytes)(size_t *, int);
};

static bool load_cuda(struct cuda *c)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void **at;
    } symbols[] = {
        {"cuInit", (void **)&c->init},
        {"cuDriverGetVersion", (void **)&c->version},
        {"cuDeviceGetCount", (void **)&c->count},
        {"cuDeviceGetName", (void **)&c->name},
        {"cuDeviceTotalMem_v2", (void **)&c->bytes},
    };

    if (!lib)
        return false;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        *symbols[i].at = dlsym(lib, symbols[i].name);
        if (!*symbols[i].at)
            return false;
    }
    return true;
}

static void add_device(json_t *list, const char *kind, const char *name, size_t bytes)
{
    json_t *o = json_object();

    set_text(o, "kind", kind);
    set_text(o, "name", name);
    if (bytes)
        json_object_set_new(o, "bytes", json_integer((json_int_t)bytes));
    json_array_append_new(list, o);
}

/* The driver and its devices, asked without the backend: one may be there alone. */
static void describe_driver(json_t *devices, char *text, size_t cap)
{
    struct cuda c;
    int version = 0, num = 0, rc;
    char name[256];

    if (!load_cuda(&c)) {
        snprintf(text, cap, "no driver (libcuda.so.1) here");
        return;
    }
    rc = c.init(0);
    if (rc == 0)
        rc = c.count(&num);
    c.version(&version);
    if (rc)
        snprintf(text, cap, "the driver (CUDA %d.%d) refuses: error %d", version / 1000,
                 version % 1000 / 10, rc);
    else
        snprintf(text, cap, "driver for CUDA %d.%d, %d device%s", version / 1000,
                 version % 1000 / 10, num, num == 1 ? "" : "s");
    for (int i = 0; !rc && i < num; i++) {
        size_t bytes = 0;

        if (c.name(name, sizeof(name), i) == 0 && c.bytes(&bytes, i) == 0)
            add_device(devices, "cuda", name, bytes);
    }
}

static void add_cuda(json_t *backends, json_t *devices)
{
    const struct zt_backend_info *info = zt_backend_lookup("cuda");
    const struct zt_backend *b;
    struct zt_fault fault = {0};
    char driver[256], text[1024];
    bool usable;

    describe_driver(devices, driver, sizeof(driver));
    usable = zt_backend_find(info->name, &b, &fault) == ZT_OK;
    snprintf(text, sizeof(text), "%s%s%s", driver, usable ? "" : "; ",
             usable ? "" : fault.text);
    add_backend(backends, info->name, zt_backend_is_built(info), usable, text);
}

static void add_nccl(json_t *backends)
{
    bool built = zt_nccl_is_built();
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*get)(int *) = NULL, version = 0;
    char text[128] = "no libnccl.so.2 here; needed between GPUs alone";

    if (lib)
        *(void **)&get = dlsym(lib, "ncclGetVersion");
    if (get && get(&version) == 0)
        snprintf(text, sizeof(text), "NCCL %d.%d.%d is here; used between GPUs",
                 version / 10000, version / 100 % 100, version % 100);
    add_backend(backends, "nccl", built, built && version > 0, text);
}

static void add_processor(json_t *devices)
{
    char line[512], name[256] = "processor";
    FILE *f = fopen("/proc/cpuinfo", "re");

    while (f && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');

        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f)
        fclose(f);
    add_device(devices, "cpu", name, 0);
}

json_t *zt_worker_report(void)
{
    json_t *o = json_object(), *backends = json_array(), *devices = json_array();

    add_kernels(backends);
    add_mpi(backends);
    add_processor(devices);
    add_cuda(backends, devices);
    add_nccl(backends);
    set_text(o, "version", ZT_VERSION);
    json_object_set_new(o, "plugin_abi",
                        json_sprintf("%u.%u", ZT_ABI_MAJOR, ZT_ABI_MINOR));
    set_text(o, "compiler", __VERSION__);
    set_text(o, "glibc", gnu_get_libc_version());
    json_object_set_new(o, "libraries", libraries());
    json_object_set_new(o, "backends", backends);
    json_object_set_new(o, "devices", devices);
    return o;
}
