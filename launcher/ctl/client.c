/* The client: find the job, send one request, print the answers. Blocking. */
#include "launcher/ctl/ctl.h"

#include "common/human.h"
#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "common/message/render.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_JOBS    4096
#define ANSWER_S    10 /* for a job to say anything at all */
#define LIST_S      3
#define RANKS_S     630 /* and for its ranks, which answer between two steps */
#define JOB_NAME    64
#define NO_JOB_CODE 1

struct listed_job {
    char name[JOB_NAME];
    char dir[ZT_CTL_PATH];
    char folder[PATH_MAX]; /* that it was started from; "": not known. Of a chosen one */
    struct timespec born;
};

struct jobs {
    struct listed_job *list; /* newest first */
    int num;
};

/* ------------------------------------------------------------------ finding jobs */

static bool add_job(struct jobs *jobs, const char *dir, const char *file)
{
    size_t n = strlen(file);
    struct listed_job *grown, *j;
    char path[ZT_CTL_PATH];
    struct stat sb;

    if (n < 6 || n - 5 >= JOB_NAME || *file == '.' ||
        strcmp(file + n - 5, ".sock") != 0 || jobs->num == MAX_JOBS)
        return true;
    if (zt_ctl_path(dir, file, "", path, NULL) || lstat(path, &sb) < 0 ||
        !S_ISSOCK(sb.st_mode))
        return true;
    grown = realloc(jobs->list, (size_t)(jobs->num + 1) * sizeof(*grown));
    if (!grown)
        return false;
    jobs->list = grown;
    j = &grown[jobs->num++];
    memcpy(j->name, file, n - 5);
    j->name[n - 5] = 0;
    memcpy(j->dir, dir, sizeof(j->dir));
    j->born = sb.st_mtim;
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct listed_job *x = a, *y = b;

    if (x->born.tv_sec != y->born.tv_sec)
        return x->born.tv_sec < y->born.tv_sec ? 1 : -1;
    if (x->born.tv_nsec != y->born.tv_nsec)
        return x->born.tv_nsec < y->born.tv_nsec ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* A folder that cannot be trusted is skipped, unless it is the only one. */
static zt_err find_jobs(struct jobs *jobs, struct zt_fault *fault)
{
    char dir[ZT_CTL_PATH];
    struct zt_fault bad = {0};
    int num_good = 0;

    *jobs = (struct jobs){NULL, 0};
    for (int i = 0; i < 2; i++) {
        struct zt_fault why = {0};
        zt_err rc = zt_ctl_dir_at(i, false, dir, &why);
        struct dirent *e;
        DIR *d;

        if (rc == ZT_E_NOINPUT)
            continue;
        if (rc) {
            bad = why;
            continue;
        }
        num_good++;
        d = opendir(dir);
        if (!d)
            continue;
        rc = ZT_OK;
        while (!rc && (e = readdir(d)))
            if (!add_job(jobs, dir, e->d_name))
                rc = zt_fault_set(fault, ZT_E_NOMEM, "no memory for a list of jobs");
        closedir(d);
        if (rc)
            return rc;
    }
    if (bad.code && !num_good)
        return zt_fault_set(fault, bad.code, "%s", bad.text);
    if (jobs->num)
        qsort(jobs->list, (size_t)jobs->num, sizeof(*jobs->list), newest_first);
    return ZT_OK;
}

/* ------------------------------------------------------------------ talking */

struct talk {
    int fd;
    struct zt_buf in;
    struct zt_frame frame; /* the last one that came */
    bool has_frame;
};

static void talk_close(struct talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    zt_buf_release(&t->in);
}

static void set_patience(int fd, int seconds)
{
    struct timeval tv = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

/* ZT_E_NOINPUT: nobody listens there any more; the socket is removed. */
static zt_err talk_open(struct talk *t, const struct listed_job *j,
                        struct zt_fault *fault)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    zt_err rc;

    zt_buf_init(&t->in, 2 * ZT_FRAME_MAX);
    t->has_frame = false;
    t->fd = -1;
    rc = zt_ctl_path(j->dir, j->name, ".sock", addr.sun_path, fault);
    if (rc)
        return rc;
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "socket: %s", strerror(errno));
    set_patience(t->fd, ANSWER_S);
    if (connect(t->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return ZT_OK;
    if (errno == ECONNREFUSED || errno == ENOENT) {
        unlink(addr.sun_path);
        return zt_fault_set(fault, ZT_E_NOINPUT, "job %s has ended", j->name);
    }
    return zt_fault_set(fault, ZT_E_SYSTEM, "job %s: %s", j->name, strerror(errno));
}

static zt_err talk_request(struct talk *t, const char *request, struct zt_fault *fault)
{
    struct zt_buf body, frame;
    json_t *o = json_object();
    zt_err rc;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    json_object_set_new(o, "request", zt_json_text(request, strlen(request)));
    rc = zt_json_put(&body, o);
    if (!rc)
        rc = zt_frame_put(&frame, ZT_FRAME_CTL_REQUEST, zt_buf_head(&body),
                          zt_buf_used(&body));
    if (rc)
        zt_fault_set(fault, rc, "no memory for a question");
    else if (send(t->fd, zt_buf_head(&frame), zt_buf_used(&frame), MSG_NOSIGNAL) !=
             (ssize_t)zt_buf_used(&frame))
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "the job takes no questions: %s",
                          strerror(errno));
    zt_buf_release(&body);
    zt_buf_release(&frame);
    json_decref(o);
    return rc;
}

/* The next frame, in t->frame until the next call. */
static zt_err talk_next(struct talk *t, struct zt_fault *fault)
{
    zt_err rc;

    if (t->has_frame)
        zt_frame_drop(&t->in, &t->frame);
    t->has_frame = false;
    while ((rc = zt_frame_peek(&t->in, &t->frame, fault)) == ZT_E_SHORT) {
        uint8_t *room;
        ssize_t k;

        rc = zt_buf_reserve(&t->in, 65536, &room);
        if (rc)
            return zt_fault_set(fault, rc, "no memory for an answer");
        k = recv(t->fd, room, 65536, 0);
        if (k < 0 && errno == EINTR)
            return zt_fault_set(fault, ZT_E_CANCELLED, "interrupted");
        if (k < 0 && errno == EAGAIN)
            return zt_fault_set(fault, ZT_E_HOST,
                                "the job does not answer; it is stopped, or very busy");
        if (k <= 0)
            return zt_fault_set(fault, ZT_E_HOST,
                                "the zlaunch of the job is gone without a word");
        zt_buf_commit(&t->in, (size_t)k);
    }
    t->has_frame = rc == ZT_OK;
    return rc;
}

/* Lines to the stream they came from; false: the reader of that stream is gone. */
static bool show_line(const struct zt_frame *f)
{
    FILE *out = f->body_bytes && f->body[0] == 2 ? stderr : stdout;

    if (!f->body_bytes)
        return true;
    if (fwrite(f->body + 1, 1, f->body_bytes - 1, out) != f->body_bytes - 1)
        return false;
    return fputc('\n', out) != EOF && fflush(out) == 0;
}

/* What the job says about itself. */
static zt_err read_object(const struct zt_frame *f, json_t **out, struct zt_fault *fault)
{
    json_decref(*out);
    *out = zt_json_object(f->body, f->body_bytes);
    if (*out)
        return ZT_OK;
    return zt_json_is_short_of_memory()
               ? zt_fault_set(fault, ZT_E_NOMEM, "no memory for an answer")
               : zt_fault_set(fault, ZT_E_FORMAT, "the job's answer is malformed");
}

/*
 * Everything up to END: lines are shown, an ANSWER is kept in *answer (may be NULL: not
 * wanted). *code: the exit code of END; its text, if any, is in the fault.
 */
static zt_err talk_all(struct talk *t, json_t **answer, int *code, struct zt_fault *fault)
{
    zt_err rc;

    while ((rc = talk_next(t, fault)) == ZT_OK) {
        const struct zt_frame *f = &t->frame;
        json_t *o = NULL;
        const char *text;

        if (f->type == ZT_FRAME_CTL_LINE && !show_line(f))
            return zt_fault_set(fault, ZT_E_SYSTEM, "output: %s", strerror(errno));
        if (f->type == ZT_FRAME_CTL_ANSWER && answer)
            rc = read_object(f, answer, fault);
        else if (f->type == ZT_FRAME_CTL_END)
            rc = read_object(f, &o, fault);
        if (rc)
            return rc;
        if (f->type != ZT_FRAME_CTL_END)
            continue;
        *code = (int)zt_json_get_int(o, "exit_code", 1);
        text = zt_json_get_text(o, "text", NULL);
        if (text && *code)
            zt_fault_set(fault, ZT_E_PEER, "%s", text);
        else if (text)
            puts(text);
        json_decref(o);
        return ZT_OK;
    }
    return rc;
}

/* ------------------------------------------------------------------ one job by name */

/* A job that has ended, but left its output behind? */
static bool find_log(const char *name, char out[ZT_CTL_PATH])
{
    char dir[ZT_CTL_PATH];

    for (int i = 0; i < 2; i++)
        if (!strchr(name, '/') && zt_ctl_dir_at(i, false, dir, NULL) == ZT_OK &&
            zt_ctl_path(dir, name, ".log", out, NULL) == ZT_OK && access(out, R_OK) == 0)
            return true;
    return false;
}

static zt_err no_job(const char *name, struct zt_fault *fault)
{
    char log[ZT_CTL_PATH];

    if (strcmp(name, "last") == 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "no job of this user runs here");
    if (find_log(name, log))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "job %s does not run any more; what it wrote is in %s", name,
                            log);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "no job '%s' of this user runs here; see: zlaunch --ctl list",
                        name);
}

/* The folder of the process at the other end of a connection. */
static void find_folder(const struct talk *t, char folder[PATH_MAX])
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    char link[64];
    ssize_t n;

    getsockopt(t->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    snprintf(link, sizeof(link), "/proc/%d/cwd", (int)peer.pid);
    n = readlink(link, folder, PATH_MAX - 1);
    folder[n > 0 ? n : 0] = 0;
}

static bool is_from_here(const struct listed_job *j)
{
    char here[PATH_MAX];

    return getcwd(here, sizeof(here)) && strcmp(here, j->folder) == 0;
}

/*
 * The job whose name begins so, if exactly one does. A whole name always wins. "last" is
 * the newest that was started from this folder; where there is none, the newest, which
 * may_take() decides about.
 */
static zt_err choose(struct jobs *jobs, const char *name, struct talk *t,
                     struct listed_job *chosen, struct zt_fault *fault)
{
    bool last = strcmp(name, "last") == 0, found = false;

    for (int i = 0; i < jobs->num; i++) {
        const struct listed_job *j = &jobs->list[i];
        bool whole = strcmp(j->name, name) == 0;
        struct talk next;
        zt_err rc;

        if (!last && strncmp(j->name, name, strlen(name)) != 0)
            continue;
        rc = talk_open(&next, j, fault);
        if (rc) {
            talk_close(&next);
            if (rc == ZT_E_NOINPUT)
                continue;
            if (found)
                talk_close(t);
            return rc;
        }
        if (last && found) { /* that one is not from here; is this one? */
            struct listed_job other = *j;

            find_folder(&next, other.folder);
            if (!is_from_here(&other)) {
                talk_close(&next);
                continue;
            }
        } else if (found && !whole) {
            talk_close(&next);
            talk_close(t);
            return zt_fault_set(fault, ZT_E_USAGE,
                                "'%s' is the beginning of several jobs: %s and %s", name,
                                chosen->name, j->name);
        }
        if (found)
            talk_close(t);
        *t = next;
        *chosen = *j;
        find_folder(t, chosen->folder);
        found = true;
        if (whole || (last && is_from_here(chosen)))
            break;
    }
    if (!found)
        return no_job(name, fault);
    if (fault)
        *fault = (struct zt_fault){0};
    return ZT_OK;
}

static zt_err talk_to(const char *name, struct talk *t, struct listed_job *chosen,
                      struct zt_fault *fault)
{
    struct jobs jobs;
    zt_err rc = find_jobs(&jobs, fault);

    if (!rc)
        rc = choose(&jobs, name, t, chosen, fault);
    free(jobs.list);
    return rc;
}

/* ------------------------------------------------------------------ --ctl */

static zt_err print_json(const json_t *o, struct zt_fault *fault)
{
    struct zt_buf line;
    zt_err rc;

    zt_buf_init(&line, ZT_FRAME_MAX);
    rc = zt_json_put(&line, o);
    if (rc)
        zt_fault_set(fault, rc, "no memory for an answer");
    else
        printf("%.*s\n", (int)zt_buf_used(&line), (const char *)zt_buf_head(&line));
    zt_buf_release(&line);
    return rc;
}

static void print_step(const json_t *o)
{
    const json_t *step = json_object_get(o, "last_step");
    char ago[ZT_HUMAN], speed[ZT_HUMAN], eta[ZT_HUMAN] = "unknown";
    double left = zt_json_get_real(step, "eta_s", -1);

    if (!json_is_object(step))
        return;
    if (left >= 0)
        zt_human_seconds(eta, left);
    printf("step      %lld/%lld  loss %.4f  %s tok/s  eta %s  (%s ago)\n",
           (long long)zt_json_get_int(step, "step", 0),
           (long long)zt_json_get_int(step, "total_steps", 0),
           zt_json_get_real(step, "loss", 0),
           zt_human_count(speed, zt_json_get_real(step, "tokens_per_s", 0)), eta,
           zt_human_seconds(ago, zt_json_get_real(o, "last_step_s", 0)));
}

static void print_nodes(const json_t *o)
{
    const json_t *nodes = json_object_get(o, "nodes"), *n;
    size_t i;

    printf("nodes     %zu\n", json_array_size(nodes));
    json_array_foreach(nodes, i, n)
    {
        int64_t first = zt_json_get_int(n, "first_rank", -1);
        int64_t num = zt_json_get_int(n, "ranks", 0);

        printf("  %s: %s", zt_json_get_text(n, "host", "?"),
               zt_json_get_text(n, "state", "?"));
        if (first >= 0)
            printf(", ranks %lld to %lld", (long long)first,
                   (long long)(first + num - 1));
        putchar('\n');
    }
}

static void print_status(const json_t *o)
{
    char elapsed[ZT_HUMAN];
    const json_t *r = json_object_get(o, "ranks");

    printf("job       %s (zlaunch is pid %lld)\ncommand   %s\nstate     %s\n",
           zt_json_get_text(o, "job", "?"), (long long)zt_json_get_int(o, "pid", 0),
           zt_json_get_text(o, "command", "?"), zt_json_get_text(o, "state", "?"));
    printf("elapsed   %s\nrestarts  %lld of %lld\n",
           zt_human_seconds(elapsed, zt_json_get_real(o, "elapsed_s", 0)),
           (long long)zt_json_get_int(o, "restarts", 0),
           (long long)zt_json_get_int(o, "max_restarts", 0));
    printf("ranks     %lld: %lld running, %lld ended\n",
           (long long)zt_json_get_int(r, "total", 0),
           (long long)zt_json_get_int(r, "running", 0),
           (long long)zt_json_get_int(r, "ended", 0));
    print_nodes(o);
    print_step(o);
}

static void print_list_line(const json_t *o)
{
    char elapsed[ZT_HUMAN];
    const json_t *r = json_object_get(o, "ranks");

    printf("%-32s %-10s %5lld %5zu %8s  %s\n", zt_json_get_text(o, "job", "?"),
           zt_json_get_text(o, "state", "?"), (long long)zt_json_get_int(r, "total", 0),
           json_array_size(json_object_get(o, "nodes")),
           zt_human_seconds(elapsed, zt_json_get_real(o, "elapsed_s", 0)),
           zt_json_get_text(o, "command", "?"));
}

static int list(bool json, struct zt_fault *fault)
{
    struct jobs jobs;
    zt_err rc = find_jobs(&jobs, fault);

    if (rc)
        return zt_err_exit_code(rc);
    if (!json)
        printf("%-32s %-10s %5s %5s %8s  %s\n", "JOB", "STATE", "RANKS", "NODES",
               "ELAPSED", "COMMAND");
    for (int i = 0; i < jobs.num; i++) {
        struct zt_fault why = {0};
        struct talk t;
        json_t *o = NULL;
        int code = 0;

        rc = talk_open(&t, &jobs.list[i], &why);
        if (!rc)
            set_patience(t.fd, LIST_S);
        if (!rc)
            rc = talk_request(&t, "status", &why);
        if (!rc)
            rc = talk_all(&t, &o, &code, &why);
        if (!rc && o && json)
            rc = print_json(o, &why);
        else if (!rc && o)
            print_list_line(o);
        if (rc && rc != ZT_E_NOINPUT)
            fprintf(stderr, "zlaunch: warning: job %s: %s\n", jobs.list[i].name,
                    why.text);
        json_decref(o);
        talk_close(&t);
    }
    free(jobs.list);
    return 0;
}

/* Which job is meant, where that was not said by its whole name. */
static void name_job(const char *name, const struct listed_job *j)
{
    if (strcmp(name, j->name) == 0)
        return;
    fprintf(stderr, "zlaunch: job %s", j->name);
    if (!is_from_here(j))
        fprintf(stderr, ", started in %s", *j->folder ? j->folder : "another folder");
    fputc('\n', stderr);
}

/* "last" is the newest job that was started from this folder. Where there is none, one from
 * elsewhere is nothing to act on unasked, whatever is to be done: `request` is
 * that, NULL: to attach. */
static bool may_take(const char *name, const struct listed_job *j, const char *request,
                     struct zt_fault *fault)
{
    char answer[8] = "";

    if (strcmp(name, "last") != 0 || is_from_here(j))
        return true;
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) {
        fputs("zlaunch: is that the one? [y/N] ", stderr);
        if (fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y'))
            return true;
    }
    zt_fault_set(fault, ZT_E_USAGE,
                 "last: no job was started from this folder; for the newest one of "
                 "others: zlaunch %s %s%s%s",
                 request ? "--ctl" : "--attach", j->name, request ? " " : "",
                 request ? request : "");
    return false;
}

static bool is_for_ranks(const char *request)
{
    return strncmp(request, "save", 4) == 0 || strcmp(request, "trace") == 0;
}

/* The words of a question as one text; a folder is one of this process's. */
static const char *question(int argc, char *const *words, char *out, size_t cap)
{
    char here[PATH_MAX] = "";

    if (argc < 2)
        return argc ? words[0] : NULL;
    if (argc == 2) {
        snprintf(out, cap, "%s %s", words[0], words[1]);
        return out;
    }
    if (words[2][0] != '/' && !getcwd(here, sizeof(here)))
        here[0] = 0;
    snprintf(out, cap, "%s %s %s%s%s", words[0], words[1], here, here[0] ? "/" : "",
             words[2]);
    return out;
}

static bool is_request(const char *word)
{
    static const char *const all[] = {"status", "stop", "save", "trace", "stacks"};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(word, all[i]) == 0)
            return true;
    return false;
}

int zt_ctl_main(const char *job, int argc, char *const *words, bool json,
                struct zt_fault *fault)
{
    char text[2 * PATH_MAX];
    const char *request = question(argc, words, text, sizeof(text));
    struct talk t;
    struct listed_job chosen;
    json_t *answer = NULL;
    int code = 1;
    zt_err rc;

    if (!request && strcmp(job, "list") == 0)
        return list(json, fault);
    if (!request && is_request(job))
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_USAGE,
                                             "--ctl %s: of which job? As in: zlaunch "
                                             "--ctl last %s; --ctl list names them",
                                             job, job));
    if (!request)
        return zt_err_exit_code(
            zt_fault_set(fault, ZT_E_USAGE,
                         "--ctl %s: ask for status, stop, save, trace or stacks", job));
    rc = talk_to(job, &t, &chosen, fault);
    if (rc)
        return rc == ZT_E_NOINPUT ? NO_JOB_CODE : zt_err_exit_code(rc);
    name_job(job, &chosen);
    if (!may_take(job, &chosen, request, fault)) {
        talk_close(&t);
        return zt_err_exit_code(fault->code);
    }
    if (is_for_ranks(request)) {
        set_patience(t.fd, RANKS_S);
        if (isatty(STDERR_FILENO))
            fputs("zlaunch: the ranks answer between two steps; Ctrl-C gives up\n",
                  stderr);
    }
    rc = talk_request(&t, request, fault);
    if (!rc)
        rc = talk_all(&t, &answer, &code, fault);
    if (!rc && answer && json)
        rc = print_json(answer, fault);
    else if (!rc && answer)
        print_status(answer);
    json_decref(answer);
    talk_close(&t);
    return rc ? zt_err_exit_code(rc) : code;
}

/* ------------------------------------------------------------------ --attach */

static void on_interrupt(int sig)
{
    (void)sig; /* recv() comes back with EINTR */
}

int zt_ctl_attach(const char *job, struct zt_fault *fault)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    struct talk t;
    struct listed_job chosen;
    int code = 1;
    zt_err rc = talk_to(job, &t, &chosen, fault);

    if (rc)
        return rc == ZT_E_NOINPUT ? NO_JOB_CODE : zt_err_exit_code(rc);
    name_job(job, &chosen);
    if (!may_take(job, &chosen, NULL, fault)) {
        talk_close(&t);
        return zt_err_exit_code(fault->code);
    }
    rc = talk_request(&t, "attach", fault);
    sigaction(SIGINT, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    set_patience(t.fd, 0); /* a job may be silent as long as it likes */
    if (!rc)
        rc = talk_all(&t, NULL, &code, fault);
    talk_close(&t);
    if (rc == ZT_E_CANCELLED) {
        fault->code = ZT_OK;
        fprintf(stderr,
                "zlaunch: detached; the job goes on. Back to it: zlaunch --attach %s\n",
                chosen.name);
        return 130;
    }
    return rc ? zt_err_exit_code(rc) : code;
}
