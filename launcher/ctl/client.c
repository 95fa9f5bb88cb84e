/*
 * The client: one request to one job, and what it answers. As text answers are printed and
 * remarks are messages; in JSON all of it is events, one a line.
 */
#include "common/human.h"
#include "common/json/line.h"
#include "common/message/render.h"
#include "launcher/ctl/private.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIST_S  3   /* for a job in a list to answer */
#define RANKS_S 630 /* for ranks, which answer between two steps */

/* Where answers go. */
struct ctl_screen {
    struct zt_render *render;
    bool follows; /* what the job prints is shown, not what it answers */
    bool ended;   /* the last event of the job was among it */
};

/* ------------------------------------------------------------------ what is shown */

static zt_err print_record(struct zt_render *r, const char *name, json_t *o,
                           struct zt_fault *fault)
{
    if (!o || json_object_set_new(o, "event", json_string(name)))
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for an answer");
    zt_render_record(r, o);
    zt_render_drain(r);
    return ZT_OK;
}

bool zt_ctl_pass_event(struct zt_render *r, const char *line, size_t n)
{
    json_t *o = zt_json_object(line, n);
    bool is_end = o && strcmp(zt_json_get_text(o, "event", ""), "end") == 0;

    zt_render_log(r, -1, line, n);
    zt_render_drain(r);
    json_decref(o);
    return is_end;
}

/* A sentence that a job answers with. */
static zt_err show_answer(const struct ctl_screen *s, const char *text, size_t n,
                          struct zt_fault *fault)
{
    json_t *o;
    zt_err rc;

    if (!zt_render_is_json(s->render)) {
        if (fwrite(text, 1, n, stdout) == n && putchar('\n') != EOF &&
            fflush(stdout) == 0)
            return ZT_OK;
        return zt_fault_set(fault, ZT_E_SYSTEM, "output: %s", strerror(errno));
    }
    o = json_object();
    json_object_set_new(o, "text", zt_json_text(text, n));
    rc = print_record(s->render, "answer", o, fault);
    json_decref(o);
    return rc;
}

/* A line that the job prints, to the stream that it came from. */
static zt_err show_line(struct ctl_screen *s, int stream, const char *text, size_t n,
                        struct zt_fault *fault)
{
    FILE *out = stream == 2 ? stderr : stdout;

    if (zt_render_is_json(s->render)) {
        if (stream == ZT_CTL_EVENT)
            s->ended = zt_ctl_pass_event(s->render, text, n) || s->ended;
        else
            zt_render_output(s->render, -1, stream, text, n);
        zt_render_drain(s->render);
        if (!zt_render_is_read(s->render))
            return zt_fault_set(fault, ZT_E_SYSTEM, "output: nobody reads it");
        return ZT_OK;
    }
    if (fwrite(text, 1, n, out) == n && fputc('\n', out) != EOF && fflush(out) == 0)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_SYSTEM, "output: %s", strerror(errno));
}

static zt_err show_frame(struct ctl_screen *s, const struct zt_frame *f,
                         struct zt_fault *fault)
{
    const char *text = (const char *)f->body + 1;

    if (!f->body_bytes)
        return ZT_OK;
    if (s->follows || f->body[0] != 1)
        return show_line(s, f->body[0], text, f->body_bytes - 1, fault);
    return show_answer(s, text, f->body_bytes - 1, fault);
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

/* END: the exit code, and a sentence about it. */
static zt_err read_end(const struct ctl_screen *s, const struct zt_frame *f, int *code,
                       struct zt_fault *fault)
{
    json_t *o = NULL;
    zt_err rc = read_object(f, &o, fault);
    const char *text;

    if (rc)
        return rc;
    *code = (int)zt_json_get_int(o, "exit_code", 1);
    text = zt_json_get_text(o, "text", NULL);
    if (text && *code)
        zt_fault_set(fault, ZT_E_PEER, "%s", text);
    else if (text)
        rc = show_answer(s, text, strlen(text), fault);
    json_decref(o);
    return rc;
}

/* Ctrl-C of who follows a job, wherever this process is then: behind it nothing more is read. */
static volatile sig_atomic_t is_interrupted, followed_fd;

/*
 * Everything up to END: lines are shown, an ANSWER is kept in *answer (may be NULL: not
 * wanted). *code: the exit code of END; where that is not 0 its text is in the fault.
 */
static zt_err talk_all(struct zt_ctl_talk *t, struct ctl_screen *s, json_t **answer,
                       int *code, struct zt_fault *fault)
{
    zt_err rc;

    while ((rc = zt_ctl_talk_next(t, fault)) == ZT_OK && !is_interrupted) {
        const struct zt_frame *f = &t->frame;

        if (f->type == ZT_FRAME_CTL_END)
            return read_end(s, f, code, fault);
        if (f->type == ZT_FRAME_CTL_LINE)
            rc = show_frame(s, f, fault);
        else if (f->type == ZT_FRAME_CTL_ANSWER && answer)
            rc = read_object(f, answer, fault);
        if (rc)
            break;
    }
    return is_interrupted ? zt_fault_set(fault, ZT_E_CANCELLED, "interrupted") : rc;
}

/* ------------------------------------------------------------------ --ctl */

static void print_step(const json_t *o)
{
    const json_t *step = json_object_get(o, "last_step");
    char ago[ZT_HUMAN], speed[ZT_HUMAN], eta[ZT_HUMAN] = "unknown";
    double left = zt_json_get_real(step, "eta_s", -1);

    if (!json_is_object(step))
        return;
    if (left >= 0)
        zt_human_seconds(eta, left);
    printf("step      %lld/%lld  loss %.4f  %s tok/s  eta %s  "
           "(the last report, %s ago)\n",
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
    const char *log = zt_json_get_text(o, "log_file", NULL);
    const char *lost = zt_json_get_text(o, "log_error", NULL);

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
    if (log)
        printf("log       %s%s%s\n", log, lost ? " has not all of the output: " : "",
               lost ? lost : "");
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

/* One job of a list. ZT_E_NOINPUT: it has just ended. */
static zt_err list_job(const struct zt_ctl_job *j, struct zt_render *r,
                       struct zt_fault *fault)
{
    struct ctl_screen s = {.render = r};
    struct zt_ctl_talk t;
    json_t *o = NULL;
    int code = 0;
    zt_err rc = zt_ctl_talk_open(&t, j, fault);

    if (!rc)
        zt_ctl_talk_set_patience(t.fd, LIST_S);
    if (!rc)
        rc = zt_ctl_talk_request(&t, "status", fault);
    if (!rc)
        rc = talk_all(&t, &s, &o, &code, fault);
    if (!rc && o && zt_render_is_json(r))
        rc = print_record(r, "status", o, fault);
    else if (!rc && o)
        print_list_line(o);
    json_decref(o);
    zt_ctl_talk_close(&t);
    return rc;
}

static int list(struct zt_render *r, struct zt_fault *fault)
{
    struct zt_ctl_jobs jobs;
    zt_err rc = zt_ctl_find_jobs(&jobs, fault);

    if (!rc && !zt_render_is_json(r))
        printf("%-32s %-10s %5s %5s %8s  %s\n", "JOB", "STATE", "RANKS", "NODES",
               "ELAPSED", "COMMAND");
    for (int i = 0; !rc && i < jobs.num; i++) {
        struct zt_fault why = {0};
        zt_err no = list_job(&jobs.list[i], r, &why);

        if (no && no != ZT_E_NOINPUT)
            zt_render_message(r, ZT_LOG_WARN, "job %s: %s", jobs.list[i].name, why.text);
    }
    free(jobs.list);
    return rc ? zt_err_exit_code(rc) : 0;
}

/* A remark beside the answers, at once. */
static void tell(struct zt_render *r, const char *fmt, ...) ZT_PRINTF(2, 3);
static void tell(struct zt_render *r, const char *fmt, ...)
{
    char text[2 * PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    zt_render_message(r, ZT_LOG_INFO, "%s", text);
    zt_render_drain(r);
}

/* Which job is meant, where that was not said by its whole name. */
static void name_job(const char *name, const struct zt_ctl_job *j, struct zt_render *r)
{
    char ended[2 * PATH_MAX];

    if (strcmp(name, j->name) == 0)
        return;
    if (!zt_ctl_is_from_here(j))
        tell(r, "job %s, started in %s", j->name,
             *j->folder ? j->folder : "another folder");
    else if (strcmp(name, "last") == 0 && zt_ctl_find_ended(name, ended, sizeof(ended)) &&
             !strstr(ended, j->name))
        tell(r, "job %s, which runs; %s", j->name, ended);
    else
        tell(r, "job %s", j->name);
}

/* On a terminal, where a person reads and writes; a program gets the refusal. */
static bool is_asked(const struct zt_render *r)
{
    char answer[8] = "";

    if (zt_render_is_json(r) || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return false;
    fputs("zlaunch: is that the one? [y/N] ", stderr);
    return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

/* "last" is the newest job that was started from this folder. Where there is none, one from
 * elsewhere is nothing to act on unasked, whatever is to be done: `request` is
 * that, NULL: to attach. */
static bool may_take(const char *name, const struct zt_ctl_job *j, const char *request,
                     const struct zt_render *r, struct zt_fault *fault)
{
    if (strcmp(name, "last") != 0 || zt_ctl_is_from_here(j) || is_asked(r))
        return true;
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

#define NUM_REQUESTS (sizeof(requests) / sizeof(*requests))

static const struct {
    const char *request, *shown;
} requests[] = {
#define ROW(name, request, shown) {request, shown},
    ZT_CTL_REQUESTS(ROW)
#undef ROW
};

static bool is_request(const char *word)
{
    for (size_t i = 0; i < NUM_REQUESTS; i++)
        if (strcmp(word, requests[i].request) == 0)
            return true;
    return false;
}

const char *zt_ctl_requests_text(char out[128])
{
    size_t n = 0;

    for (size_t i = 0; i < NUM_REQUESTS && n < 128; i++)
        n += (size_t)snprintf(out + n, 128 - n, "%s%s",
                              i == 0                 ? ""
                              : i + 1 < NUM_REQUESTS ? ", "
                                                     : " or ",
                              requests[i].shown);
    return out;
}

/* A job that ends a talk well has answered in it, unless its answer was lost on the way. */
static zt_err check_answer(const json_t *answer, int code, struct zt_fault *fault)
{
    return answer || code ? ZT_OK
                          : zt_fault_set(fault, ZT_E_HOST,
                                         "the answer of the job was lost; ask again");
}

/* Send the request and show what comes back. */
static zt_err ask(struct zt_ctl_talk *t, const char *request, struct zt_render *r,
                  int *code, struct zt_fault *fault)
{
    struct ctl_screen s = {.render = r, .follows = strcmp(request, "stacks") == 0};
    json_t *answer = NULL;
    zt_err rc;

    if (is_for_ranks(request)) {
        zt_ctl_talk_set_patience(t->fd, RANKS_S);
        if (isatty(STDERR_FILENO))
            tell(r, "the ranks answer between two steps; Ctrl-C gives up");
    }
    rc = zt_ctl_talk_request(t, request, fault);
    if (!rc)
        rc = talk_all(t, &s, &answer, code, fault);
    if (!rc && strcmp(request, "status") == 0)
        rc = check_answer(answer, *code, fault);
    if (!rc && answer && zt_render_is_json(r))
        rc = print_record(r, "status", answer, fault);
    else if (!rc && answer)
        print_status(answer);
    json_decref(answer);
    return rc;
}

int zt_ctl_main(const char *job, int argc, char *const *words, struct zt_render *r,
                struct zt_fault *fault)
{
    char text[2 * PATH_MAX];
    const char *request = question(argc, words, text, sizeof(text));
    struct zt_ctl_talk t;
    struct zt_ctl_job chosen;
    int code = 1;
    zt_err rc;

    if (!request && strcmp(job, "list") == 0)
        return list(r, fault);
    if (!request && is_request(job))
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_USAGE,
                                             "--ctl %s: of which job? As in: zlaunch "
                                             "--ctl last %s; --ctl list names them",
                                             job, job));
    if (!request)
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_USAGE, "--ctl %s: ask for %s",
                                             job, zt_ctl_requests_text(text)));
    if (strlen(request) >= PATH_MAX)
        return zt_err_exit_code(zt_fault_set(fault, ZT_E_USAGE, "--ctl: %.60s...: %s",
                                             request, strerror(ENAMETOOLONG)));
    rc = zt_ctl_talk_to(job, &t, &chosen, fault);
    if (rc)
        return zt_err_exit_code(rc);
    name_job(job, &chosen, r);
    if (may_take(job, &chosen, request, r, fault))
        rc = ask(&t, request, r, &code, fault);
    else
        rc = fault->code;
    zt_ctl_talk_close(&t);
    return rc ? zt_err_exit_code(rc) : code;
}

/* ------------------------------------------------------------------ --attach */

static void on_interrupt(int sig)
{
    int e = errno;

    (void)sig;
    is_interrupted = 1;
    shutdown(followed_fd, SHUT_RD); /* a recv() that is about to begin does not wait */
    errno = e;
}

/* Its output until it ends. */
static zt_err follow(struct zt_ctl_talk *t, struct ctl_screen *s, int *code,
                     struct zt_fault *fault)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    zt_err rc = zt_ctl_talk_request(t, "attach", fault);

    followed_fd = t->fd;
    sigaction(SIGINT, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    zt_ctl_talk_set_patience(t->fd, 0); /* a job may be silent as long as it likes */
    return rc ? rc : talk_all(t, s, NULL, code, fault);
}

int zt_ctl_attach(const char *job, struct zt_render *r, bool *ended,
                  struct zt_fault *fault)
{
    struct ctl_screen s = {.render = r, .follows = true};
    struct zt_ctl_talk t;
    struct zt_ctl_job chosen;
    int code = 1;
    zt_err rc = zt_ctl_talk_to(job, &t, &chosen, fault);

    if (rc)
        return zt_err_exit_code(rc);
    name_job(job, &chosen, r);
    if (may_take(job, &chosen, NULL, r, fault))
        rc = follow(&t, &s, &code, fault);
    else
        rc = fault->code;
    zt_ctl_talk_close(&t);
    *ended = s.ended;
    if (rc == ZT_E_CANCELLED) {
        *fault = (struct zt_fault){0};
        tell(r, "detached; the job goes on. Back to it: zlaunch --attach %s",
             chosen.name);
        return 130;
    }
    return rc ? zt_err_exit_code(rc) : code;
}
