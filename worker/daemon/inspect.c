#include "worker/daemon/inspect.h"

#include "common/json/line.h"
#include "worker/comm/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES  8192
#define STACK_LINES 3

/* The start of /proc/PID/<name>; empty when it cannot be read. */
static void read_proc(pid_t pid, const char *name, char out[FILE_BYTES])
{
    char path[64];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    f = fopen(path, "re");
    if (f) {
        n = fread(out, 1, FILE_BYTES - 1, f);
        fclose(f);
    }
    out[n] = 0;
}

/* The letter of proc(5); 0: not known. */
static char state_of(const char *status)
{
    const char *p = strstr(status, "\nState:");

    return p ? p[7 + strspn(p + 7, " \t")] : 0;
}

static const char *state_text(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
    case 'I':
        return "waiting";
    case 'D':
        return "waiting for a disk or a device";
    case 'T':
        return "stopped by a signal";
    case 't':
        return "stopped by a debugger";
    case 'Z':
        return "dead";
    default:
        return "somewhere";
    }
}

/* Has it a handler for this signal? Another process would die of it. */
static bool catches(const char *status, int sig)
{
    const char *p = strstr(status, "\nSigCgt:");

    return p && strtoull(p + 8, NULL, 16) >> (sig - 1) & 1;
}

/* The top of the kernel's stack, laid out as evidence; addresses are left out. */
static json_t *stack_text(pid_t pid)
{
    char raw[FILE_BYTES], text[FILE_BYTES] = "";
    size_t at = 0;
    int lines = 0;

    read_proc(pid, "stack", raw);
    for (char *p = raw, *nl; lines < STACK_LINES && (nl = strchr(p, '\n')); p = nl + 1) {
        if (strncmp(p, "[<", 2) == 0)
            p += strcspn(p, "] \n") + 2;
        if (p < nl)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "  | kernel: %.*s\n",
                                   nl - p < 100 ? (int)(nl - p) : 100, p);
        lines++;
    }
    return zt_json_text(text, at);
}

json_t *zt_inspect_rank(int rank, pid_t pid, const struct zt_phase_slot *slot)
{
    struct zt_collective_state call = zt_phase_read_collective(slot);
    const char *name = call.count ? zt_comm_op_name((zt_comm_op)call.op) : "";
    char status[FILE_BYTES], where[FILE_BYTES], phase[ZT_PHASE_TEXT], state;
    json_t *o = json_object();

    zt_phase_read(slot, phase);
    read_proc(pid, "status", status);
    state = state_of(status);
    read_proc(pid, "wchan", where);
    if (strcmp(where, "0") == 0)
        where[0] = 0;
    json_object_set_new(o, "rank", json_integer(rank));
    json_object_set_new(o, "pid", json_integer(pid));
    json_object_set_new(o, "state", json_string(state_text(state)));
    json_object_set_new(o, "stopped", json_boolean(state == 'T' || state == 't'));
    json_object_set_new(o, "phase", zt_json_text(phase, strlen(phase)));
    json_object_set_new(o, "collective", zt_json_text(name, strlen(name)));
    json_object_set_new(o, "collectives", json_integer(call.count));
    json_object_set_new(o, "inside", json_boolean(call.inside));
    json_object_set_new(o, "where", zt_json_text(where, strlen(where)));
    json_object_set_new(o, "stack", stack_text(pid));
    if (catches(status, SIGQUIT)) /* to its first thread: that one issues the work */
        syscall(SYS_tgkill, pid, pid, SIGQUIT);
    return o;
}
