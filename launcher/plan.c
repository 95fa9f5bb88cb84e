#include "launcher/plan.h"

#include "common/cores.h"
#include "common/jsonline.h"
#include "launcher/hostfile.h"
#include "launcher/start.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_HOSTFILE "/job/hostfile"
#define MAX_RANKS        4096

/* ------------------------------------------------------------------ hosts */

static bool is_this_host(const char *name)
{
    char own[256] = "";
    size_t n;

    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
        strcmp(name, "::1") == 0)
        return true;
    gethostname(own, sizeof(own) - 1);
    n = strcspn(own, ".");
    return strcmp(name, own) == 0 || (strlen(name) == n && memcmp(name, own, n) == 0);
}

/* No hostfile: this host. Its slots are as many as asked for, or one for each core. */
static zt_err own_hosts(const struct zt_launch *l, struct zt_hosts *out,
                        struct zt_fault *fault)
{
    int slots = l->num_gpus > 0 ? l->num_gpus : 1;
    struct zt_cores cores;
    zt_err rc;

    if (l->include || l->exclude) {
        rc = zt_cores_init(&cores, l->core_list, fault);
        if (rc)
            return rc;
        slots = cores.num;
        zt_cores_release(&cores);
    }
    return zt_hosts_one("localhost", slots, out, fault);
}

static zt_err read_hosts(const struct zt_launch *l, struct zt_hosts *out,
                         struct zt_fault *fault)
{
    if (l->hostfile)
        return zt_hosts_read(l->hostfile, out, fault);
    if (access(DEFAULT_HOSTFILE, R_OK) == 0)
        return zt_hosts_read(DEFAULT_HOSTFILE, out, fault);
    return own_hosts(l, out, fault);
}

/* Hosts that cannot be reached are refused by name. */
static zt_err refuse_remote(const struct zt_hosts *h, struct zt_fault *fault)
{
    char names[512] = "";
    size_t at = 0;

    for (int i = 0; i < h->num; i++)
        if (!is_this_host(h->host[i].name) && at < sizeof(names))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
                                   h->host[i].name);
    if (at)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "remote hosts are not available in this version: %s", names);
    if (h->num > 1)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "the hosts %s and %s are both this machine; name it once",
                            h->host[0].name, h->host[1].name);
    return ZT_OK;
}

static zt_err choose_hosts(const struct zt_launch *l, struct zt_plan *p,
                           struct zt_fault *fault)
{
    struct zt_hosts h = {0};
    zt_err rc;

    if (l->include && l->exclude)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--include and --exclude do not go together");
    if ((l->include || l->exclude) && (l->num_gpus >= 0 || l->num_nodes >= 0))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--num_gpus and --num_nodes do not go together with --include or "
            "--exclude");
    rc = read_hosts(l, &h, fault);
    if (!rc && l->include)
        rc = zt_hosts_include(&h, l->include, fault);
    if (!rc && l->exclude)
        rc = zt_hosts_exclude(&h, l->exclude, fault);
    if (!rc)
        rc = zt_hosts_limit(&h, l->num_nodes, l->num_gpus, fault);
    if (!rc)
        rc = refuse_remote(&h, fault);
    if (!rc) {
        p->num_nodes = h.num;
        p->world = p->local_world = zt_hosts_total(&h);
        p->host = "localhost";
    }
    zt_hosts_release(&h);
    return rc;
}

/* ------------------------------------------------------------------ what to run */

static zt_err choose_command(const struct zt_launch *l, struct zt_plan *p,
                             struct zt_fault *fault)
{
    const char *target = l->target[0];
    struct stat sb;
    int n = 0;
    zt_err rc;

    p->is_plugin = l->is_plugin;
    p->argv = calloc((size_t)l->target_argc + 2, sizeof(*p->argv));
    if (!p->argv)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
    if (p->is_plugin) {
        if (stat(target, &sb) < 0)
            return zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s: %s", target,
                                strerror(errno));
        if (!S_ISREG(sb.st_mode))
            return zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s is no file", target);
        p->argv[n++] = strdup(p->zworker);
        p->argv[n++] = strdup(target);
    } else {
        rc = zt_find_program(target, &p->argv[0], fault);
        if (rc)
            return rc;
        n = 1;
    }
    for (int i = 1; i < l->target_argc; i++)
        p->argv[n++] = strdup(l->target[i]);
    for (int i = 0; i < l->target_argc; i++) { /* the daemon is told in JSON */
        json_t *word = json_string(l->target[i]);

        if (!word)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "word %d of the command is not UTF-8; rename the file it names", i + 1);
        json_decref(word);
    }
    for (int i = 0; i < n; i++)
        if (!p->argv[i])
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
    return ZT_OK;
}

/* ------------------------------------------------------------------ the rest */

/* A port nobody uses now; 29500 if the system gives none. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 29500;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static void name_job(struct zt_plan *p)
{
    uint64_t r = 0;
    time_t now = time(NULL);
    struct tm tm;

    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        r = (uint64_t)now;
    snprintf(p->job_id, sizeof(p->job_id), "zt-%d-%016llx", (int)getpid(),
             (unsigned long long)r);
    localtime_r(&now, &tm);
    strftime(p->log_stamp, sizeof(p->log_stamp), "%Y%m%d%H%M%S", &tm);
}

static void set_env(struct zt_plan *p, const char *name, const char *value)
{
    json_object_set_new(p->env, name, zt_json_text(value, strlen(value)));
}

/* Options that the ranks read too, in the form every option has in the environment. */
static void pass_options(const struct zt_launch *l, struct zt_plan *p)
{
    set_env(p, "ZLAUNCH_LOG_FORMAT", l->json ? "json" : "text");
    set_env(p, "ZLAUNCH_LOG_LEVEL", l->level_name);
    if (l->device_given)
        set_env(p, "ZLAUNCH_DEVICE", l->device);
}

static zt_err fill(struct zt_plan *p, const struct zt_launch *l, struct zt_fault *fault)
{
    zt_err rc = zt_find_zworker(&p->zworker, fault);

    if (!rc)
        rc = choose_command(l, p, fault);
    if (!rc)
        rc = choose_hosts(l, p, fault);
    if (rc)
        return rc;
    if (p->world > MAX_RANKS)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%d ranks on one host; at most %d are possible", p->world,
                            MAX_RANKS);
    name_job(p);
    p->master_addr = l->master_addr ? l->master_addr : "127.0.0.1";
    p->master_port = l->master_port ? l->master_port : free_port();
    p->grace_ms = (int)(l->grace_s * 1000);
    p->timeout_s = l->timeout_s;
    p->bind = l->bind;
    p->core_list = l->core_list;
    p->log_dir = l->log_dir;
    p->report = l->report;
    if (l->save_pid)
        snprintf(p->pid_file, sizeof(p->pid_file), "/tmp/%d.zlaunch", (int)getpid());
    p->env = json_object();
    if (!p->env)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    pass_options(l, p);
    return ZT_OK;
}

zt_err zt_plan_open(const struct zt_launch *launch, struct zt_plan **out,
                    struct zt_fault *fault)
{
    struct zt_plan *p = calloc(1, sizeof(*p));
    zt_err rc;

    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    rc = fill(p, launch, fault);
    if (rc) {
        zt_plan_close(p);
        return rc;
    }
    *out = p;
    return ZT_OK;
}

void zt_plan_close(struct zt_plan *plan)
{
    if (!plan)
        return;
    for (char **a = plan->argv; a && *a; a++)
        free(*a);
    free(plan->argv);
    free(plan->zworker);
    json_decref(plan->env);
    free(plan);
}

static void set_text(json_t *o, const char *key, const char *value)
{
    json_object_set_new(o, key, value ? zt_json_text(value, strlen(value)) : json_null());
}

json_t *zt_plan_job(const struct zt_plan *p)
{
    json_t *o = json_object(), *argv = json_array();

    for (char **a = p->argv; *a; a++)
        json_array_append_new(argv, zt_json_text(*a, strlen(*a)));
    set_text(o, "id", p->job_id);
    json_object_set_new(o, "argv", argv);
    json_object_set(o, "env", p->env);
    json_object_set_new(o, "first_rank", json_integer(0));
    json_object_set_new(o, "local_world", json_integer(p->local_world));
    json_object_set_new(o, "world", json_integer(p->world));
    json_object_set_new(o, "node_rank", json_integer(0));
    json_object_set_new(o, "num_nodes", json_integer(p->num_nodes));
    set_text(o, "master_addr", p->master_addr);
    json_object_set_new(o, "master_port", json_integer(p->master_port));
    json_object_set_new(o, "grace_ms", json_integer(p->grace_ms));
    json_object_set_new(o, "bind", json_boolean(p->bind));
    set_text(o, "core_list", p->core_list);
    set_text(o, "log_dir", p->log_dir);
    set_text(o, "log_stamp", p->log_stamp);
    set_text(o, "pid_file", p->pid_file[0] ? p->pid_file : NULL);
    return o;
}

/* ------------------------------------------------------------------ for a person */

/* The word as a shell would need it. */
static void print_word(FILE *out, const char *w)
{
    if (*w && !w[strcspn(w, " \t\n'\"\\$`&|;<>()*?[]{}~#!")]) {
        fprintf(out, " %s", w);
        return;
    }
    fputs(" '", out);
    for (; *w; w++)
        fprintf(out, *w == '\'' ? "'\\''" : "%c", *w);
    fputc('\'', out);
}

zt_err zt_plan_print(const struct zt_plan *p, FILE *out, struct zt_fault *fault)
{
    struct zt_core_share share;
    struct zt_cores cores;
    char list[256];
    zt_err rc = zt_cores_init(&cores, p->core_list, fault);

    if (rc)
        return rc;
    fprintf(out, "%d rank%s on 1 node, started by: %s\n", p->world,
            p->world == 1 ? "" : "s", zt_starter_local.name);
    fprintf(out, "node 0: %s, %d core%s, daemon: %s --daemon\n", p->host, cores.num,
            cores.num == 1 ? "" : "s", p->zworker);
    for (int i = 0; i < p->local_world; i++) {
        zt_cores_share(&cores, i, p->local_world, &share);
        zt_cores_text(&share.mask, list, sizeof(list));
        fprintf(out, "  rank %d: %d thread%s, cores %s%s\n", i, share.threads,
                share.threads == 1 ? "" : "s", list,
                p->bind && share.bind ? "" : " (not bound)");
    }
    fprintf(out, "MASTER_ADDR=%s MASTER_PORT=%d WORLD_SIZE=%d\n", p->master_addr,
            p->master_port, p->world);
    fputs("command:", out);
    for (char **a = p->argv; *a; a++)
        print_word(out, *a);
    fputc('\n', out);
    zt_cores_release(&cores);
    return ZT_OK;
}
