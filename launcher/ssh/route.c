#include "launcher/ssh/route.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PORT 22

struct me {
    const char *home, *pw_home;
    char name[256];
};

static void who_am_i(struct me *me)
{
    const struct passwd *pw = getpwuid(getuid());
    const char *home = getenv("HOME"), *user = getenv("USER");

    me->pw_home = pw ? pw->pw_dir : "/";
    me->home = home && *home ? home : me->pw_home;
    snprintf(me->name, sizeof(me->name), "%s", pw ? pw->pw_name : user ? user : "root");
}

static char *join(const char *folder, const char *name)
{
    char *path;

    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static zt_err read_config(struct zt_ssh_route *r, const char *name, const struct me *me,
                          struct zt_fault *fault)
{
    char *folder = join(me->home, ".ssh");
    char *path = folder ? join(folder, "config") : NULL;
    zt_err rc = ZT_OK;

    if (!path)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "ssh: no memory for a path");
    if (!rc)
        rc = zt_ssh_config_read(path, folder, name, &r->config, fault);
    if (!rc)
        rc = zt_ssh_config_read("/etc/ssh/ssh_config", "/etc/ssh", name, &r->config,
                                fault);
    /* the program finds the user's own files by the password database */
    if (!rc && strcmp(me->home, me->pw_home) != 0 && access(path, R_OK) == 0)
        r->program_config = strdup(path);
    free(path);
    free(folder);
    return rc;
}

/* A setting with ~ and % in it, into list[*n]. What cannot be expanded is for ssh. */
static zt_err expand(struct zt_ssh_route *r, const char *text,
                     const struct zt_ssh_tokens *tokens, char **list, int *n)
{
    char *out = zt_ssh_config_expand(text, tokens);

    if (out) {
        list[(*n)++] = out;
        return ZT_OK;
    }
    if (errno != EINVAL)
        return ZT_E_NOMEM;
    if (!r->needs_program &&
        asprintf(&r->needs_program, "ssh_config has '%s', whose %%-tokens are ssh's own",
                 text) < 0) {
        r->needs_program = NULL;
        return ZT_E_NOMEM;
    }
    return ZT_OK;
}

static zt_err host_name(struct zt_ssh_route *r, const struct zt_ssh_target *t,
                        struct zt_ssh_tokens *tokens)
{
    char *found[1] = {NULL};
    zt_err rc = ZT_OK;
    int n = 0;

    if (r->config.host_name)
        rc = expand(r, r->config.host_name, tokens, found, &n);
    r->host = n ? found[0] : strdup(t->name);
    tokens->host = r->host;
    return r->host ? rc : ZT_E_NOMEM;
}

static zt_err key_files(struct zt_ssh_route *r, const struct zt_ssh_options *opt,
                        const struct zt_ssh_tokens *tokens)
{
    static const char *const usual[] = {"id_ed25519", "id_ecdsa", "id_rsa"};
    zt_err rc = ZT_OK;
    int n = 0, k = 0;
    char text[64];

    if (opt->identity)
        rc = expand(r, opt->identity, tokens, r->named, &n);
    for (int i = 0; !rc && i < r->config.num_files; i++)
        rc = expand(r, r->config.file[i], tokens, r->named, &n);
    for (size_t i = 0; !rc && !n && i < sizeof(usual) / sizeof(*usual); i++) {
        snprintf(text, sizeof(text), "~/.ssh/%s", usual[i]);
        rc = expand(r, text, tokens, r->usual, &k);
    }
    return rc;
}

static zt_err known_files(struct zt_ssh_route *r, const struct zt_ssh_options *opt,
                          const struct zt_ssh_tokens *tokens)
{
    static const char *const usual[] = {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"};
    static const char *const global[] = {"/etc/ssh/ssh_known_hosts",
                                         "/etc/ssh/ssh_known_hosts2"};
    zt_err rc = ZT_OK;
    int n = 0;

    if (opt->known_hosts)
        rc = expand(r, opt->known_hosts, tokens, r->known, &n);
    for (int i = 0; !rc && !opt->known_hosts && i < r->config.num_known; i++)
        rc = expand(r, r->config.known[i], tokens, r->known, &n);
    for (int i = 0; !rc && !opt->known_hosts && !r->config.num_known && i < 2; i++)
        rc = expand(r, usual[i], tokens, r->known, &n);
    for (int i = 0; !rc && i < 2; i++)
        rc = expand(r, global[i], tokens, r->known, &n);
    return rc;
}

static zt_err jump_and_reason(struct zt_ssh_route *r, const struct zt_ssh_options *opt)
{
    const char *jump = opt->jump ? opt->jump : r->config.jump;

    if (jump && strcmp(jump, "none") != 0) {
        r->jump = strdup(jump);
        if (!r->jump)
            return ZT_E_NOMEM;
    }
    if (!r->needs_program && r->config.needs_program) {
        r->needs_program = strdup(r->config.needs_program);
        if (!r->needs_program)
            return ZT_E_NOMEM;
    }
    if (!r->needs_program && r->jump && strchr(r->jump, ',')) {
        r->needs_program = strdup("the way goes over several jump hosts");
        if (!r->needs_program)
            return ZT_E_NOMEM;
    }
    return ZT_OK;
}

zt_err zt_ssh_route_init(struct zt_ssh_route *r, const struct zt_ssh_target *t,
                         const struct zt_ssh_options *opt, struct zt_fault *fault)
{
    struct zt_ssh_tokens tokens;
    struct me me;
    zt_err rc;

    *r = (struct zt_ssh_route){.link.fd = -1};
    zt_ssh_config_init(&r->config);
    who_am_i(&me);
    rc = read_config(r, t->name, &me, fault);
    if (rc)
        return rc;
    r->label = t->label ? strdup(t->label) : NULL;
    r->user = strdup(t->user ? t->user : r->config.user ? r->config.user : me.name);
    tokens = (struct zt_ssh_tokens){me.home, t->name, me.name, r->user,
                                    t->port          ? t->port
                                    : r->config.port ? r->config.port
                                                     : DEFAULT_PORT};
    rc = (r->label || !t->label) && r->user ? host_name(r, t, &tokens) : ZT_E_NOMEM;
    if (!rc)
        rc = key_files(r, opt, &tokens);
    if (!rc)
        rc = known_files(r, opt, &tokens);
    if (!rc)
        rc = jump_and_reason(r, opt);
    if (rc)
        return zt_fault_set(fault, rc, "ssh to %s: no memory", t->name);
    r->link = (struct zt_ssh_session_config){
        .label = r->label,
        .host = r->host,
        .port = tokens.port,
        .user = r->user,
        .identities = r->named,
        .default_files = r->usual,
        .agent = r->config.identities_only > 0 ? NULL : getenv("SSH_AUTH_SOCK"),
        .known_files = r->known,
        .check_host_key =
            opt->check_host_key && (opt->known_hosts || r->config.strict != 0),
        .timeout_s = t->timeout_s,
        .fd = -1,
    };
    if (r->link.agent && !*r->link.agent)
        r->link.agent = NULL;
    return ZT_OK;
}

static void free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
}

void zt_ssh_route_release(struct zt_ssh_route *r)
{
    zt_ssh_config_release(&r->config);
    free(r->label);
    free(r->host);
    free(r->user);
    free_list(r->named, sizeof(r->named) / sizeof(*r->named));
    free_list(r->usual, sizeof(r->usual) / sizeof(*r->usual));
    free_list(r->known, sizeof(r->known) / sizeof(*r->known));
    free(r->jump);
    free(r->needs_program);
    free(r->program_config);
    *r = (struct zt_ssh_route){.link.fd = -1};
    zt_ssh_config_init(&r->config);
}

zt_err zt_ssh_split(const char *text, char **user, char **host, int *port,
                    struct zt_fault *fault)
{
    const char *p = strncmp(text, "ssh://", 6) == 0 ? text + 6 : text;
    const char *at = strrchr(p, '@'), *name = at ? at + 1 : p;
    const char *end = name + strlen(name), *colon;
    char *stop = NULL;
    long number = 0;

    if (*name == '[') {
        const char *bracket = strchr(name, ']');

        name++;
        colon = bracket && bracket[1] == ':' ? bracket + 1 : NULL;
        end = bracket ? bracket : name;
        if (bracket && bracket[1] && !colon)
            end = name; /* something odd behind the bracket: refused below */
    } else {
        colon = strrchr(name, ':');
        if (colon && strchr(name, ':') != colon)
            colon = NULL; /* a bare IPv6 address */
        end = colon ? colon : end;
    }
    if (colon)
        number = strtol(colon + 1, &stop, 10);
    if (end == name || *name == '-' || (at && at == p) || (at && *p == '-') ||
        (colon && (*stop || stop == colon + 1 || number < 1 || number > 65535)))
        return zt_fault_set(fault, ZT_E_USAGE, "'%.200s': expected [user@]host[:port]",
                            text);
    *user = at ? strndup(p, (size_t)(at - p)) : NULL;
    *host = strndup(name, (size_t)(end - name));
    *port = (int)number;
    if (!*host || (at && !*user)) {
        free(*user);
        free(*host);
        return zt_fault_set(fault, ZT_E_NOMEM, "ssh: no memory for a name");
    }
    return ZT_OK;
}
