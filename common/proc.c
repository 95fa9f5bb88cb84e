#include "common/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct proc_entry {
    pid_t pid, parent;
    char state;
    bool below;
};

/* "pid (name) S ppid ...": the name may hold anything, so look for its last ')'. */
static bool read_stat(const char *pid_text, struct proc_entry *out)
{
    char path[64], line[512], *p;
    size_t n;
    FILE *f;
    int parent;

    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid_text);
    f = fopen(path, "re");
    if (!f)
        return false;
    n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    line[n] = 0;
    p = strrchr(line, ')');
    if (!p || sscanf(p + 1, " %c %d", &out->state, &parent) != 2)
        return false;
    out->pid = (pid_t)atoi(pid_text);
    out->parent = (pid_t)parent;
    out->below = false;
    return true;
}

char zt_proc_state(pid_t pid)
{
    struct proc_entry e;
    char text[32];

    snprintf(text, sizeof(text), "%d", (int)pid);
    return read_stat(text, &e) ? e.state : 0;
}

static size_t list_processes(struct proc_entry **out)
{
    struct proc_entry *list = NULL;
    size_t num = 0, cap = 0;
    DIR *dir = opendir("/proc");
    struct dirent *d;

    while (dir && (d = readdir(dir))) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        if (num == cap) {
            size_t more = cap ? 2 * cap : 256;
            struct proc_entry *grown = realloc(list, more * sizeof(*list));

            if (!grown)
                break;
            list = grown;
            cap = more;
        }
        if (read_stat(d->d_name, &list[num]))
            num++;
    }
    if (dir)
        closedir(dir);
    *out = list;
    return num;
}

int zt_proc_signal_descendants(int sig)
{
    return zt_proc_signal_others(sig, NULL, 0);
}

static bool is_among(pid_t pid, const pid_t *list, int num)
{
    for (int i = 0; i < num; i++)
        if (list[i] == pid)
            return true;
    return false;
}

int zt_proc_signal_others(int sig, const pid_t *spare, int num_spare)
{
    struct proc_entry *list;
    size_t num = list_processes(&list);
    pid_t self = getpid();
    int count = 0;
    bool grew;

    do { /* as many rounds as the tree is deep at worst: children usually come after
            parents */
        grew = false;
        for (size_t i = 0; i < num; i++) {
            bool below = list[i].parent == self;

            for (size_t j = 0; !list[i].below && !below && j < num; j++)
                below = list[j].below && list[j].pid == list[i].parent;
            if (below && !list[i].below && !is_among(list[i].pid, spare, num_spare))
                list[i].below = grew = true;
        }
    } while (grew);
    for (size_t i = 0; i < num; i++) {
        if (!list[i].below || list[i].state == 'Z' || list[i].state == 'X')
            continue;
        if (sig)
            kill(list[i].pid, sig);
        count++;
    }
    free(list);
    return count;
}

const char *zt_signal_text(int sig)
{
    switch (sig) {
    case SIGHUP:
        return "SIGHUP (hangup)";
    case SIGINT:
        return "SIGINT (interrupt)";
    case SIGQUIT:
        return "SIGQUIT (quit)";
    case SIGILL:
        return "SIGILL (illegal instruction)";
    case SIGTRAP:
        return "SIGTRAP (breakpoint)";
    case SIGABRT:
        return "SIGABRT (abort)";
    case SIGBUS:
        return "SIGBUS (bad memory access)";
    case SIGFPE:
        return "SIGFPE (arithmetic error)";
    case SIGKILL:
        return "SIGKILL";
    case SIGSEGV:
        return "SIGSEGV (invalid memory access)";
    case SIGPIPE:
        return "SIGPIPE (nobody reads its output)";
    case SIGTERM:
        return "SIGTERM (terminated)";
    case SIGUSR1:
        return "SIGUSR1";
    case SIGUSR2:
        return "SIGUSR2";
    case SIGXCPU:
        return "SIGXCPU (processor time limit)";
    case SIGXFSZ:
        return "SIGXFSZ (file size limit, ulimit -f)";
    case SIGALRM:
        return "SIGALRM (a timer ran out)";
    case SIGSYS:
        return "SIGSYS (forbidden system call)";
    default:
        return "a signal";
    }
}

bool zt_signal_is_ignored(int sig)
{
    struct sigaction now = {.sa_handler = SIG_DFL};

    return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void zt_signal_block_user(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
}
