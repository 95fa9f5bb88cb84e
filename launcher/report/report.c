#include "launcher/report/report.h"

#include "common/human.h"
#include "common/cores/cores.h"
#include "common/json/line.h"
#include "common/message/render.h"
#include "launcher/report/private.h"
#include "launcher/start/program.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <libssh2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <uv.h>

#define WORKER_S 20 /* to load libraries and ask a driver */

extern char **environ;

/* ------------------------------------------------------------------ rows */

void zt_host_report_group(struct zt_host_report_out *r, const char *key,
                          const char *title)
{
    r->group = json_object();
    json_object_set_new(r->root, key, r->group);
    if (r->out)
        fprintf(r->out, "%s\n", title);
}

void zt_host_report_row(struct zt_host_report_out *r, const char *key, json_t *value,
                        const char *fmt, ...)
{
    va_list ap;

    json_object_set_new(r->group, key, value);
    if (!r->out)
        return;
    fprintf(r->out, "  %-18s ", key);
    va_start(ap, fmt);
    vfprintf(r->out, fmt, ap);
    va_end(ap);
    fputc('\n', r->out);
}

void zt_host_report_problem(struct zt_host_report_out *r, zt_problem_level level,
                            int code, const char *todo, const char *fmt, ...)
{
    static const char *const names[] = {"note", "warning", "error"};
    char what[ZT_FAULT_TEXT];
    json_t *o = json_object();
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    json_object_set_new(o, "level", json_string(names[level]));
    json_object_set_new(o, "what", zt_json_text(what, strlen(what)));
    json_object_set_new(o, "todo", zt_json_text(todo, strlen(todo)));
    json_array_append_new(r->problems, o);
    if (level == ZT_PROBLEM_ERROR && !r->code)
        r->code = code;
}

static void text_row(struct zt_host_report_out *r, const char *key, const char *text)
{
    zt_host_report_row(r, key, zt_json_text(text, strlen(text)), "%s", text);
}

/* ------------------------------------------------------------------ zlaunch, zworker */

static void report_zlaunch(struct zt_host_report_out *r)
{
    const char *ssh2 = libssh2_version(0);
    struct utsname u;

    zt_host_report_group(r, "zlaunch", "zlaunch");
    text_row(r, "version", ZT_VERSION);
    text_row(r, "compiler", __VERSION__);
    text_row(r, "glibc", gnu_get_libc_version());
    text_row(r, "kernel", uname(&u) == 0 ? u.release : "unknown");
    text_row(r, "libuv", uv_version_string());
    text_row(r, "jansson", jansson_version_str());
    text_row(r, "libssh2", ssh2 ? ssh2 : "unknown");
}

/* What `zworker --print_report` says; NULL: it cannot be run, or says something else. */
static json_t *ask_zworker(char *path)
{
    char *const argv[] = {path, (char *)"--print_report", NULL};
    size_t n = 0;
    char *text = zt_program_output(argv, WORKER_S, &n);
    json_t *o = text ? zt_json_object(text, n) : NULL;

    free(text);
    return o;
}

static void show_backends(struct zt_host_report_out *r, const json_t *worker)
{
    const json_t *b;
    size_t i;

    json_array_foreach(json_object_get(worker, "backends"), i, b)
    {
        bool usable = json_is_true(json_object_get(b, "usable"));
        bool built = json_is_true(json_object_get(b, "built"));
        const char *name = zt_json_get_text(b, "name", "?");
        const char *todo = zt_json_get_text(b, "todo", ""); /* if it is not usable */

        if (r->out)
            fprintf(r->out, "  %-18s %s%s\n", name,
                    usable  ? "usable: "
                    : built ? "not usable: "
                            : "not built: ",
                    zt_json_get_text(b, "text", ""));
        if (json_is_true(json_object_get(b, "required")))
            zt_host_report_problem(r, ZT_PROBLEM_ERROR, 78, todo,
                                   "the %s backend cannot be used: %s", name,
                                   zt_json_get_text(b, "text", ""));
        else if (*todo)
            zt_host_report_problem(r, ZT_PROBLEM_NOTE, 0, todo,
                                   "the %s backend cannot be used", name);
    }
}

static void show_worker(struct zt_host_report_out *r, const json_t *worker)
{
    char human[ZT_HUMAN];
    const json_t *d;
    size_t i;
    const char *name;
    json_t *version;

    fprintf(r->out, "  %-18s %s, plugin ABI %s\n", "version",
            zt_json_get_text(worker, "version", "?"),
            zt_json_get_text(worker, "plugin_abi", "?"));
    fprintf(r->out, "  %-18s %s\n", "compiler", zt_json_get_text(worker, "compiler", ""));
    json_object_foreach(json_object_get(worker, "libraries"), name, version)
    {
        fprintf(r->out, "  %-18s %s\n", name, json_string_value(version));
    }
    fputs("\nBackends\n", r->out);
    show_backends(r, worker);
    fputs("\nDevices\n", r->out);
    json_array_foreach(json_object_get(worker, "devices"), i, d)
    {
        int64_t bytes = zt_json_get_int(d, "bytes", 0);

        fprintf(r->out, "  %-18s %s%s%s\n", zt_json_get_text(d, "kind", ""),
                zt_json_get_text(d, "name", ""), bytes ? ", " : "",
                bytes ? zt_human_bytes(human, (double)bytes) : "");
    }
}

static void report_zworker(struct zt_host_report_out *r)
{
    struct zt_fault fault = {0};
    char *path = NULL;
    json_t *worker;

    zt_host_report_group(r, "zworker", "\nzworker");
    if (zt_find_zworker(&path, &fault)) {
        zt_host_report_problem(r, ZT_PROBLEM_ERROR, zt_err_exit_code(fault.code),
                               "run make, or install zworker beside zlaunch", "%s",
                               fault.text);
        return;
    }
    worker = ask_zworker(path);
    if (worker)
        json_object_update(r->group, worker);
    text_row(r, "path", path);
    if (!worker) {
        zt_host_report_problem(r, ZT_PROBLEM_ERROR, 71,
                               "run it by hand, `zworker --print_report`, to see why; a "
                               "library may be missing (ldd)",
                               "%s cannot be run, or is of another version", path);
    } else if (strcmp(zt_json_get_text(worker, "version", ""), ZT_VERSION) != 0) {
        zt_host_report_problem(r, ZT_PROBLEM_ERROR, 78,
                               "install the same version of both",
                               "zworker is version %s, zlaunch %s",
                               zt_json_get_text(worker, "version", "?"), ZT_VERSION);
    }
    if (worker && r->out)
        show_worker(r, worker);
    else if (worker)
        show_backends(r, worker);
    json_decref(worker);
    free(path);
}

/* ------------------------------------------------------------------ the host */

static json_t *limit_json(uint64_t v)
{
    return v == ZT_NO_LIMIT ? json_null() : json_integer((json_int_t)v);
}

static const char *limit_text(uint64_t v, char out[ZT_HUMAN])
{
    if (v == ZT_NO_LIMIT)
        return "no limit";
    return zt_human_bytes(out, (double)v);
}

static void bytes_row(struct zt_host_report_out *r, const char *key, uint64_t v)
{
    char human[ZT_HUMAN];

    zt_host_report_row(r, key, limit_json(v), "%s", limit_text(v, human));
}

static void count_row(struct zt_host_report_out *r, const char *key, uint64_t v)
{
    if (v == ZT_NO_LIMIT)
        zt_host_report_row(r, key, json_null(), "no limit");
    else
        zt_host_report_row(r, key, json_integer((json_int_t)v), "%llu",
                           (unsigned long long)v);
}

static void report_cores(struct zt_host_report_out *r)
{
    struct zt_fault fault = {0};
    struct zt_cores c;
    cpu_set_t all;
    char list[256];

    if (zt_cores_init(&c, r->launch->core_list, &fault)) {
        zt_host_report_problem(r, ZT_PROBLEM_ERROR, zt_err_exit_code(fault.code),
                               "correct --bind_core_list", "%s", fault.text);
        return;
    }
    CPU_ZERO(&all);
    for (int i = 0; i < c.num; i++)
        CPU_OR(&all, &all, &c.core[i].cpu);
    zt_cores_text(&all, list, sizeof(list));
    zt_host_report_row(r, "cores", json_integer(c.num), "%d (processors %s)", c.num,
                       list);
    zt_host_report_row(r, "numa_nodes", json_integer(c.num_nodes), "%d", c.num_nodes);
    zt_cores_release(&c);
}

static void told(void *ctx, zt_problem_level level, const char *what, const char *todo)
{
    zt_host_report_problem(ctx, level, zt_err_exit_code(ZT_E_SYSTEM), todo, "%s", what);
}

static void report_host(struct zt_host_report_out *r)
{
    struct zt_host_limits h;
    char name[256] = "";

    zt_host_limits_read(&h);
    zt_host_report_group(r, "host", "\nHost");
    gethostname(name, sizeof(name) - 1);
    text_row(r, "name", name);
    report_cores(r);
    bytes_row(r, "memory", h.total_bytes);
    bytes_row(r, "memory_free", h.free_bytes);
    zt_host_report_row(r, "infiniband", json_boolean(h.rdma), "%s",
                       h.rdma ? "yes" : "none");
    zt_host_report_group(r, "limits", "\nLimits");
    count_row(r, "open_files", h.open_files);
    count_row(r, "open_files_hard", h.open_files_hard);
    count_row(r, "processes", h.processes);
    bytes_row(r, "locked_memory", h.locked_bytes);
    bytes_row(r, "address_space", h.address_bytes);
    zt_host_report_row(r, "shared_memory", json_boolean(!h.memfd_error), "%s",
                       h.memfd_error ? strerror(h.memfd_error) : "memory files work");
    bytes_row(r, "dev_shm", h.shm_bytes);
    bytes_row(r, "dev_shm_free", h.shm_free_bytes);
    bytes_row(r, "cgroup_memory", h.cgroup_bytes);
    if (h.cgroup_cpus > 0)
        zt_host_report_row(r, "cgroup_cpus", json_real(h.cgroup_cpus), "%.4g",
                           h.cgroup_cpus);
    else
        zt_host_report_row(r, "cgroup_cpus", json_null(), "no limit");
    text_row(r, "huge_pages", h.huge_pages[0] ? h.huge_pages : "unknown");
    zt_host_limits_judge(&h, told, r);
}

/* ------------------------------------------------------------------ the end */

static void show_problems(const struct zt_host_report_out *r)
{
    const json_t *p;
    size_t i;

    if (!json_array_size(r->problems)) {
        fputs("\nNo problems.\n", r->out);
        return;
    }
    fputs("\nProblems\n", r->out);
    json_array_foreach(r->problems, i, p)
    {
        fprintf(r->out, "  %s: %s\n      to do: %s\n", zt_json_get_text(p, "level", ""),
                zt_json_get_text(p, "what", ""), zt_json_get_text(p, "todo", ""));
    }
}

static void show_json(const struct zt_host_report_out *r, FILE *out)
{
    json_object_set_new(r->root, "usable", json_boolean(r->code == 0));
    json_object_set(r->root, "problems", r->problems);
    json_dumpf(r->root, out, JSON_COMPACT);
    fputc('\n', out);
}

int zt_host_report(const struct zt_launch *l, FILE *out)
{
    struct zt_host_report_out r = {.launch = l,
                                   .root = zt_json_event("report"),
                                   .problems = json_array(),
                                   .out = l->json ? NULL : out};

    report_zlaunch(&r);
    report_zworker(&r);
    report_host(&r);
    zt_host_report_reach(&r);
    if (r.out)
        show_problems(&r);
    else
        show_json(&r, out);
    json_decref(r.root);
    json_decref(r.problems);
    return r.code;
}
