#include "launcher/ssh/quote.h"

#include <ctype.h>
#include <string.h>

/* An error in a line ends the shell; the end of stdin does so in order. */
const char zt_shell_bootstrap[] =
    "exec /bin/sh -c 'while IFS= read -r zl_l; do eval \"$zl_l\" || exit 126; done'";

bool zt_env_name_ok(const char *name, size_t n)
{
    if (!n || isdigit((unsigned char)*name))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return true;
}

static zt_err put(struct zt_buf *out, const char *text)
{
    return zt_buf_put(out, text, strlen(text));
}

zt_err zt_shell_word(struct zt_buf *out, const char *text)
{
    zt_err rc = put(out, "'");

    while (!rc && *text) {
        size_t n = strcspn(text, "'\n");

        rc = zt_buf_put(out, text, n);
        text += n;
        if (!rc && *text) {
            rc = put(out, *text == '\n' ? "'\"$zl_n\"'" : "'\\''");
            text++;
        }
    }
    return rc ? rc : put(out, "'");
}

static zt_err put_exports(struct zt_buf *out, char *const *env, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (; !rc && env && *env; env++) {
        const char *eq = strchr(*env, '=');
        size_t n = eq ? (size_t)(eq - *env) : strlen(*env);

        if (!eq || !zt_env_name_ok(*env, n))
            return zt_fault_set(fault, ZT_E_ARG,
                                "cannot set a variable named '%.*s' on another host: "
                                "names are letters, digits and _",
                                (int)(n < 80 ? n : 80), *env);
        rc = put(out, "export ");
        if (!rc)
            rc = zt_buf_put(out, *env, n + 1);
        if (!rc)
            rc = zt_shell_word(out, eq + 1);
        if (!rc)
            rc = put(out, "\n");
    }
    return rc;
}

/* cd A || { note; cd B; } */
static zt_err put_folder(struct zt_buf *out, const struct zt_shell_job *job)
{
    zt_err rc = ZT_OK;

    if (!job->cwd && !job->other_cwd)
        return ZT_OK; /* the home it is */
    rc = put(out, "cd ");
    if (!rc && job->cwd) {
        rc = zt_shell_word(out, job->cwd);
        if (!rc)
            rc = put(out, " 2>/dev/null || { cd ");
    }
    if (!rc && job->other_cwd)
        rc = zt_shell_word(out, job->other_cwd);
    if (!rc && job->cwd) {
        rc = put(out, "; echo no folder ");
        if (!rc)
            rc = zt_shell_word(out, job->cwd);
        if (!rc)
            rc = put(out, " here: working in \"$PWD\" >&2; }");
    }
    return rc ? rc : put(out, "\n");
}

zt_err zt_shell_script(struct zt_buf *out, const struct zt_shell_job *job,
                       struct zt_fault *fault)
{
    zt_err rc = put(out, "zl_n=$(printf '\\nx'); zl_n=${zl_n%x}\n");

    if (!rc)
        rc = put_exports(out, job->env, fault);
    if (!rc && job->pushed) {
        rc = put(out, "cd && cd ");
        if (!rc)
            rc = zt_shell_word(out, job->pushed);
        if (!rc)
            rc = put(out, " && ZLAUNCH_PUSH_DIR=$PWD && export ZLAUNCH_PUSH_DIR && cd\n");
    }
    if (!rc)
        rc = put(out, "cd || cd /\n");
    if (!rc)
        rc = put_folder(out, job);
    /* the first that can be executed; zl_z is empty when none can */
    if (!rc)
        rc = put(out, "for zl_z in");
    for (const char *const *z = job->zworkers; !rc && *z; z++) {
        rc = put(out, strncmp(*z, "~/", 2) == 0 ? " \"$HOME\"/" : " ");
        if (!rc)
            rc = zt_shell_word(out, strncmp(*z, "~/", 2) == 0 ? *z + 2 : *z);
    }
    if (!rc)
        rc = put(out, "; do case $zl_z in */*) [ -f \"$zl_z\" ] && [ -x \"$zl_z\" ] && "
                      "break ;; *) command -v \"$zl_z\" >/dev/null 2>&1 && break ;; "
                      "esac; zl_z=; done\n");
    if (!rc)
        rc = put(out, "[ -n \"$zl_z\" ] || { echo zlaunch-");
    if (!rc)
        rc = put(out, job->nonce);
    if (!rc)
        rc = put(out, " none; exit 127; }\necho zlaunch-");
    if (!rc)
        rc = put(out, job->nonce);
    if (!rc)
        rc = put(out, " up; unset zl_l zl_n OLDPWD; exec \"$zl_z\" --daemon --guard\n");
    if (rc == ZT_E_NOMEM || rc == ZT_E_LIMIT)
        return zt_fault_set(fault, rc, "the environment to be sent is too large");
    return rc;
}
