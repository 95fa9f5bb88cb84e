#include "launcher/ssh/config.h"

#include "launcher/ssh/formats.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX_BYTES (4u << 20)
#define MAX_DEPTH      16
#define MAX_WORDS      64
#define MAX_LINE       4096

struct source {
    const char *file, *folder, *host;
    int line, depth;
    bool applies; /* the Host block we are in */
    struct zt_ssh_config *c;
};

/* Keyword, and the words of its value; they point into one line's copy. */
struct setting {
    char text[MAX_LINE];
    char *key, *word[MAX_WORDS];
    int num;
};

void zt_ssh_config_init(struct zt_ssh_config *c)
{
    *c = (struct zt_ssh_config){.identities_only = -1, .strict = -1};
}

void zt_ssh_config_release(struct zt_ssh_config *c)
{
    free(c->host_name);
    free(c->user);
    free(c->jump);
    for (int i = 0; i < c->num_files; i++)
        free(c->file[i]);
    for (int i = 0; i < c->num_known; i++)
        free(c->known[i]);
    free(c->needs_program);
    zt_ssh_config_init(c);
}

static zt_err note(const struct source *s, const char *what)
{
    if (s->c->needs_program)
        return ZT_OK;
    if (asprintf(&s->c->needs_program, "%s:%d %s", s->file, s->line, what) < 0) {
        s->c->needs_program = NULL;
        return ZT_E_NOMEM;
    }
    return ZT_OK;
}

/* ------------------------------------------------------------------ values */

static zt_err set_text(char **to, const char *value)
{
    if (*to)
        return ZT_OK;
    *to = strdup(value);
    return *to ? ZT_OK : ZT_E_NOMEM;
}

static zt_err add_text(char **list, int *num, const char *value)
{
    if (*num == ZT_SSH_MAX_FILES)
        return ZT_OK;
    list[*num] = strdup(value);
    if (!list[*num])
        return ZT_E_NOMEM;
    ++*num;
    return ZT_OK;
}

static bool is_yes(const char *v)
{
    return strcasecmp(v, "yes") == 0 || strcasecmp(v, "true") == 0;
}

static bool is_no(const char *v)
{
    return strcasecmp(v, "no") == 0 || strcasecmp(v, "false") == 0;
}

static zt_err take_host_name(struct source *s, const struct setting *v)
{
    return set_text(&s->c->host_name, v->word[0]);
}

static zt_err take_port(struct source *s, const struct setting *v)
{
    char *end;
    long port = strtol(v->word[0], &end, 10);

    if (*end || port < 1 || port > 65535)
        return note(s, "has a Port that is none");
    if (!s->c->port)
        s->c->port = (int)port;
    return ZT_OK;
}

static zt_err take_user(struct source *s, const struct setting *v)
{
    return set_text(&s->c->user, v->word[0]);
}

static zt_err take_file(struct source *s, const struct setting *v)
{
    if (strcasecmp(v->word[0], "none") == 0)
        return ZT_OK;
    return add_text(s->c->file, &s->c->num_files, v->word[0]);
}

static zt_err take_known(struct source *s, const struct setting *v)
{
    zt_err rc = ZT_OK;

    if (s->c->num_known)
        return ZT_OK;
    for (int i = 0; !rc && i < v->num; i++)
        rc = add_text(s->c->known, &s->c->num_known,
                      strcasecmp(v->word[i], "none") == 0 ? "/dev/null" : v->word[i]);
    return rc;
}

static zt_err take_identities_only(struct source *s, const struct setting *v)
{
    if (s->c->identities_only < 0)
        s->c->identities_only = is_yes(v->word[0]);
    return ZT_OK;
}

static zt_err take_strict(struct source *s, const struct setting *v)
{
    if (s->c->strict >= 0)
        return ZT_OK;
    if (strcasecmp(v->word[0], "accept-new") == 0 || strcasecmp(v->word[0], "ask") == 0)
        s->c->strict = 1; /* nobody is there to be asked, and nothing is written */
    else
        s->c->strict = !is_no(v->word[0]) && strcasecmp(v->word[0], "off") != 0;
    return ZT_OK;
}

/* ProxyJump and ProxyCommand: whichever comes first; several jumps are for ssh. */
static zt_err take_jump(struct source *s, const struct setting *v)
{
    if (s->c->jump_set || s->c->proxy_set)
        return ZT_OK;
    s->c->jump_set = true;
    if (strcasecmp(v->word[0], "none") == 0)
        return ZT_OK;
    if (strchr(v->word[0], ','))
        return note(s, "sets a ProxyJump over several hosts");
    return set_text(&s->c->jump, v->word[0]);
}

static zt_err take_proxy(struct source *s, const struct setting *v)
{
    if (s->c->jump_set || s->c->proxy_set)
        return ZT_OK;
    s->c->proxy_set = true;
    if (strcasecmp(v->word[0], "none") == 0)
        return ZT_OK;
    return note(s, "sets ProxyCommand");
}

/* Fine unless it switches public keys off. */
static zt_err take_pubkey(struct source *s, const struct setting *v)
{
    return is_no(v->word[0]) ? note(s, "switches PubkeyAuthentication off") : ZT_OK;
}

static const struct {
    const char *key;
    zt_err (*take)(struct source *s, const struct setting *v);
} honoured[] = {
    {"HostName", take_host_name},
    {"Port", take_port},
    {"User", take_user},
    {"IdentityFile", take_file},
    {"UserKnownHostsFile", take_known},
    {"IdentitiesOnly", take_identities_only},
    {"StrictHostKeyChecking", take_strict},
    {"ProxyJump", take_jump},
    {"ProxyCommand", take_proxy},
    {"PubkeyAuthentication", take_pubkey},
};

/* They change nothing about a session without a terminal that runs one command. */
static const char *const passed_over[] = {
    "AddKeysToAgent",
    "BatchMode",
    "CheckHostIP",
    "ClearAllForwardings",
    "Compression",
    "ConnectTimeout",
    "ConnectionAttempts",
    "ControlMaster",
    "ControlPath",
    "ControlPersist",
    "EnableSSHKeysign",
    "EscapeChar",
    "ExitOnForwardFailure",
    "ForwardAgent",
    "ForwardX11",
    "ForwardX11Timeout",
    "ForwardX11Trusted",
    "GSSAPIAuthentication",
    "GSSAPIDelegateCredentials",
    "HashKnownHosts",
    "IPQoS",
    "KbdInteractiveAuthentication",
    "ChallengeResponseAuthentication",
    "LogLevel",
    "NoHostAuthenticationForLocalhost",
    "NumberOfPasswordPrompts",
    "PasswordAuthentication",
    "PermitLocalCommand",
    "RequestTTY",
    "SendEnv",
    "ServerAliveCountMax",
    "ServerAliveInterval",
    "SetEnv",
    "TCPKeepAlive",
    "Tunnel",
    "UpdateHostKeys",
    "UseKeychain",
    "VerifyHostKeyDNS",
    "VisualHostKey",
    "XAuthLocation",
};

/* ------------------------------------------------------------------ lines */

static zt_err parse(struct source *s, const char *text, size_t bytes);

/* KEY [=] WORD..., words perhaps in double quotes. False: nothing, or not well formed. */
static bool split(const char *p, size_t n, struct setting *out)
{
    char *t = out->text;

    out->num = 0;
    if (n >= sizeof(out->text))
        return false;
    memcpy(t, p, n);
    t[n] = 0;
    t += strspn(t, " \t\r\f");
    out->key = t;
    t += strcspn(t, " \t=");
    if (*t) {
        bool equals = *t == '=';

        *t++ = 0;
        t += strspn(t, " \t");
        if (!equals && *t == '=')
            t++;
    }
    for (;;) {
        t += strspn(t, " \t\r\f");
        if (!*t || (*t == '#' && out->num))
            break;
        if (out->num == MAX_WORDS)
            return false;
        if (*t == '"') {
            out->word[out->num++] = ++t;
            t = strchr(t, '"');
            if (!t)
                return false;
        } else {
            out->word[out->num++] = t;
            t += strcspn(t, " \t\r\f");
        }
        if (*t)
            *t++ = 0;
    }
    return out->num > 0;
}

/* Host a b !c: some word matches and no negated one does. */
static bool host_block(const struct source *s, const struct setting *v)
{
    bool found = false;

    for (int i = 0; i < v->num; i++) {
        int m = zt_pattern_list(v->word[i], strlen(v->word[i]), ',', s->host);

        if (m < 0)
            return false;
        found = found || m > 0;
    }
    return found;
}

static zt_err include_one(struct source *s, const char *path)
{
    size_t n;
    char *text = zt_small_file(path, FILE_MAX_BYTES, &n);
    struct source inner = {path, s->folder, s->host, 0, s->depth + 1, s->applies, s->c};
    zt_err rc;

    if (!text)
        return ZT_OK; /* as ssh: what cannot be read is passed over */
    rc = parse(&inner, text, n);
    free(text);
    return rc;
}

static zt_err include(struct source *s, const struct setting *v)
{
    zt_err rc = ZT_OK;

    if (!s->folder || s->depth == MAX_DEPTH)
        return note(s, "includes a file");
    for (int i = 0; !rc && i < v->num; i++) {
        const char *home = getenv("HOME"), *w = v->word[i];
        char *pattern;
        glob_t g;
        int k;

        if (w[0] == '~' && w[1] == '/')
            k = asprintf(&pattern, "%s%s", home ? home : "", w + 1);
        else
            k = asprintf(&pattern, "%s%s%s", *w == '/' ? "" : s->folder,
                         *w == '/' ? "" : "/", w);
        if (k < 0)
            return ZT_E_NOMEM;
        if (glob(pattern, 0, NULL, &g) == 0) {
            for (size_t j = 0; !rc && j < g.gl_pathc; j++)
                rc = include_one(s, g.gl_pathv[j]);
            globfree(&g);
        }
        free(pattern);
    }
    return rc;
}

static zt_err other(struct source *s, const struct setting *v)
{
    char what[96];

    for (size_t i = 0; i < sizeof(passed_over) / sizeof(*passed_over); i++)
        if (strcasecmp(v->key, passed_over[i]) == 0)
            return ZT_OK;
    snprintf(what, sizeof(what), "sets %.60s", v->key);
    return note(s, what);
}

static zt_err take_line(struct source *s, const struct setting *v)
{
    if (strcasecmp(v->key, "Host") == 0) {
        s->applies = host_block(s, v);
        return ZT_OK;
    }
    if (strcasecmp(v->key, "Match") == 0) {
        s->applies = v->num == 1 && strcasecmp(v->word[0], "all") == 0;
        return s->applies ? ZT_OK : note(s, "has a Match block");
    }
    if (!s->applies)
        return ZT_OK;
    if (strcasecmp(v->key, "Include") == 0)
        return include(s, v);
    for (size_t i = 0; i < sizeof(honoured) / sizeof(*honoured); i++)
        if (strcasecmp(v->key, honoured[i].key) == 0)
            return honoured[i].take(s, v);
    return other(s, v);
}

static zt_err parse(struct source *s, const char *text, size_t bytes)
{
    const char *p = text, *all = text + bytes;
    struct setting *v = malloc(sizeof(*v));
    zt_err rc = v ? ZT_OK : ZT_E_NOMEM;

    while (!rc && p < all) {
        const char *nl = memchr(p, '\n', (size_t)(all - p));
        const char *end = nl ? nl : all;

        s->line++;
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p < end && *p != '#') {
            if (memchr(p, 0, (size_t)(end - p)) || !split(p, (size_t)(end - p), v))
                rc = s->applies ? note(s, "is a line zlaunch cannot read") : ZT_OK;
            else
                rc = take_line(s, v);
        }
        p = nl ? nl + 1 : all;
    }
    free(v);
    return rc;
}

zt_err zt_ssh_config_parse(const char *text, size_t bytes, const char *file,
                           const char *folder, const char *host, struct zt_ssh_config *c)
{
    struct source s = {file, folder, host, 0, 0, true, c};

    return parse(&s, text, bytes);
}

zt_err zt_ssh_config_read(const char *file, const char *folder, const char *host,
                          struct zt_ssh_config *c, struct zt_fault *fault)
{
    size_t n;
    char *text = zt_small_file(file, FILE_MAX_BYTES, &n);
    zt_err rc;

    if (!text && (errno == ENOENT || errno == ENOTDIR))
        return ZT_OK;
    if (!text)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", file, strerror(errno));
    rc = zt_ssh_config_parse(text, n, file, folder, host, c);
    free(text);
    if (rc)
        return zt_fault_set(fault, rc, "%s: no memory", file);
    return ZT_OK;
}

/* ------------------------------------------------------------------ tokens */

char *zt_ssh_config_expand(const char *text, const struct zt_ssh_tokens *t)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);
    bool ok = f != NULL;

    if (ok && text[0] == '~' && (!text[1] || text[1] == '/')) {
        fputs(t->home, f);
        text++;
    }
    for (; ok && *text; text++) {
        if (*text != '%') {
            fputc(*text, f);
            continue;
        }
        switch (*++text) {
        case 'h':
            fputs(t->host, f);
            break;
        case 'd':
            fputs(t->home, f);
            break;
        case 'u':
            fputs(t->local_user, f);
            break;
        case 'r':
            fputs(t->user, f);
            break;
        case 'p':
            fprintf(f, "%d", t->port);
            break;
        case '%':
            fputc('%', f);
            break;
        default:
            ok = false;
            errno = EINVAL;
            text--; /* a token cut short must not be stepped over */
        }
    }
    if (f && fclose(f) != 0 && ok) {
        ok = false;
        errno = ENOMEM;
    }
    if (!ok) {
        int e = errno;

        free(out);
        errno = e;
        return NULL;
    }
    return out;
}
