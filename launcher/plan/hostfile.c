#include "launcher/plan/hostfile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES (16u << 20)

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "hosts: no memory");
}

static bool has_name(const struct zt_host *host, const char *name, size_t n)
{
    return strlen(host->name) == n && memcmp(host->name, name, n) == 0;
}

static void release_host(struct zt_host *host)
{
    free(host->name);
    free(host->user);
    free(host->slots);
}

/* A whole name as written: [USER@]HOST[:PORT], in pieces of the text. */
struct address {
    const char *user, *host;
    size_t user_bytes, host_bytes;
    int port;
};

/* What names of hosts are made of, addresses of IPv6 and their zones included; a name that
 * begins with '-' would be an option to the programs that it is handed to. */
static bool is_name(const char *p, size_t n, const char *more)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)p[i]) && (!p[i] || !strchr(more, p[i])))
            return false;
    return n && p[0] != '-';
}

static zt_err add_host(struct zt_hosts *h, const struct address *a, int num_slots,
                       struct zt_fault *fault)
{
    struct zt_host *grown = realloc(h->host, (size_t)(h->num + 1) * sizeof(*grown));
    struct zt_host *host;

    if (!grown)
        return no_memory(fault);
    h->host = grown;
    host = &h->host[h->num];
    *host = (struct zt_host){.port = a->port, .num_slots = num_slots};
    host->name = strndup(a->host, a->host_bytes);
    host->user = a->user ? strndup(a->user, a->user_bytes) : NULL;
    host->slots = calloc((size_t)num_slots, sizeof(*host->slots));
    if (!host->name || !host->slots || (a->user && !host->user)) {
        release_host(host);
        return no_memory(fault);
    }
    for (int i = 0; i < num_slots; i++)
        host->slots[i] = i;
    h->num++;
    return ZT_OK;
}

zt_err zt_hosts_one(const char *name, int num_slots, struct zt_hosts *out,
                    struct zt_fault *fault)
{
    struct address a = {.host = name, .host_bytes = strlen(name)};

    *out = (struct zt_hosts){0};
    if (!is_name(a.host, a.host_bytes, "-._:%"))
        return zt_fault_set(fault, ZT_E_USAGE, "'%.80s' is no name of a host", name);
    return add_host(out, &a, num_slots, fault);
}

void zt_hosts_release(struct zt_hosts *h)
{
    for (int i = 0; i < h->num; i++)
        release_host(&h->host[i]);
    free(h->host);
    *h = (struct zt_hosts){0};
}

/* ------------------------------------------------------------------ the file */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A decimal number from s, at most `max`; -1: none there, or too large. */
static long number(const char **s, const char *end, long max)
{
    long v = 0;
    const char *p = *s;

    if (p == end || *p < '0' || *p > '9')
        return -1;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        v = 10 * v + (*p - '0');
        if (v > max)
            return -1;
    }
    *s = p;
    return v;
}

/* [USER@]HOST[:PORT] in [p, end); false: it is not. */
static bool parse_address(const char *p, const char *end, struct address *out)
{
    const char *at = memchr(p, '@', (size_t)(end - p)), *colon, *close;
    long port = 0;

    *out = (struct address){0};
    if (at) {
        out->user = p;
        out->user_bytes = (size_t)(at - p);
        p = at + 1;
    }
    out->host = p;
    colon = memchr(p, ':', (size_t)(end - p));
    close = p < end && *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
    if (close) {
        out->host++;
        out->host_bytes = (size_t)(close - out->host);
        colon = close + 1 < end ? close + 1 : NULL;
    } else if (colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
        out->host_bytes = (size_t)(colon - p);
    } else { /* no port; several colons: an IPv6 address */
        out->host_bytes = (size_t)(end - p);
        colon = NULL;
    }
    if (colon) {
        p = colon + 1;
        port = *colon == ':' ? number(&p, end, 65535) : -1;
        if (port < 1 || p != end)
            return false;
    }
    out->port = (int)port;
    return is_name(out->host, out->host_bytes, "-._:%") &&
           (!at || is_name(out->user, out->user_bytes, "-._+$\\"));
}

/* Twice the same place? The same host is, unless both lines name a port. */
static bool stands_already(const struct zt_hosts *h, const struct address *a)
{
    for (int i = 0; i < h->num; i++) {
        const struct zt_host *o = &h->host[i];

        if (has_name(o, a->host, a->host_bytes) &&
            (!o->port || !a->port || o->port == a->port))
            return true;
    }
    return false;
}

/* "NAME slots=N", blanks trimmed. */
static zt_err parse_line(struct zt_hosts *h, const char *p, const char *end,
                         const char *file, int line, struct zt_fault *fault)
{
    const char *name = p, *after;
    struct address a;
    long slots = -1;

    if (memchr(p, 0, (size_t)(end - p)))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s:%d: a zero byte; a hostfile is text, with a line HOST "
                            "slots=N for each host",
                            file, line);
    while (p < end && !is_blank(*p))
        p++;
    after = p;
    while (p < end && is_blank(*p))
        p++;
    if (after > name && end - p > 6 && memcmp(p, "slots=", 6) == 0) {
        p += 6;
        slots = number(&p, end, ZT_MAX_SLOTS);
        if (p < end && !is_blank(*p))
            slots = -1;
        while (p < end && is_blank(*p))
            p++;
        if (p < end && *p != '#')
            slots = -1;
    }
    if (slots < 1)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s:%d: '%.*s': expected NAME slots=N with N from 1 to %d",
                            file, line, (int)(end - name < 80 ? end - name : 80), name,
                            ZT_MAX_SLOTS);
    if (!parse_address(name, after, &a))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s:%d: '%.*s' is no host; expected HOST, USER@HOST, "
                            "HOST:PORT or [IPV6]:PORT",
                            file, line, (int)(after - name < 80 ? after - name : 80),
                            name);
    if (stands_already(h, &a))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s:%d: host %.*s stands here a second time; slots=N "
                            "says how many ranks it has (for --launcher local names may "
                            "be any that differ)",
                            file, line, (int)a.host_bytes, a.host);
    return add_host(h, &a, (int)slots, fault);
}

zt_err zt_hosts_parse(const char *text, size_t bytes, const char *name,
                      struct zt_hosts *out, struct zt_fault *fault)
{
    const char *p = text, *all = text + bytes;
    struct zt_hosts h = {0};
    zt_err rc = ZT_OK;

    if (bytes > 2 && memcmp(p, "\xef\xbb\xbf", 3) == 0) /* as editors on Windows begin */
        p += 3;
    for (int line = 1; !rc && p < all; line++) {
        const char *nl = memchr(p, '\n', (size_t)(all - p));
        const char *end = nl ? nl : all, *next = nl ? nl + 1 : all;

        while (p < end && is_blank(*p))
            p++;
        while (end > p && is_blank(end[-1]))
            end--;
        if (p < end && *p != '#')
            rc = parse_line(&h, p, end, name, line, fault);
        p = next;
    }
    if (!rc && !h.num)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: no host in it", name);
    if (rc) {
        zt_hosts_release(&h);
        return rc;
    }
    *out = h;
    return ZT_OK;
}

zt_err zt_hosts_read(const char *path, struct zt_hosts *out, struct zt_fault *fault)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t n = 0, cap = 0;
    zt_err rc = ZT_OK;
    int e = 0;

    if (!f)
        return zt_fault_set(fault, ZT_E_NOINPUT, "hostfile %s: %s", path,
                            strerror(errno));
    while (!rc && !feof(f) && !ferror(f)) {
        if (n == cap) {
            bool full = cap >= FILE_MAX_BYTES;
            char *grown = full ? NULL : realloc(text, cap = cap ? 4 * cap : 4096);

            if (grown)
                text = grown;
            else
                rc = full
                         ? zt_fault_set(fault, ZT_E_FORMAT, "hostfile %s: too long", path)
                         : no_memory(fault);
        }
        errno = 0;
        if (!rc)
            n += fread(text + n, 1, cap - n, f);
        e = errno;
    }
    if (!rc && ferror(f))
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "hostfile %s: %s", path,
                          e == EISDIR ? "that is a folder; name a file with a line HOST "
                                        "slots=N for each host"
                                      : strerror(e));
    fclose(f);
    if (!rc)
        rc = zt_hosts_parse(text, n, path, out, fault);
    free(text);
    return rc;
}

/* ------------------------------------------------------------------ filters */

/* Which slots a filter names: marks[i][k] for slot k (an index) of host i. */
struct marks {
    bool **mark;
    int num;
};

static void marks_release(struct marks *m)
{
    for (int i = 0; i < m->num; i++)
        free(m->mark[i]);
    free(m->mark);
}

static zt_err marks_init(struct marks *m, const struct zt_hosts *h,
                         struct zt_fault *fault)
{
    *m = (struct marks){.mark = calloc((size_t)h->num, sizeof(*m->mark))};
    if (!m->mark)
        return no_memory(fault);
    m->num = h->num;
    for (int i = 0; i < h->num; i++) {
        m->mark[i] = calloc((size_t)h->host[i].num_slots, sizeof(**m->mark));
        if (!m->mark[i])
            return no_memory(fault);
    }
    return ZT_OK;
}

/* "0,2" in [p, end), or p NULL: all slots, of one host. */
static zt_err mark_slots(bool *mark, const struct zt_host *host, const char *p,
                         const char *end, const char *option, struct zt_fault *fault)
{
    for (int k = 0; !p && k < host->num_slots; k++)
        mark[k] = true;
    for (; p; p++) {
        long slot = number(&p, end, 1 << 24);
        int k = 0;

        if (slot < 0 || (p < end && *p != ','))
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "%s: slots of %s: expected numbers with commas between, as in %s:0,2",
                option, host->name, host->name);
        while (k < host->num_slots && host->slots[k] != slot)
            k++;
        if (k == host->num_slots)
            return zt_fault_set(fault, ZT_E_USAGE,
                                "%s: host %s has no slot %ld (it has %d)", option,
                                host->name, slot, host->num_slots);
        mark[k] = true;
        if (p == end)
            break;
    }
    return ZT_OK;
}

/* One NODE of a filter, [p, end). */
static zt_err mark_node(struct marks *m, const struct zt_hosts *h, const char *p,
                        const char *end, const char *option, struct zt_fault *fault)
{
    const char *close = p < end && *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
    const char *name = close ? p + 1 : p, *rest = close ? close + 1 : p;
    const char *colon = memchr(rest, ':', (size_t)(end - rest));
    size_t n = (size_t)((close ? close : colon ? colon : end) - name);
    zt_err rc = ZT_OK;
    bool known = false;

    if (close && rest < end && *rest != ':')
        return zt_fault_set(fault, ZT_E_USAGE, "%s: '%.*s': expected ':' behind ']'",
                            option, (int)(end - p < 80 ? end - p : 80), p);
    if (!n)
        return zt_fault_set(fault, ZT_E_USAGE, "%s: a host name is missing", option);
    for (int i = 0; !rc && i < h->num; i++) {
        if (!has_name(&h->host[i], name, n))
            continue;
        known = true;
        rc = mark_slots(m->mark[i], &h->host[i], colon ? colon + 1 : NULL, end, option,
                        fault);
    }
    if (!known)
        return zt_fault_set(fault, ZT_E_USAGE, "%s: there is no host '%.*s'", option,
                            (int)(n < 200 ? n : 200), name);
    return rc;
}

/* Drop what is not kept; hosts without slots go. */
static void keep(struct zt_hosts *h, const struct marks *m, bool keep_marked)
{
    int hosts = 0;

    for (int i = 0; i < h->num; i++) {
        struct zt_host host = h->host[i];
        int n = 0;

        for (int k = 0; k < host.num_slots; k++)
            if (m->mark[i][k] == keep_marked)
                host.slots[n++] = host.slots[k];
        host.num_slots = n;
        if (n) {
            h->host[hosts++] = host;
        } else {
            release_host(&host);
        }
    }
    h->num = hosts;
}

static zt_err filter(struct zt_hosts *h, const char *spec, bool keep_marked,
                     const char *option, struct zt_fault *fault)
{
    int left = 0;
    struct marks m;
    zt_err rc = marks_init(&m, h, fault);

    for (const char *p = spec; !rc; p++) {
        const char *end = p + strcspn(p, "@");

        rc = mark_node(&m, h, p, end, option, fault);
        p = end;
        if (!*p)
            break;
    }
    for (int i = 0; !rc && i < h->num; i++)
        for (int k = 0; k < h->host[i].num_slots; k++)
            left += m.mark[i][k] == keep_marked;
    if (!rc && !left)
        rc = zt_fault_set(fault, ZT_E_USAGE, "%s: no slot is left", option);
    if (!rc)
        keep(h, &m, keep_marked);
    marks_release(&m);
    return rc;
}

zt_err zt_hosts_include(struct zt_hosts *h, const char *spec, struct zt_fault *fault)
{
    return filter(h, spec, true, "--include", fault);
}

zt_err zt_hosts_exclude(struct zt_hosts *h, const char *spec, struct zt_fault *fault)
{
    return filter(h, spec, false, "--exclude", fault);
}

zt_err zt_hosts_limit(struct zt_hosts *h, int num_hosts, int num_slots,
                      struct zt_fault *fault)
{
    if (num_hosts > h->num)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--num_nodes %d: only %d host%s known; name more of them in a --hostfile",
            num_hosts, h->num, h->num == 1 ? " is" : "s are");
    for (int i = 0; i < (num_hosts > 0 ? num_hosts : h->num); i++)
        if (num_slots > h->host[i].num_slots)
            return zt_fault_set(fault, ZT_E_USAGE, "--num_gpus %d: host %s has %d slot%s",
                                num_slots, h->host[i].name, h->host[i].num_slots,
                                h->host[i].num_slots == 1 ? "" : "s");
    while (num_hosts > 0 && h->num > num_hosts) {
        release_host(&h->host[--h->num]);
    }
    for (int i = 0; num_slots > 0 && i < h->num; i++)
        h->host[i].num_slots = num_slots;
    return ZT_OK;
}

bool zt_host_is_here(const struct zt_host *h)
{
    char own[256] = "";
    size_t n;

    if (h->user || h->port)
        return false;
    if (strcmp(h->name, "localhost") == 0 || strcmp(h->name, "127.0.0.1") == 0 ||
        strcmp(h->name, "::1") == 0)
        return true;
    gethostname(own, sizeof(own) - 1);
    n = strcspn(own, ".");
    return strcmp(h->name, own) == 0 ||
           (strlen(h->name) == n && memcmp(h->name, own, n) == 0);
}

int zt_hosts_total(const struct zt_hosts *h)
{
    int total = 0;

    for (int i = 0; i < h->num; i++)
        total += h->host[i].num_slots;
    return total;
}
