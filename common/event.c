#include "common/event.h"

#include "common/env.h"
#include "common/frame.h"
#include "common/jsonline.h"
#include "common/phase.h"
#include "common/render.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASK_BYTES 8192 /* of questions that wait */

/* One per process, like the log: a rank has one supervisor, or one terminal. */
static struct {
    int rank;
    int fd;                       /* control socket; -1: none, render here */
    struct zt_phase_slot *phases; /* mapped, NULL: nobody reads them */
    size_t phases_bytes;
    struct zt_phase_slot *phase; /* ours */
    struct zt_render *render;
    struct zt_buf in; /* of the control socket: what is asked */
    bool deaf;        /* something that is no question came, or the socket is shut */
} st = {.fd = -1};

/* The descriptor number in an environment variable, if it is open; closed on exec. */
static int inherited_fd(const char *name)
{
    int64_t fd = -1;

    if (zt_env_int(name, 0, 1 << 20, &fd, NULL) || fd < 0)
        return -1;
    if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return (int)fd;
}

static void open_phases(void)
{
    int fd = inherited_fd("ZLAUNCH_STATE_FD");
    int64_t slot = 0;
    struct stat sb;
    void *p;

    if (fd < 0 || zt_env_int("LOCAL_RANK", 0, 1 << 20, &slot, NULL) ||
        fstat(fd, &sb) < 0 ||
        (size_t)sb.st_size < (size_t)(slot + 1) * sizeof(struct zt_phase_slot))
        return;
    p = mmap(NULL, (size_t)sb.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return;
    st.phases = p;
    st.phases_bytes = (size_t)sb.st_size;
    st.phase = st.phases + slot;
}

static void open_render(int world)
{
    const char *format = getenv("ZLAUNCH_LOG_FORMAT");
    const char *color = getenv("ZLAUNCH_COLOR");
    zt_when when = !color                         ? ZT_WHEN_AUTO
                   : strcmp(color, "always") == 0 ? ZT_WHEN_ALWAYS
                   : strcmp(color, "never") == 0  ? ZT_WHEN_NEVER
                                                  : ZT_WHEN_AUTO;
    struct zt_render_config cfg = {
        .out_fd = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .json = format && strcmp(format, "json") == 0,
        .color = zt_env_color(STDERR_FILENO, when),
        .tag = world > 1,
        .level = zt_log_get_level(),
        .who = "zworker",
    };

    cfg.live = !cfg.json && zt_env_live(STDERR_FILENO);
    if (zt_render_open(&cfg, &st.render, NULL))
        st.render = NULL;
}

void zt_event_open(int rank, int world)
{
    struct stat sb;

    zt_event_close();
    st.rank = rank;
    st.fd = inherited_fd("ZLAUNCH_CONTROL_FD");
    if (st.fd >= 0 && (fstat(st.fd, &sb) < 0 || !S_ISSOCK(sb.st_mode)))
        st.fd = -1;
    zt_buf_init(&st.in, ASK_BYTES);
    st.deaf = st.fd < 0;
    open_phases();
    if (st.fd < 0)
        open_render(world);
}

void zt_event_close(void)
{
    zt_render_close(st.render);
    st.render = NULL;
    zt_buf_release(&st.in);
    st.deaf = true;
    if (st.phases)
        munmap(st.phases, st.phases_bytes);
    st.phases = st.phase = NULL;
    st.fd = -1; /* the descriptor stays: whoever set the variable owns it */
}

/* The whole frame, or the channel is given up: half a frame would garble all that follow.
 */
static void send_frame(const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(st.fd, p, n, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            st.fd = -1;
            return;
        }
        p += k;
        n -= (size_t)k;
    }
}

/* Takes the reference. */
static void emit(json_t *ev)
{
    struct zt_buf body, frame;

    if (!ev)
        return;
    if (st.render) {
        zt_render_event(st.render, st.rank, ev);
        zt_render_drain(st.render);
    } else if (st.fd >= 0) {
        zt_buf_init(&body, ZT_FRAME_MAX - 1);
        zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
        if (zt_json_put(&body, ev) == ZT_OK &&
            zt_frame_put(&frame, ZT_FRAME_EVENT, zt_buf_head(&body),
                         zt_buf_used(&body)) == ZT_OK)
            send_frame(zt_buf_head(&frame), zt_buf_used(&frame));
        zt_buf_release(&body);
        zt_buf_release(&frame);
    }
    json_decref(ev);
}

static json_t *make(const char *name)
{
    json_t *ev = json_object();

    json_object_set_new(ev, "event", zt_json_text(name, strlen(name)));
    return ev;
}

static void set_int(json_t *ev, const char *key, int64_t value)
{
    json_object_set_new(ev, key, json_integer(value));
}

static void set_real(json_t *ev, const char *key, double value)
{
    json_object_set_new(ev, key, zt_json_real(value));
}

void zt_event_phase(const char *phase)
{
    if (st.phase)
        zt_phase_write(st.phase, phase);
}

void zt_event_collective(unsigned op, bool begins)
{
    if (st.phase)
        zt_phase_call(st.phase, op, begins);
}

void zt_event_step(const struct zt_step_event *e)
{
    char print[24];
    json_t *ev;

    if (st.rank != 0)
        return;
    ev = make("step");
    set_int(ev, "step", e->step);
    set_int(ev, "total_steps", e->total_steps);
    set_real(ev, "loss", e->loss);
    set_real(ev, "lr", e->lr);
    set_real(ev, "grad_norm", e->grad_norm);
    set_real(ev, "tokens_per_s", e->tokens_per_s);
    set_int(ev, "samples", e->samples);
    set_int(ev, "skipped", e->skipped);
    set_int(ev, "peak_device_bytes", e->peak_device_bytes);
    if (e->gemm_share >= 0)
        set_real(ev, "gemm_share", e->gemm_share);
    if (e->loss_scale > 0)
        set_real(ev, "loss_scale", e->loss_scale);
    set_real(ev, "eta_s", e->eta_s);
    if (e->has_fingerprint) {
        snprintf(print, sizeof(print), "%016llx", (unsigned long long)e->fingerprint);
        json_object_set_new(ev, "fingerprint", json_string(print));
    }
    emit(ev);
}

void zt_event_eval(const struct zt_eval_event *e)
{
    json_t *ev;

    if (st.rank != 0)
        return;
    ev = make("eval");
    set_int(ev, "step", e->step);
    set_int(ev, "tokens", e->tokens);
    set_real(ev, "loss", e->loss);
    set_real(ev, "perplexity", e->perplexity);
    if (e->bits_per_byte >= 0)
        set_real(ev, "bits_per_byte", e->bits_per_byte);
    emit(ev);
}

void zt_event_text(const char *kind, const char *text)
{
    json_t *ev = make(kind);

    json_object_set_new(ev, "text", zt_json_text(text, strlen(text)));
    emit(ev);
}

/* The first frame of what has come, as a question. False: there is none. */
static bool take_ask(struct zt_event_ask *out)
{
    struct zt_frame f;
    zt_err rc = zt_frame_peek(&st.in, &f, NULL);
    json_t *o;

    if (rc) {
        st.deaf = rc != ZT_E_SHORT;
        return false;
    }
    o = f.type == ZT_FRAME_ASK ? zt_json_object(f.body, f.body_bytes) : NULL;
    out->id = zt_json_get_int(o, "id", 0);
    snprintf(out->what, sizeof(out->what), "%s", zt_json_get_text(o, "ask", "?"));
    st.deaf = !o;
    json_decref(o);
    zt_frame_drop(&st.in, &f);
    return !st.deaf;
}

bool zt_event_asked(struct zt_event_ask *out)
{
    uint8_t block[1024];
    ssize_t k;

    if (st.deaf || st.fd < 0)
        return false;
    if (take_ask(out))
        return true;
    k = recv(st.fd, block, sizeof(block), MSG_DONTWAIT);
    if (k <= 0) {
        st.deaf = k == 0 || (errno != EAGAIN && errno != EINTR);
        return false;
    }
    if (zt_buf_put(&st.in, block, (size_t)k)) {
        st.deaf = true;
        return false;
    }
    return take_ask(out);
}

void zt_event_answer(const struct zt_event_ask *ask, bool ok, const char *text)
{
    json_t *ev = make("answer");

    set_int(ev, "id", ask->id);
    json_object_set_new(ev, "ok", json_boolean(ok));
    json_object_set_new(ev, "text", zt_json_text(text, strlen(text)));
    emit(ev);
}

void zt_event_fail(const struct zt_fault *fault)
{
    json_t *ev = make("fail");

    json_object_set_new(ev, "code", json_string(zt_err_name(fault->code)));
    set_int(ev, "exit_code", zt_err_exit_code(fault->code));
    json_object_set_new(ev, "peer", json_boolean(fault->code == ZT_E_PEER));
    json_object_set_new(ev, "text", zt_json_text(fault->text, strlen(fault->text)));
    if (st.render && !zt_render_is_json(st.render))
        zt_render_message(st.render, ZT_LOG_ERROR, "%s", fault->text);
    emit(ev); /* as text this one is silent: the line above, or zlaunch's report, tells it
               */
}
