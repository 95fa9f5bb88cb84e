/*
 * settings.h -- what the plugins that ship share: numbers of a model from its options and
 * from the config.json that weights come with.
 *
 * An option is called like its key in config.json. Without weights it changes one number of
 * the published size; with weights config.json says all, and an option that says something
 * else is an error.
 */
#ifndef MODELS_SETTINGS_H
#define MODELS_SETTINGS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlaunch/plugin.h>

#define INT(option, least, most, text)                                                   \
    {                                                                                    \
        .name = option, .kind = ZT_OPT_INT, .value = "N", .min = least, .max = most,     \
        .help = text                                                                     \
    }

/* What the user gave for an option; `imported`, the number of config.json or the default,
 * otherwise. */
static inline int64_t settle(zt_model *m, const char *name, int64_t imported)
{
    const zt_args *args = zt_model_args(m);

    if (!zt_args_given(args, name))
        return imported;
    if (zt_model_has_config(m) && imported != zt_args_int(args, name))
        zt_model_fail(m, "--%s %lld, but the config.json of the weights says %lld", name,
                      (long long)zt_args_int(args, name), (long long)imported);
    return zt_args_int(args, name);
}

/* An option the user gave, else the imported config.json, else the default. */
static inline int64_t pick(zt_model *m, const char *name, int64_t def)
{
    return settle(m, name, zt_model_config_int(m, name, def));
}

/* A number of config.json that no option has: at least `least`, below `most`. */
static inline double imported_real(zt_model *m, const char *key, double def, double least,
                                   double most)
{
    double x = zt_model_config_float(m, key, def);

    if (!(x >= least && x < most))
        zt_model_fail(m, "%s %g of config.json is not in [%g, %g)", key, x, least, most);
    return x;
}

/* As config.json says it: the fewest digits that are this float, and a point, by which
 * transformers knows that it is no whole number. */
static inline void export_float(zt_model *m, const char *key, float x)
{
    char digits[32];
    int n = 1;

    do
        snprintf(digits, sizeof(digits), "%.*g", n, (double)x);
    while (strtof(digits, NULL) != x && n++ < 9);
    zt_model_export(m, key, strpbrk(digits, ".e") ? "%s" : "%s.0", digits);
}

/* The same of a number that options and config.json have given in decimal digits. */
static inline void export_real(zt_model *m, const char *key, double x)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "%.15g", x);
    zt_model_export(m, key, strpbrk(digits, ".e") ? "%s" : "%s.0", digits);
}

static inline bool imported_flag(zt_model *m, const char *key, bool def)
{
    return zt_model_config_int(m, key, def) != 0;
}

/* One of the dropouts of config.json; --dropout is for all of them. */
static inline double pick_dropout(zt_model *m, const char *key, double def)
{
    double of_config = imported_real(m, key, def, 0, 1);
    const zt_args *args = zt_model_args(m);

    return zt_args_given(args, "dropout") ? zt_args_float(args, "dropout") : of_config;
}

/* What transformers takes for a dropout that a config.json leaves out; a new model has none
 * unless asked. */
static inline double dropout_left_out(const zt_model *m)
{
    return zt_model_has_config(m) ? 0.1 : 0;
}

/* A size that was asked for by --model has to be that of the weights: it has so many layers
 * of so much width, config.json `num_layers` of `width`. */
static inline void check_model_size(zt_model *m, const char *name, int64_t layers_of_size,
                                    int64_t width_of_size, int64_t num_layers,
                                    int64_t width)
{
    if (zt_model_has_config(m) && zt_args_given(zt_model_args(m), "model") &&
        (num_layers != layers_of_size || width != width_of_size))
        zt_model_fail(m,
                      "--model %s has %lld layers of width %lld, but the config.json of "
                      "the weights says %lld of %lld; leave --model out",
                      name, (long long)layers_of_size, (long long)width_of_size,
                      (long long)num_layers, (long long)width);
}

/* Members of the config.json that is written. */
struct config_member {
    const char *key;
    int64_t value;
};

static inline void export_settings(zt_model *m, const struct config_member *all,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        zt_model_export(m, all[i].key, "%lld", (long long)all[i].value);
}
#define EXPORT_SETTINGS(m, ...)                                                          \
    export_settings(m, (const struct config_member[]){__VA_ARGS__},                      \
                    sizeof((const struct config_member[]){__VA_ARGS__}) /                \
                        sizeof(struct config_member))

#endif
