#include "launcher/plan/estimate.h"

#include "common/json/line.h"

#include <stdlib.h>
#include <string.h>

#define GB            ((double)(1 << 30)) /* as DeepSpeed's tables have it */
#define EXTRA_BUFFERS 1.5                 /* its additional_buffer_factor */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- formulas: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py ---- */

struct zt_estimate_need zt_estimate_stage2(const struct zt_estimate *e, bool optimizer)
{
    double P = e->parameters, gpus = e->gpus, all = gpus * e->nodes;

    if (optimizer)
        return (struct zt_estimate_need){P * larger(4 * all, 16) * EXTRA_BUFFERS, 2 * P};
    return (struct zt_estimate_need){P * 4 * gpus * EXTRA_BUFFERS, 2 * P + 18 * P / all};
}

struct zt_estimate_need zt_estimate_stage3(const struct zt_estimate *e, bool params,
                                           bool optimizer, bool zero_init)
{
    double P = e->parameters, gpus = e->gpus, all = gpus * e->nodes;
    double layer = 4 * e->largest_layer;
    double state = (params ? 18.0 : 16.0) / e->nodes; /* bytes a parameter on the host */

    if (!optimizer)
        return (struct zt_estimate_need){(zero_init ? e->largest_layer : P) * 4 * gpus *
                                             EXTRA_BUFFERS,
                                         layer + 18 * P / all};
    return (struct zt_estimate_need){P * (zero_init ? state : larger(4 * gpus, state)) *
                                         EXTRA_BUFFERS,
                                     layer + (params ? 0 : 2 * P / all)};
}

/* ---- the option ---- */

static bool parse_count(const char **text, double *out)
{
    static const char units[] = "kMBT"; /* 10^3, 10^6, ... */
    char *end;
    const char *unit;

    *out = strtod(*text, &end);
    if (end == *text || !(*out > 0))
        return false;
    unit = *end == 'K'   ? units
           : *end == 'm' ? units + 1
           : *end == 'b' ? units + 2
           : *end        ? strchr(units, *end)
                         : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        *out *= 1000;
    *text = end + (unit != NULL);
    return *out < 1e16;
}

zt_err zt_estimate_parse(const char *text, struct zt_estimate *out,
                         struct zt_fault *fault)
{
    struct zt_estimate e = *out;
    const char *p = text;
    bool ok = parse_count(&p, &e.parameters);

    e.largest_layer = 0;
    if (ok && *p == ':') {
        p++;
        ok = parse_count(&p, &e.largest_layer);
        if (ok && !*p && e.largest_layer > e.parameters)
            return zt_fault_set(fault, ZT_E_USAGE,
                                "--estimate: \"%s\" has a layer that is larger than the "
                                "model: PARAMETERS:LARGEST_LAYER, as in 2783M:65M",
                                text);
    }
    if (!ok || *p)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--estimate: \"%s\" is not PARAMETERS or "
                            "PARAMETERS:LARGEST_LAYER, as in 2783M:65M",
                            text);
    *out = e;
    return ZT_OK;
}

static void print_row(FILE *out, bool json, int stage, const char *params, bool optimizer,
                      int zero_init, struct zt_estimate_need n)
{
    const char *state = optimizer ? "cpu" : "none";
    char when[ZT_TIMESTAMP_BYTES];

    zt_timestamp(when);
    if (json && zero_init >= 0)
        fprintf(
            out,
            "{\"ts\":\"%s\",\"event\":\"estimate\",\"stage\":%d,\"offload_param\":\"%s\","
            "\"offload_optimizer\":\"%s\",\"zero_init\":%s,\"host_bytes\":%.0f,"
            "\"gpu_bytes\":%.0f}\n",
            when, stage, params, state, zero_init ? "true" : "false", n.host, n.gpu);
    else if (json)
        fprintf(out,
                "{\"ts\":\"%s\",\"event\":\"estimate\",\"stage\":%d,\"offload_"
                "optimizer\":\"%s\","
                "\"host_bytes\":%.0f,\"gpu_bytes\":%.0f}\n",
                when, stage, state, n.host, n.gpu);
    else if (zero_init >= 0)
        fprintf(out,
                "  %7.2fGB | %6.2fGB | offload_param=%-4s, offload_optimizer=%-4s, "
                "zero_init=%d\n",
                n.host / GB, n.gpu / GB, params, state, zero_init);
    else
        fprintf(out, "  %7.2fGB | %6.2fGB | offload_optimizer=%s\n", n.host / GB,
                n.gpu / GB, state);
}

static void print_stage3(const struct zt_estimate *e, bool json, FILE *out)
{
    static const struct {
        bool params, optimizer;
    } rows[] = {{true, true}, {false, true}, {false, false}};

    for (int i = 0; i < 6; i++) {
        bool params = rows[i / 2].params, optimizer = rows[i / 2].optimizer;
        bool zero_init = i % 2 == 0;

        print_row(out, json, 3, params ? "cpu" : "none", optimizer, zero_init,
                  zt_estimate_stage3(e, params, optimizer, zero_init));
    }
}

void zt_estimate_print(const struct zt_estimate *e, bool json, FILE *out)
{
    if (!json)
        fprintf(out,
                "Weights, gradients and optimizer state by DeepSpeed's formulas, without "
                "activations and buffers;\n--dry_run plans a run exactly.\n"
                "HW: %d node%s, %d GPU%s per node.\n"
                "SW: %.0fM total params",
                e->nodes, e->nodes == 1 ? "" : "s", e->gpus, e->gpus == 1 ? "" : "s",
                e->parameters / 1e6);
    if (!json && e->largest_layer > 0)
        fprintf(out, ", %.0fM largest layer params", e->largest_layer / 1e6);
    if (!json)
        fputs(".\n\n  per CPU   |  per GPU | ZeRO stage 2\n", out);
    for (int off = 1; off >= 0; off--)
        print_row(out, json, 2, "", off, -1, zt_estimate_stage2(e, off));
    if (e->largest_layer == 0) {
        if (!json)
            fputs("\nFor stage 3 the largest layer is needed, too: --estimate "
                  "PARAMETERS:LARGEST_LAYER, as in 2783M:65M\n",
                  out);
        return;
    }
    if (!json)
        fputs("\n  per CPU   |  per GPU | ZeRO stage 3\n", out);
    print_stage3(e, json, out);
}
