/* What zlaunch would reach other hosts with. */
#include "launcher/report/private.h"

#include "common/json/line.h"
#include "launcher/plan/hostfile.h"
#include "launcher/start/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_HOSTFILE "/job/hostfile"

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* True: there are hosts besides this one to reach. */
static bool report_hostfile(struct zt_host_report_out *r)
{
    const char *given = r->launch->hostfile, *path = given ? given : DEFAULT_HOSTFILE;
    struct zt_fault fault = {0};
    struct zt_hosts h;
    int num, slots, others = 0;

    if (!given && access(path, R_OK) != 0) {
        zt_host_report_row(r, "hostfile", json_null(), "none (no %s): this host alone",
                           path);
        return false;
    }
    if (zt_hosts_read(path, &h, &fault)) {
        zt_host_report_row(r, "hostfile", json_string(path), "%s: cannot be used", path);
        zt_host_report_problem(r, ZT_PROBLEM_ERROR, zt_err_exit_code(fault.code),
                               access(path, R_OK) != 0
                                   ? "name a file that is there and can be read"
                                   : "correct it; a line is 'NAME slots=N'",
                               "%s", fault.text);
        return false;
    }
    num = h.num;
    for (int i = 0; i < num; i++)
        others += !zt_host_is_here(&h.host[i]);
    slots = zt_hosts_total(&h);
    zt_hosts_release(&h);
    zt_host_report_row(r, "hostfile", zt_json_text(path, strlen(path)),
                       "%s: %d host%s, %d slot%s", path, num, plural(num), slots,
                       plural(slots));
    return others > 0;
}

static bool agent_answers(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;
    bool ok;

    if (!path || strlen(path) >= sizeof(a.sun_path))
        return false;
    memcpy(a.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ok = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool report_agent(struct zt_host_report_out *r)
{
    const char *path = getenv("SSH_AUTH_SOCK");
    bool ok = agent_answers(path);

    zt_host_report_row(r, "ssh_agent", json_boolean(ok), "%s%s",
                       path ? path : "none (SSH_AUTH_SOCK is not set)",
                       path && !ok ? ": nobody answers there" : "");
    return ok;
}

/* "~/.ssh/NAME" */
static const char *in_ssh(const char *name, char out[4096])
{
    const char *home = getenv("HOME");

    snprintf(out, 4096, "%s/.ssh/%s", home ? home : "", name);
    return out;
}

/* There is one, or what is wrong with the one that was named has been said. */
static bool report_keys(struct zt_host_report_out *r)
{
    static const char *const names[] = {"id_ed25519", "id_ecdsa", "id_rsa"};
    const char *named = r->launch->ssh.identity;
    bool lost = named && access(named, R_OK) != 0;
    int why = lost ? errno : 0;
    json_t *list = json_array();
    char text[256] = "", path[4096];

    if (named && !lost) {
        snprintf(text, sizeof(text), " %.200s", named);
        json_array_append_new(list, zt_json_text(text + 1, strlen(text + 1)));
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (access(in_ssh(names[i], path), R_OK) != 0)
            continue;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s", names[i]);
        json_array_append_new(list, json_string(names[i]));
    }
    zt_host_report_row(r, "ssh_keys", list, "%s", text[0] ? text + 1 : "none in ~/.ssh");
    if (lost)
        zt_host_report_problem(r, ZT_PROBLEM_WARNING, 0,
                               "name a key file that is there and can be read",
                               "--ssh_identity %s: %s", named, strerror(why));
    return text[0] != 0 || lost;
}

static bool report_known_hosts(struct zt_host_report_out *r)
{
    char usual[4096], line[4096];
    const char *path = r->launch->ssh.known_hosts;
    FILE *f;
    int lines = 0;

    path = path ? path : in_ssh("known_hosts", usual);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        lines += strchr(line, '\n') && line[0] != '#' && line[0] != '\n';
    if (f)
        fclose(f);
    zt_host_report_row(r, "ssh_known_hosts", json_integer(lines), "%s: %d line%s%s", path,
                       lines, plural(lines), f ? "" : " (no such file)");
    return lines > 0;
}

void zt_host_report_reach(struct zt_host_report_out *r)
{
    struct zt_fault fault = {0};
    const char *job = getenv("SLURM_JOB_ID");
    char *ssh = NULL;
    bool others, agent, keys, known;

    zt_host_report_group(r, "reach", "\nOther hosts");
    others = report_hostfile(r);
    agent = report_agent(r);
    keys = report_keys(r);
    known = report_known_hosts(r);
    if (zt_find_program("ssh", &ssh, &fault))
        ssh = NULL;
    zt_host_report_row(r, "ssh_program", ssh ? json_string(ssh) : json_null(), "%s",
                       ssh ? ssh : "none");
    zt_host_report_row(r, "slurm_job", job ? json_string(job) : json_null(), "%s",
                       job ? job : "none");
    if (others && !agent && !keys)
        zt_host_report_problem(
            r, ZT_PROBLEM_WARNING, 0,
            "ssh-keygen -t ed25519, then ssh-copy-id to each host; or "
            "--ssh_identity",
            "there are other hosts, but neither an ssh agent nor a key");
    if (others && !known && r->launch->ssh.check_host_key)
        zt_host_report_problem(
            r, ZT_PROBLEM_WARNING, 0,
            "ssh-keyscan HOST >> ~/.ssh/known_hosts, after a look at the "
            "keys; or --ssh_known_hosts",
            "there are other hosts, but no host key is known");
    free(ssh);
}
