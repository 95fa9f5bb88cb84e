/*
 * Drives the ssh starter by itself, for test/integration/41-ssh.sh: starts a channel to
 * each host, waits for the HELLO of each daemon, does what the options ask for, closes.
 *
 *   ssh_probe [options] HOST[:PORT]...
 *     --identity F --known_hosts F --no_check --jump J --program P --user U --zworker P
 *     --cwd D --env NAME=VALUE ... --push F ... --push_dir D --timeout S
 *     --echo BYTES   no daemon but `cat` is there: send that many, compare what returns
 *     --flood        write more at once than a channel holds
 *     --raw          print what comes instead of looking for HELLO
 *     --hold         after HELLO stay until the channel goes down
 *
 * Lines on stdout: "hello HOST {...}", "note HOST: TEXT", "down HOST ok|TEXT", and when
 * all have said hello "all MS". Exit: 0 all were reached and ended in order, else 1.
 */
#include "common/message/frame.h"
#include "common/log.h"
#include "launcher/plan/env_forward.h"
#include "launcher/ssh/ssh.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 64

struct node {
    char name[256];
    int port;
    struct zt_channel *channel;
    struct zt_buf in;
    bool hello, down, bad;
    size_t sent, got;
};

static struct zt_ssh_options ssh = {.check_host_key = true};
static struct node nodes[MAX_NODES];
static int num_nodes, num_hello, num_down;
static size_t echo_bytes;
static bool hold, raw, flood;
static double t0;

static unsigned char pattern(size_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13 ^ i >> 3);
}

static void send_some(struct node *n)
{
    unsigned char block[50000];

    while (n->sent < echo_bytes && n->sent - n->got < 8u << 20) {
        size_t k = echo_bytes - n->sent;

        k = k < sizeof(block) ? k : sizeof(block);
        for (size_t i = 0; i < k; i++)
            block[i] = pattern(n->sent + i);
        n->channel->ops->write(n->channel, block, k);
        n->sent += k;
    }
}

static void reached(struct node *n)
{
    n->hello = true;
    if (++num_hello == num_nodes)
        printf("all %.0f\n", 1e3 * (zt_now() - t0));
    if (!hold)
        n->channel->ops->close(n->channel);
}

static void take_echo(struct node *n, const unsigned char *p, size_t k)
{
    for (size_t i = 0; i < k; i++)
        if (p[i] != pattern(n->got + i))
            n->bad = true;
    n->got += k;
    /* now and then nobody listens for a while */
    if (n->got / 1000000 != (n->got - k) / 1000000) {
        n->channel->ops->pause(n->channel, true);
        n->channel->ops->pause(n->channel, false);
    }
    if (n->got >= echo_bytes)
        reached(n);
    else
        send_some(n);
}

static void on_up(void *ctx)
{
    struct node *n = ctx;

    printf("up %s\n", n->name);
    for (int i = 0; flood && i < 80; i++) {
        static char mega[1 << 20];

        n->channel->ops->write(n->channel, mega, sizeof(mega));
    }
    send_some(n);
}

static void on_bytes(void *ctx, const void *data, size_t k)
{
    struct node *n = ctx;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    if (raw) {
        fwrite(data, 1, k, stdout);
        return;
    }
    if (echo_bytes) {
        take_echo(n, data, k);
        return;
    }
    if (n->hello || zt_buf_put(&n->in, data, k))
        return;
    rc = zt_frame_peek(&n->in, &f, &fault);
    if (rc == ZT_OK) {
        printf("hello %s %.*s\n", n->name, (int)f.body_bytes, (const char *)f.body);
        n->bad = f.type != ZT_FRAME_HELLO;
        reached(n);
    } else if (rc != ZT_E_SHORT) {
        printf("garbage %s %s\n", n->name, fault.text);
        n->bad = true;
        n->channel->ops->close(n->channel);
    }
}

static void on_note(void *ctx, const char *line)
{
    struct node *n = ctx;

    printf("note %s: %s\n", n->name, line);
}

static void on_down(void *ctx, const struct zt_fault *why)
{
    struct node *n = ctx;

    printf("down %s %s\n", n->name, why ? why->text : "ok");
    n->down = true;
    n->bad = n->bad || why != NULL;
    num_down++;
    zt_buf_release(&n->in);
}

static const struct zt_channel_events events = {on_up, on_bytes, on_note, on_down};

static void add_node(const char *text)
{
    struct node *n = &nodes[num_nodes++];
    char *colon;

    snprintf(n->name, sizeof(n->name), "%s", text);
    colon = strchr(n->name, ':');
    if (colon) {
        *colon = 0;
        n->port = atoi(colon + 1);
    }
    zt_buf_init(&n->in, 1u << 20);
}

static const char *one_of(const char *const *names, const char *word)
{
    for (; *names; names++)
        if (strcmp(word, *names) == 0)
            return word;
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const takes[] = {
        "--identity", "--known_hosts", "--jump", "--program", "--user",
        "--zworker",  "--cwd",         "--env",  "--push",    "--push_dir",
        "--timeout",  "--echo",        NULL};
    struct zt_start_request rq = {.ssh = &ssh, .timeout_s = 5};
    char *env[MAX_NODES] = {NULL}, *push[MAX_NODES] = {NULL};
    int num_env = 0, num_push = 0, ok = 1;
    uv_loop_t loop;

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN); /* as every user of libuv's streams */
    for (int i = 1; i < argc; i++) {
        const char *o = one_of(takes, argv[i]), *v = o && i + 1 < argc ? argv[++i] : NULL;

        if (!o && strcmp(argv[i], "--no_check") == 0)
            ssh.check_host_key = false;
        else if (!o && strcmp(argv[i], "--hold") == 0)
            hold = true;
        else if (!o && strcmp(argv[i], "--flood") == 0)
            flood = true;
        else if (!o && strcmp(argv[i], "--raw") == 0)
            raw = true;
        else if (!o && num_nodes < MAX_NODES)
            add_node(argv[i]);
        else if (!v)
            return 2;
        else if (strcmp(o, "--identity") == 0)
            ssh.identity = v;
        else if (strcmp(o, "--known_hosts") == 0)
            ssh.known_hosts = v;
        else if (strcmp(o, "--jump") == 0)
            ssh.jump = v;
        else if (strcmp(o, "--program") == 0)
            ssh.program = v;
        else if (strcmp(o, "--user") == 0)
            rq.user = v;
        else if (strcmp(o, "--zworker") == 0)
            rq.zworker = v;
        else if (strcmp(o, "--cwd") == 0)
            rq.cwd = v;
        else if (strcmp(o, "--env") == 0 && num_env < MAX_NODES - 1)
            env[num_env++] = argv[i];
        else if (strcmp(o, "--push") == 0 && num_push < MAX_NODES - 1)
            push[num_push++] = argv[i];
        else if (strcmp(o, "--push_dir") == 0)
            ssh.push_dir = v;
        else if (strcmp(o, "--timeout") == 0)
            rq.timeout_s = atof(v);
        else if (strcmp(o, "--echo") == 0)
            echo_bytes = strtoul(v, NULL, 10);
    }
    ssh.push = num_push > 0;
    ssh.push_files = push;
    rq.env = env;
    uv_loop_init(&loop);
    t0 = zt_now();
    for (int i = 0; i < num_nodes; i++) {
        struct zt_fault fault = {0};

        rq.host = nodes[i].name;
        rq.port = nodes[i].port;
        rq.node_rank = i;
        if (zt_starter_ssh.start(&rq, &loop, &events, &nodes[i], &nodes[i].channel,
                                 &fault)) {
            printf("down %s %s\n", nodes[i].name, fault.text);
            nodes[i].bad = true;
        }
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < num_nodes; i++)
        ok = ok && !nodes[i].bad && (raw || nodes[i].hello);
    if (uv_loop_close(&loop)) {
        printf("the loop has handles left\n");
        ok = 0;
    }
    return ok ? 0 : 1;
}
