/* PyTorch's TCPStore: our client and our server with each other, in pieces of any size,
 * and both ways with the real one where torch is installed (ZT_VENV or build/venv). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/buf.h"
#include "store/tcpstore/client.h"
#include "store/tcpstore/session.h"
#include "store/tcpstore/wire.h"
#include "test/unit/store/tcp_host.h"

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (rc)
        print_message("%s\n", fault->text);
    assert_int_equal(rc, ZT_OK);
}

/* The calls of a client, each with what a TCPStore must answer. */
static void exercise_client(int port)
{
    const char *const two[] = {"zt/a", "zt/none"};
    struct zt_tcp_store *s;
    struct zt_fault fault;
    void *value;
    char *now, *big;
    int64_t v;
    size_t n;
    bool yes;

    must(zt_tcp_store_open("127.0.0.1", port, 20, 1, &s, &fault), &fault);
    must(zt_tcp_store_set(s, "zt/a", "one\0two", 7, &fault), &fault);
    must(zt_tcp_store_get(s, "zt/a", 1, &value, &n, &fault), &fault);
    assert_int_equal(n, 7);
    assert_memory_equal(value, "one\0two", 7);
    free(value);
    must(zt_tcp_store_add(s, "zt/n", -17, &v, &fault), &fault);
    must(zt_tcp_store_add(s, "zt/n", 20, &v, &fault), &fault);
    assert_int_equal(v, 3);
    must(zt_tcp_store_get(s, "zt/n", 1, &value, &n, &fault), &fault);
    assert_string_equal(value, "3");
    free(value);
    must(zt_tcp_store_check(s, two, 1, &yes, &fault), &fault);
    assert_true(yes);
    must(zt_tcp_store_check(s, two, 2, &yes, &fault), &fault);
    assert_false(yes);
    assert_int_equal(zt_tcp_store_wait(s, two, 2, 0.1, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "nobody set it within 0.1 s"));
    assert_int_equal(zt_tcp_store_get(s, "zt/none", 0.05, &value, &n, &fault), ZT_E_PEER);
    must(zt_tcp_store_wait(s, two, 1, 1, &fault), &fault); /* still in step */
    must(zt_tcp_store_compare_set(s, "zt/c", "x", "y", &now, &fault), &fault);
    assert_string_equal(now, "x");
    free(now);
    must(zt_tcp_store_compare_set(s, "zt/c", "", "y", &now, &fault), &fault);
    assert_string_equal(now, "y");
    free(now);
    must(zt_tcp_store_compare_set(s, "zt/c", "y", "z", &now, &fault), &fault);
    assert_string_equal(now, "z");
    free(now);
    must(zt_tcp_store_delete(s, "zt/c", &yes, &fault), &fault);
    assert_true(yes);
    must(zt_tcp_store_delete(s, "zt/c", &yes, &fault), &fault);
    assert_false(yes);
    big = calloc(1, ZT_TCP_VALUE);
    memset(big, 'x', ZT_TCP_VALUE);
    must(zt_tcp_store_set(s, "zt/big", big, ZT_TCP_VALUE, &fault), &fault);
    must(zt_tcp_store_get(s, "zt/big", 1, &value, &n, &fault), &fault);
    assert_true(n == ZT_TCP_VALUE && memcmp(value, big, n) == 0);
    free(value);
    free(big);
    zt_tcp_store_close(s);
}

static void our_client_and_our_server_agree(void **state)
{
    struct tcp_host host;

    (void)state;
    assert_int_equal(tcp_host_open(&host), 0);
    exercise_client(host.port);
    tcp_host_close(&host);
}

struct setter {
    pthread_t thread;
    int port;
};

static void *set_later(void *arg)
{
    struct setter *t = arg;
    struct zt_tcp_store *s;
    struct zt_fault fault;

    if (zt_tcp_store_open("127.0.0.1", t->port, 20, 1, &s, &fault))
        return "open";
    if (zt_tcp_store_set(s, "late", "here", 4, &fault))
        return "set";
    zt_tcp_store_close(s);
    return NULL;
}

static void a_wait_is_answered_when_another_client_sets(void **state)
{
    struct tcp_host host;
    struct zt_tcp_store *s;
    struct zt_fault fault;
    struct setter t;
    void *value, *failed;
    size_t n;

    (void)state;
    assert_int_equal(tcp_host_open(&host), 0);
    must(zt_tcp_store_open("127.0.0.1", host.port, 20, 1, &s, &fault), &fault);
    t.port = host.port;
    assert_int_equal(pthread_create(&t.thread, NULL, set_later, &t), 0);
    must(zt_tcp_store_get(s, "late", 20, &value, &n, &fault), &fault);
    assert_string_equal(value, "here");
    free(value);
    pthread_join(t.thread, &failed);
    assert_null(failed);
    zt_tcp_store_close(s);
    tcp_host_close(&host);
}

/* ---------------------------------------------------------------- without sockets */

struct fake {
    struct zt_peer peer; /* first */
    struct zt_buf got;
};

static void fake_send(struct zt_peer *p, const void *data, size_t bytes)
{
    assert_int_equal(zt_buf_put(&((struct fake *)p)->got, data, bytes), ZT_OK);
}

static void fake_drop(struct zt_peer *p)
{
    (void)p;
}

static void put(struct zt_buf *b, const void *data, size_t bytes)
{
    assert_int_equal(zt_buf_put(b, data, bytes), ZT_OK);
}

static void put_string(struct zt_buf *b, const char *s)
{
    uint64_t n = strlen(s);

    put(b, &n, 8);
    put(b, s, strlen(s));
}

static void put_command(struct zt_buf *b, uint8_t command, const char *key)
{
    put(b, &command, 1);
    if (key)
        put_string(b, key);
}

/* One request of every kind, in an order in which none of them waits for ever. */
static void put_conversation(struct zt_buf *b)
{
    uint32_t magic = ZT_TCP_MAGIC, nonce = 77;
    uint64_t two = 2;
    int64_t one = 1;

    put_command(b, ZT_TCP_VALIDATE, NULL);
    put(b, &magic, 4);
    put_command(b, ZT_TCP_PING, NULL);
    put(b, &nonce, 4);
    put_command(b, ZT_TCP_WAIT, NULL);
    put(b, &two, 8);
    put_string(b, "/x");
    put_string(b, "/x");
    put_command(b, ZT_TCP_SET, "/x");
    put_string(b, "value");
    put_command(b, ZT_TCP_GET, "/missing");
    put_command(b, ZT_TCP_MULTI_SET, NULL);
    put(b, &two, 8);
    for (int i = 0; i < 2; i++) {
        put_string(b, i ? "/m1" : "/m0");
        put_string(b, "");
    }
    put_command(b, ZT_TCP_APPEND, "/m1");
    put_string(b, "tail");
    put_command(b, ZT_TCP_MULTI_GET, NULL);
    put(b, &two, 8);
    put_string(b, "/m0");
    put_string(b, "/m1");
    put_command(b, ZT_TCP_ADD, "/n");
    put(b, &one, 8);
    put_command(b, ZT_TCP_NUM_KEYS, NULL);
    put_command(b, ZT_TCP_QUEUE_PUSH, "/q");
    put_string(b, "item");
    put_command(b, ZT_TCP_QUEUE_LEN, "/q");
    put_command(b, ZT_TCP_QUEUE_POP, "/q");
    put_command(b, ZT_TCP_QUEUE_POP, "/q");
    put_command(b, ZT_TCP_COMPARE_SET, "/x");
    put_string(b, "value");
    put_string(b, "other");
    put_command(b, ZT_TCP_CHECK, NULL);
    put(b, &two, 8);
    put_string(b, "/x");
    put_string(b, "/q");
    put_command(b, ZT_TCP_DELETE, "/x");
    put_command(b, ZT_TCP_DELETE, "/m0");
    put_command(b, ZT_TCP_DELETE, "/m1");
    put_command(b, ZT_TCP_LIST_KEYS, NULL);
    put_command(b, ZT_TCP_BARRIER, "/b");
    put(b, &one, 8);
    put_command(b, ZT_TCP_WAIT, NULL);
    put(b, &one, 8);
    put_string(b, "/never");
    put_command(b, ZT_TCP_CANCEL_WAIT, NULL);
}

static void requests_in_any_pieces_have_the_same_answers(void **state)
{
    static const char want[] = "\x4d\0\0\0"       /* ping */
                               "\0"               /* the wait, by the set */
                               "\0\0\0\0\0\0\0\0" /* missing: empty */
                               "\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0tail"
                               "\1\0\0\0\0\0\0\0" /* add */
                               "\4\0\0\0\0\0\0\0" /* keys */
                               "\1\0\0\0\0\0\0\0" /* queue length */
                               "\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0item"
                               "\0\0\0\0\0\0\0\0"      /* empty by now */
                               "\5\0\0\0\0\0\0\0other" /* compare_set */
                               "\1"                    /* check: not all */
                               "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0/n"
                               "\0"  /* barrier of one */
                               "\1"; /* cancelled */
    struct zt_buf all;

    (void)state;
    zt_buf_init(&all, 1 << 16);
    put_conversation(&all);
    for (size_t piece = zt_buf_used(&all); piece;
         piece = piece > 40 ? piece / 2 : piece - 1) {
        struct fake f = {.peer = {fake_send, fake_drop}};
        struct zt_tcp_session *s;
        struct zt_tcp_hub *hub;

        zt_buf_init(&f.got, 1 << 16);
        assert_int_equal(zt_tcp_hub_open(&hub), ZT_OK);
        assert_int_equal(zt_tcp_session_open(hub, &f.peer, &s), ZT_OK);
        for (size_t at = 0; at < zt_buf_used(&all); at += piece) {
            size_t left = zt_buf_used(&all) - at;

            assert_int_equal(zt_tcp_session_feed(s, zt_buf_head(&all) + at,
                                                 left < piece ? left : piece),
                             ZT_OK);
        }
        assert_false(zt_tcp_session_is_partial(s));
        assert_int_equal(zt_buf_used(&f.got), sizeof(want) - 1);
        assert_memory_equal(zt_buf_head(&f.got), want, sizeof(want) - 1);
        zt_tcp_session_close(s);
        zt_tcp_hub_close(hub);
        zt_buf_release(&f.got);
    }
    zt_buf_release(&all);
}

static void what_no_torch_client_sends_ends_the_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"\0\0\0\0\0", 5},                            /* not the magic */
        {"\1\2\0\0\0\0\0\0\0/k\0\0\0\0\0\0\0\0", 19}, /* set before VALIDATE */
        {"GET / HTTP/1.1\r\n", 16},
        {"\0\xce\xf7\x85<\x63", 6},                                /* no such command */
        {"\0\xce\xf7\x85<\3\xff\xff\xff\xff\xff\xff\xff\xff", 14}, /* an endless key */
        {"\0\xce\xf7\x85<\5\1\0\2\0\0\0\0\0", 14},                 /* 131073 keys */
        {"\0\xce\xf7\x85<\1\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0x\4\1\0\0\0\0\0\0\0k"
         "\1\0\0\0\0\0\0\0",
         42}, /* add to what is no number */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fake f = {.peer = {fake_send, fake_drop}};
        struct zt_tcp_session *s;
        struct zt_tcp_hub *hub;

        zt_buf_init(&f.got, 1 << 16);
        assert_int_equal(zt_tcp_hub_open(&hub), ZT_OK);
        assert_int_equal(zt_tcp_session_open(hub, &f.peer, &s), ZT_OK);
        assert_int_equal(zt_tcp_session_feed(s, bad[i].bytes, bad[i].n), ZT_E_FORMAT);
        zt_tcp_session_close(s);
        zt_tcp_hub_close(hub);
        zt_buf_release(&f.got);
    }
}

/* ---------------------------------------------------------------- the real torch */

static const char *python(void)
{
    static char path[512];
    const char *venv = getenv("ZT_VENV");

    snprintf(path, sizeof(path), "%s/bin/python", venv ? venv : "build/venv");
    if (access(path, X_OK))
        return NULL;
    return path;
}

/* Run a program of python's; its exit code. */
static int run_python(const char *program, const char *arg)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execl(python(), python(), "-c", program, arg, (char *)NULL);
        _exit(126);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool have_torch(void)
{
    return python() && !run_python("import importlib.util as u, sys\n"
                                   "sys.exit(u.find_spec('torch') is None)",
                                   NULL);
}

static void torch_clients_are_served_by_our_server(void **state)
{
    static const char program[] =
        "import sys, os, threading, datetime\n"
        "import torch, torch.distributed as d\n"
        "port = int(sys.argv[1])\n"
        "s = d.TCPStore('127.0.0.1', port, None, False)\n"
        "s.set('a', 'x'); assert s.get('a') == b'x'\n"
        "assert s.add('n', 5) == 5 and s.add('n', -7) == -2 and s.get('n') == b'-2'\n"
        "assert s.compare_set('c', '', 'one') == b'one'\n"
        "assert s.compare_set('c', 'two', 'three') == b'one'\n"
        "assert s.compare_set('c', 'one', 'four') == b'four'\n"
        "assert s.check(['a', 'n']) and not s.check(['a', 'none'])\n"
        "assert s.delete_key('c') and not s.delete_key('c')\n"
        "s.multi_set(['p', 'q'], ['1', '2']); assert s.multi_get(['p', 'q']) == [b'1', "
        "b'2']\n"
        "s.append('p', 'x'); assert s.get('p') == b'1x'\n"
        "if hasattr(s, 'queue_push'):\n"
        "    s.queue_push('fifo', 'v'); assert s.queue_pop('fifo') == b'v'\n"
        "    assert s.queue_len('fifo') == 0\n"
        "if hasattr(s, 'list_keys'): assert sorted(s.list_keys()) == ['a', 'n', 'p', "
        "'q']\n"
        "try:\n"
        "    s.wait(['never'], datetime.timedelta(milliseconds=300)); sys.exit(3)\n"
        "except Exception: pass\n"
        "assert s.get('a') == b'x'\n"
        "if hasattr(s, 'barrier'): s.barrier('b', 1)\n"
        "if os.fork():\n"
        "    rank = 0\n"
        "else:\n"
        "    rank = 1\n"
        "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), "
        "RANK=str(rank),\n"
        "    WORLD_SIZE='2', TORCHELASTIC_USE_AGENT_STORE='True')\n"
        "d.init_process_group('gloo', init_method='env://')\n"
        "t = torch.ones(4) * (rank + 1); d.all_reduce(t); assert t.tolist() == [3.0] * "
        "4\n"
        "d.barrier(); d.destroy_process_group()\n"
        "if rank == 0: assert os.wait()[1] == 0\n"
        "os._exit(0)\n";
    struct tcp_host host;
    char port[16];

    (void)state;
    if (!have_torch()) {
        print_message("skipped - no torch in ZT_VENV or build/venv\n");
        skip();
    }
    assert_int_equal(tcp_host_open(&host), 0);
    snprintf(port, sizeof(port), "%d", host.port);
    assert_int_equal(run_python(program, port), 0);
    tcp_host_close(&host);
}

static void our_client_is_served_by_torch(void **state)
{
    static const char program[] =
        "import sys, torch.distributed as d\n"
        "s = d.TCPStore('127.0.0.1', 0, None, True, wait_for_workers=False)\n"
        "f = open(sys.argv[1], 'w'); f.write(str(s.port)); f.close()\n"
        "sys.stdin = open(sys.argv[1] + '.in'); sys.stdin.read()\n";
    char folder[] = "/tmp/zt-tcpstore-XXXXXX", file[64], fifo[64], text[16] = "";
    FILE *in;
    int status;
    pid_t pid;

    (void)state;
    if (!have_torch()) {
        print_message("skipped - no torch in ZT_VENV or build/venv\n");
        skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/port", folder);
    snprintf(fifo, sizeof(fifo), "%s/port.in", folder);
    snprintf(text, sizeof(text), "%d", 0);
    {
        char command[160];

        snprintf(command, sizeof(command), "mkfifo %s", fifo);
        assert_int_equal(system(command), 0);
    }
    pid = fork();
    if (pid == 0) {
        execl(python(), python(), "-c", program, file, (char *)NULL);
        _exit(126);
    }
    in = fopen(fifo, "we"); /* opens when the program is there, with its port written */
    assert_non_null(in);
    {
        FILE *f = fopen(file, "re");

        assert_non_null(f);
        assert_non_null(fgets(text, sizeof(text), f));
        fclose(f);
    }
    exercise_client(atoi(text));
    fclose(in);
    assert_true(waitpid(pid, &status, 0) == pid && status == 0);
    unlink(file);
    unlink(fifo);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_client_and_our_server_agree),
        cmocka_unit_test(a_wait_is_answered_when_another_client_sets),
        cmocka_unit_test(requests_in_any_pieces_have_the_same_answers),
        cmocka_unit_test(what_no_torch_client_sends_ends_the_connection),
        cmocka_unit_test(torch_clients_are_served_by_our_server),
        cmocka_unit_test(our_client_is_served_by_torch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
