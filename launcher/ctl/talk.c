/* The client's connection to a job: one request, then frames up to END. */
#include "launcher/ctl/private.h"

#include "common/json/line.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_S 10 /* for a job to say anything at all */

void zt_ctl_talk_close(struct zt_ctl_talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    zt_buf_release(&t->in);
}

void zt_ctl_talk_set_patience(int fd, int seconds)
{
    struct timeval tv = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

/* ZT_E_NOINPUT: nobody listens there any more; the socket is removed. */
zt_err zt_ctl_talk_open(struct zt_ctl_talk *t, const struct zt_ctl_job *j,
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
    zt_ctl_talk_set_patience(t->fd, ANSWER_S);
    if (connect(t->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return ZT_OK;
    if (errno == ECONNREFUSED || errno == ENOENT) {
        unlink(addr.sun_path);
        return zt_fault_set(fault, ZT_E_NOINPUT, "job %s has ended", j->name);
    }
    return zt_fault_set(fault, ZT_E_SYSTEM, "job %s: %s", j->name, strerror(errno));
}

zt_err zt_ctl_talk_request(struct zt_ctl_talk *t, const char *request,
                           struct zt_fault *fault)
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
zt_err zt_ctl_talk_next(struct zt_ctl_talk *t, struct zt_fault *fault)
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
