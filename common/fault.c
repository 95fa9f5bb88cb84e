#include "common/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

zt_err(zt_fault_set)(struct zt_fault *fault, zt_err code, const char *fmt, ...)
{
    va_list ap;

    if (!fault)
        return code;
    fault->code = code;
    va_start(ap, fmt);
    vsnprintf(fault->text, sizeof(fault->text), fmt, ap);
    va_end(ap);
    return code;
}

zt_err zt_fault_context(struct zt_fault *fault, zt_err code, const char *fmt, ...)
{
    char was[ZT_FAULT_TEXT];
    va_list ap;
    size_t used;
    int n;

    if (!fault)
        return code;
    if (fault->code == ZT_OK) { /* the callee had nothing to say: name the code */
        fault->code = code;
        snprintf(fault->text, sizeof(fault->text), "%s", zt_err_name(code));
    }
    memcpy(was, fault->text, sizeof(was));
    va_start(ap, fmt);
    n = vsnprintf(fault->text, sizeof(fault->text), fmt, ap);
    va_end(ap);
    used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof(fault->text))
        snprintf(fault->text + used, sizeof(fault->text) - used, ": %s", was);
    return fault->code;
}

static const struct {
    const char *name;
    int exit_code;
} errs[ZT_NUM_ERR] = {
    [ZT_OK] = {"ok", 0},
    [ZT_E_NOMEM] = {"out of memory", 71},
    [ZT_E_SYSTEM] = {"system call failed", 71},
    [ZT_E_ARG] = {"bad argument", 70},
    [ZT_E_USAGE] = {"bad usage", 2},
    [ZT_E_CONFIG] = {"bad config", 65},
    [ZT_E_NOINPUT] = {"missing input", 66},
    [ZT_E_FORMAT] = {"malformed input", 65},
    [ZT_E_LIMIT] = {"limit reached", 70},
    [ZT_E_SHORT] = {"not enough bytes", 65},
    [ZT_E_PLUGIN] = {"unusable plugin", 70},
    [ZT_E_PLAN] = {"plan refused", 78},
    [ZT_E_PEER] = {"another rank failed", 1},
    [ZT_E_NUMERIC] = {"numeric failure", 1},
    [ZT_E_UNSUPPORTED] = {"not supported", 78},
    [ZT_E_CANCELLED] = {"cancelled", 130},
    [ZT_E_CANTCREATE] = {"cannot create output", 73},
    [ZT_E_HOST] = {"host unreachable", 69},
    [ZT_E_LOST] = {"connection lost", 69},
};

const char *zt_err_name(zt_err code)
{
    return (unsigned)code < ZT_NUM_ERR ? errs[code].name : "unknown error";
}

bool zt_err_is_about_peer(zt_err code)
{
    return code == ZT_E_PEER || code == ZT_E_LOST;
}

int zt_err_exit_code(zt_err code)
{
    return (unsigned)code < ZT_NUM_ERR ? errs[code].exit_code : 70;
}
