/* interfaces.c -- the addresses of this node, and what is known of their interfaces. */
#include "worker/daemon/links_private.h"

#include "common/json/line.h"
#include "common/sysfile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void zt_links_network(char out[ZT_LINKS_NETWORK])
{
    struct stat sb = {0};
    char boot[64];

    zt_sysfile_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (stat("/proc/self/ns/net", &sb) < 0)
        sb.st_ino = 0;
    snprintf(out, ZT_LINKS_NETWORK, "%s:%llu", boot, (unsigned long long)sb.st_ino);
}

/* Speed in Mbit/s; 0: the driver does not say. */
static int speed_of(const char *name)
{
    char path[128], line[32];
    long mbps;

    snprintf(path, sizeof(path), "/sys/class/net/%.64s/speed", name);
    zt_sysfile_line(path, line, sizeof(line));
    mbps = strtol(line, NULL, 10);
    return mbps > 0 && mbps < 100000000 ? (int)mbps : 0;
}

static int prefix_bits(const struct sockaddr *mask)
{
    const uint8_t *p;
    int bits = 0;
    size_t n = mask->sa_family == AF_INET6 ? 16 : 4;

    p = n == 4 ? (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr
               : (const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr;
    for (size_t i = 0; i < n; i++)
        bits += __builtin_popcount(p[i]);
    return bits;
}

/* A port of this address that waits for visitors; addresses that do not allow it (IPv6
 * that is still being set up) are left out. */
static void listen_on(struct zt_links *l, const uv_interface_address_t *ifa)
{
    struct zt_link_port *port = &l->ports[l->num_ports];
    const struct sockaddr *mask = (const struct sockaddr *)&ifa->netmask;
    struct sockaddr_storage bound;
    int n = sizeof(bound);

    if (l->num_ports == ZT_LINKS_ADDRESSES ||
        !zt_links_listen(l, (const struct sockaddr *)&ifa->address, &bound, &n))
        return;
    snprintf(port->name, sizeof(port->name), "%s", ifa->name);
    uv_ip_name((const struct sockaddr *)&ifa->address, port->address,
               sizeof(port->address));
    port->port =
        ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                          : ((struct sockaddr_in *)&bound)->sin_port);
    port->bits = mask->sa_family == bound.ss_family ? prefix_bits(mask) : 0;
    port->loopback = ifa->is_internal != 0;
    port->mbps = speed_of(ifa->name);
    l->num_ports++;
}

zt_err zt_links_listen_all(struct zt_links *l, struct zt_fault *fault)
{
    uv_interface_address_t *list;
    int num, e = uv_interface_addresses(&list, &num);

    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "network interfaces: %s", uv_strerror(e));
    for (int i = 0; i < num; i++) {
        const struct sockaddr_in6 *six = &list[i].address.address6;

        /* fe80:: means another network on every interface */
        if (six->sin6_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
            listen_on(l, &list[i]);
    }
    uv_free_interface_addresses(list, num);
    return ZT_OK;
}

json_t *zt_links_describe(const struct zt_links *l)
{
    json_t *o = json_object(), *list = json_array();

    for (int i = 0; i < l->num_ports; i++) {
        const struct zt_link_port *p = &l->ports[i];
        json_t *one = json_object();

        json_object_set_new(one, "name", zt_json_text(p->name, strlen(p->name)));
        json_object_set_new(one, "address", json_string(p->address));
        json_object_set_new(one, "bits", json_integer(p->bits));
        json_object_set_new(one, "port", json_integer(p->port));
        json_object_set_new(one, "mbps", json_integer(p->mbps));
        json_object_set_new(one, "loopback", json_boolean(p->loopback));
        json_array_append_new(list, one);
    }
    json_object_set_new(o, "ask", json_stringn(l->ask, ZT_LINKS_WORD));
    json_object_set_new(o, "answer", json_stringn(l->answer, ZT_LINKS_WORD));
    json_object_set_new(o, "rdma", json_boolean(zt_sysfile_has_rdma()));
    json_object_set_new(o, "addresses", list);
    return o;
}
