#include "worker/start_notice.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "common/log.h"
#include "common/message/event.h"
#include "common/message/phase.h"

#define PATIENCE_S 1

static struct {
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    char phase[ZT_PHASE_TEXT]; /* empty: none, or it was told */
    struct timespec due;       /* when it is told */
    bool over;
} st = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_phase(const char *phase)
{
    pthread_mutex_lock(&st.lock);
    snprintf(st.phase, sizeof(st.phase), "%s", phase);
    clock_gettime(CLOCK_MONOTONIC, &st.due);
    st.due.tv_sec += PATIENCE_S;
    pthread_cond_signal(&st.changed);
    pthread_mutex_unlock(&st.lock);
}

static bool is_due(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > st.due.tv_sec ||
           (now.tv_sec == st.due.tv_sec && now.tv_nsec >= st.due.tv_nsec);
}

static void *watch(void *arg)
{
    pthread_mutex_lock(&st.lock);
    while (!st.over) {
        if (!st.phase[0]) {
            pthread_cond_wait(&st.changed, &st.lock);
        } else if (is_due()) {
            zt_info("start", "%s ...", st.phase);
            st.phase[0] = 0;
        } else {
            pthread_cond_timedwait(&st.changed, &st.lock, &st.due);
        }
    }
    pthread_mutex_unlock(&st.lock);
    return arg;
}

void zt_start_notice_begin(void)
{
    pthread_condattr_t monotonic;
    sigset_t all, was;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&st.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    st.phase[0] = 0;
    st.over = false;
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &was);
    st.running = pthread_create(&st.thread, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (st.running)
        zt_event_watch_phases(on_phase);
    else
        pthread_cond_destroy(&st.changed);
}

void zt_start_notice_end(void)
{
    if (!st.running)
        return;
    zt_event_watch_phases(NULL);
    pthread_mutex_lock(&st.lock);
    st.over = true;
    pthread_cond_signal(&st.changed);
    pthread_mutex_unlock(&st.lock);
    pthread_join(st.thread, NULL);
    pthread_cond_destroy(&st.changed);
    st.running = false;
}
