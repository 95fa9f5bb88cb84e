/* The choice of a network, from what the nodes reached. No sockets here. */
#include "launcher/supervise/network.h"

#include "common/json/line.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Round trips that differ by less count as equal. */
#define SAME_RATIO 1.25
#define SAME_US    50.0

/* ------------------------------------------------------------------ the table */

zt_err zt_links_table_init(struct zt_links_table *t, int num, struct zt_fault *fault)
{
    *t = (struct zt_links_table){.num = num};
    t->node = calloc((size_t)num, sizeof(*t->node));
    t->reached = calloc((size_t)num * (size_t)num, sizeof(*t->reached));
    if (t->node && t->reached)
        return ZT_OK;
    zt_links_table_release(t);
    return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory for %d nodes", num);
}

void zt_links_table_release(struct zt_links_table *t)
{
    for (int i = 0; t->node && i < t->num; i++) {
        free(t->node[i].ask);
        free(t->node[i].answer);
    }
    free(t->node);
    free(t->reached);
    *t = (struct zt_links_table){0};
}

static bool read_address(const json_t *o, struct zt_link_address *a)
{
    const char *text = zt_json_get_text(o, "address", "");
    int64_t port = zt_json_get_int(o, "port", 0), bits = zt_json_get_int(o, "bits", 0);
    int64_t mbps = zt_json_get_int(o, "mbps", 0);

    *a = (struct zt_link_address){.family = strchr(text, ':') ? AF_INET6 : AF_INET};
    if (inet_pton(a->family, text, a->bytes) != 1 || port < 1 || port > 65535 ||
        bits < 0 || bits > (a->family == AF_INET ? 32 : 128) || mbps < 0 ||
        mbps > 100000000)
        return false;
    snprintf(a->text, sizeof(a->text), "%s", text);
    snprintf(a->name, sizeof(a->name), "%s", zt_json_get_text(o, "name", ""));
    a->port = (int)port;
    a->bits = (int)bits;
    a->mbps = (int)mbps;
    return a->name[0] != 0;
}

bool zt_links_table_here(struct zt_links_table *t, int i, const json_t *here)
{
    struct zt_link_node *n = &t->node[i];
    const char *ask = zt_json_get_text(here, "ask", NULL);
    const char *answer = zt_json_get_text(here, "answer", NULL);
    const json_t *a;
    size_t k;

    if (!ask || !answer)
        return false;
    free(n->ask);
    free(n->answer);
    n->ask = strdup(ask);
    n->answer = strdup(answer);
    n->rdma = json_is_true(json_object_get(here, "rdma"));
    n->num = 0;
    json_array_foreach(json_object_get(here, "addresses"), k, a)
    {
        if (json_is_true(json_object_get(a, "loopback")) ||
            n->num == ZT_PREFLIGHT_ADDRESSES)
            continue;
        if (!read_address(a, &n->at[n->num]))
            return false;
        n->num++;
    }
    return n->ask && n->answer;
}

bool zt_links_table_found(struct zt_links_table *t, int i, const json_t *found)
{
    const json_t *list = json_object_get(found, "reached"), *v;
    size_t k;

    json_array_foreach(list, k, v)
    {
        json_int_t to = json_integer_value(json_array_get(v, 0));
        json_int_t at = json_integer_value(json_array_get(v, 1));
        json_int_t us = json_integer_value(json_array_get(v, 2));
        struct zt_link_address *a;

        if (!json_is_array(v) || to < 0 || to >= t->num || to == i || at < 0 ||
            at >= t->node[to].num || us < 0)
            return false;
        a = &t->node[to].at[at];
        a->mean_us = (a->mean_us * a->num_from + (double)us) / (a->num_from + 1);
        a->num_from++;
        t->reached[(size_t)i * (size_t)t->num + (size_t)to] = true;
    }
    return json_is_array(list);
}

void zt_links_table_clear(struct zt_links_table *t)
{
    memset(t->reached, 0, (size_t)t->num * (size_t)t->num * sizeof(*t->reached));
    for (int i = 0; i < t->num; i++)
        for (int k = 0; k < t->node[i].num; k++)
            t->node[i].at[k].num_from = 0;
}

/* ------------------------------------------------------------------ the choice */

static bool same_subnet(const struct zt_link_address *a, const struct zt_link_address *b)
{
    int whole = a->bits / 8, rest = a->bits % 8;
    int mask = 0xff << (8 - rest) & 0xff;

    return a->family == b->family && a->bits == b->bits &&
           memcmp(a->bytes, b->bytes, (size_t)whole) == 0 &&
           (!rest || ((a->bytes[whole] ^ b->bytes[whole]) & mask) == 0);
}

static bool same_name(const struct zt_link_address *a, const struct zt_link_address *b)
{
    return a->family == b->family && strcmp(a->name, b->name) == 0;
}

static bool same_family(const struct zt_link_address *a, const struct zt_link_address *b)
{
    return a->family == b->family;
}

static bool same_kind(const struct zt_links_table *t, const int *at,
                      bool (*same)(const struct zt_link_address *a,
                                   const struct zt_link_address *b))
{
    for (int i = 1; i < t->num; i++)
        if (!same(&t->node[0].at[at[0]], &t->node[i].at[at[i]]))
            return false;
    return true;
}

/* 169.254.0.0/16: link-local addresses, which interfaces choose themselves. */
static bool is_link_local(const struct zt_link_address *a)
{
    return a->family == AF_INET && a->bytes[0] == 169 && a->bytes[1] == 254;
}

static bool is_shorter(double a_us, double b_us)
{
    return a_us * SAME_RATIO < b_us && a_us + SAME_US < b_us;
}

/* The best address of node i that all others reach and that matches node 0's; -1:
 * none. */
static int pick(const struct zt_links_table *t, int i, const struct zt_link_address *with,
                bool (*same)(const struct zt_link_address *a,
                             const struct zt_link_address *b))
{
    const struct zt_link_node *n = &t->node[i];
    int best = -1;

    for (int k = 0; k < n->num; k++)
        if (n->at[k].num_from == t->num - 1 && same(with, &n->at[k]) &&
            (best < 0 || is_shorter(n->at[k].mean_us, n->at[best].mean_us)))
            best = k;
    return best;
}

/* Try the network of node 0's address `first`. False: it does not join all nodes. */
static bool gather(const struct zt_links_table *t, int first,
                   bool (*same)(const struct zt_link_address *a,
                                const struct zt_link_address *b),
                   struct zt_links_choice *out)
{
    const struct zt_link_address *with = &t->node[0].at[first];
    double sum = 0;

    if (with->num_from != t->num - 1)
        return false;
    out->at[0] = first;
    out->mbps = with->mbps;
    for (int i = 0; i < t->num; i++) {
        const struct zt_link_address *a;

        if (i)
            out->at[i] = pick(t, i, with, same);
        if (out->at[i] < 0)
            return false;
        a = &t->node[i].at[out->at[i]];
        sum += a->mean_us;
        if (a->mbps < out->mbps)
            out->mbps = a->mbps;
    }
    out->mean_us = sum / t->num;
    return true;
}

static bool is_better(const struct zt_links_table *t, const struct zt_links_choice *a,
                      const struct zt_links_choice *b)
{
    const struct zt_link_address *x = &t->node[0].at[a->at[0]];
    const struct zt_link_address *y = &t->node[0].at[b->at[0]];

    if (is_link_local(x) != is_link_local(y))
        return is_link_local(y);
    if (a->mbps && b->mbps && a->mbps != b->mbps)
        return a->mbps > b->mbps;
    if (is_shorter(a->mean_us, b->mean_us) || is_shorter(b->mean_us, a->mean_us))
        return a->mean_us < b->mean_us;
    return x->family == AF_INET && y->family != AF_INET;
}

zt_err zt_links_choose(const struct zt_links_table *t, struct zt_links_choice *out,
                       struct zt_fault *fault)
{
    bool (*const kinds[])(const struct zt_link_address *,
                          const struct zt_link_address *) = {same_subnet, same_name,
                                                             same_family};
    struct zt_links_choice best = {0}, now = {0};
    bool found = false;

    best.at = calloc((size_t)t->num, sizeof(int));
    now.at = calloc((size_t)t->num, sizeof(int));
    if (!best.at || !now.at) {
        free(best.at);
        free(now.at);
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory for %d nodes", t->num);
    }
    for (size_t kind = 0; !found && kind < 3; kind++)
        for (int k = 0; k < t->node[0].num; k++)
            if (gather(t, k, kinds[kind], &now) &&
                (!found || is_better(t, &now, &best))) {
                struct zt_links_choice old = best;

                best = now;
                now = old;
                found = true;
            }
    free(now.at);
    if (found) {
        best.one_name = same_kind(t, best.at, same_name);
        best.one_subnet = same_kind(t, best.at, same_subnet);
    } else {
        zt_links_choice_release(&best);
    }
    *out = best;
    return ZT_OK;
}

void zt_links_choice_release(struct zt_links_choice *c)
{
    free(c->at);
    *c = (struct zt_links_choice){0};
}

/* ------------------------------------------------------------------ in words */

static void subnet_text(const struct zt_link_address *a, char *out, size_t out_bytes)
{
    uint8_t net[16];
    char text[INET6_ADDRSTRLEN];

    memcpy(net, a->bytes, sizeof(net));
    for (int bit = a->bits; bit < (a->family == AF_INET ? 32 : 128); bit++)
        net[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
    inet_ntop(a->family, net, text, sizeof(text));
    snprintf(out, out_bytes, "%s/%d", text, a->bits);
}

void zt_links_choice_text(const struct zt_links_table *t, const struct zt_links_choice *c,
                          char *out, size_t out_bytes)
{
    const struct zt_link_address *a = &t->node[0].at[c->at[0]];
    char net[INET6_ADDRSTRLEN + 8] = "in several networks";

    if (c->one_subnet)
        subnet_text(a, net, sizeof(net));
    snprintf(out, out_bytes, "%s %s reaches all %d nodes, rtt %.*f ms",
             c->one_name ? a->name : "interfaces of several names", net, t->num,
             c->mean_us < 100 ? 2 : 1, c->mean_us / 1000);
}

json_t *zt_links_choice_env(const struct zt_links_table *t,
                            const struct zt_links_choice *c, int i)
{
    static const char *const by_name[] = {
        "GLOO_SOCKET_IFNAME",          "TP_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_oob_tcp_if_include", "FI_TCP_IFACE",
    };
    const struct zt_link_address *a = &t->node[i].at[c->at[i]];
    json_t *o = json_object(), *name = zt_json_text(a->name, strlen(a->name));
    bool rdma = false;

    for (int k = 0; k < t->num; k++)
        rdma = rdma || t->node[k].rdma;
    json_object_set_new(o, "NCCL_SOCKET_IFNAME", json_sprintf("=%s", a->name));
    for (size_t k = 0; k < sizeof(by_name) / sizeof(*by_name); k++)
        json_object_set(o, by_name[k], name);
    json_object_set_new(o, "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", json_string(a->text));
    if (!rdma) /* the name of the interface would hide the faster device */
        json_object_set(o, "UCX_NET_DEVICES", name);
    json_decref(name);
    return o;
}

#define SHOWN_IN_LINE 8 /* nodes that one cannot reach */
#define SHOWN_LINES   32

static void put_addresses(FILE *f, const struct zt_link_node *n)
{
    for (int k = 0; k < n->num; k++)
        fprintf(f, "%s%s", k ? " " : " (", n->at[k].text);
    fputs(n->num ? ")" : " (which has no network)", f);
}

char *zt_links_missing_text(const struct zt_links_table *t, int *num_pairs)
{
    char *text = NULL;
    size_t bytes;
    int lines = 0;
    FILE *f = open_memstream(&text, &bytes);

    *num_pairs = 0;
    if (!f)
        return NULL;
    for (int i = 0; i < t->num; i++) {
        int num = 0;

        for (int k = 0; k < t->num; k++) {
            if (k == i || t->reached[(size_t)i * (size_t)t->num + (size_t)k])
                continue;
            ++*num_pairs;
            if (lines >= SHOWN_LINES || ++num > SHOWN_IN_LINE)
                continue;
            if (num == 1)
                fprintf(f, "  %s cannot reach ", t->node[i].host);
            fprintf(f, "%s%s", num > 1 ? ", " : "", t->node[k].host);
            put_addresses(f, &t->node[k]);
        }
        if (num > SHOWN_IN_LINE)
            fprintf(f, " and %d more", num - SHOWN_IN_LINE);
        if (num)
            fputc('\n', f);
        lines += num > 0;
    }
    fclose(f);
    return text;
}
