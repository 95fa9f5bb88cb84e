/* convert.c -- zckpt convert: which form, by what DST is called. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/files/models.h"
#include "worker/tools/convert.h"
#include "worker/tools/export.h"
#include "worker/tools/output_name.h"
#include "worker/tools/zckpt/zckpt.h"

static const char *const forms[] = {[ZT_NAME_FOLDER] = NULL,
                                    [ZT_NAME_PICKLE] = "pickle",
                                    [ZT_NAME_SAFETENSORS] = "safetensors",
                                    [ZT_NAME_GGUF] = "gguf"};

/* What DST is to be, where --to does not say. */
static const char *guess_form(const struct zt_checkpoint_source *s, const char *to)
{
    const char *named = forms[zt_form_of_name(to)];

    return named ? named : s->deepspeed ? "zlaunch" : "safetensors";
}

static zt_err check_name(const char *to, const char *form, struct zt_fault *fault)
{
    const char *named = forms[zt_form_of_name(to)];

    if (named && strcmp(named, form) != 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: its ending says another form than --to %s", to, form);
    return zt_check_output_name(to, fault);
}

static zt_err to_weights(struct zt_checkpoint_source *s, const char *to, bool safe,
                         const zt_args *args, struct zt_fault *fault)
{
    const char *dtype = zt_args_string(args, "dtype");
    const char *size = zt_args_string(args, "max_shard_size");
    struct zt_tensor_export how = {.to = to,
                                   .dtype = strcmp(dtype, "bf16") == 0  ? ZT_BF16
                                            : strcmp(dtype, "f16") == 0 ? ZT_F16
                                                                        : ZT_F32,
                                   .safe = safe};
    struct zt_exported made;
    zt_err rc;

    if (strcmp(dtype, "q8_0") == 0)
        return zt_fault_set(fault, ZT_E_USAGE, "--dtype q8_0 is for --to gguf");
    if (!zt_parse_size(size, &how.shard_bytes))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--max_shard_size %s: no size; 5GB, 500MB and 2GiB are some",
                            size);
    if (zt_args_given(args, "max_shard_size") && zt_form_of_name(to) != ZT_NAME_FOLDER)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--max_shard_size cuts files in a folder, and %s is one file",
                            to);
    rc = zt_export(s, &how, &made, fault);
    if (!rc)
        zt_export_print(&how, &made, dtype);
    if (!rc)
        zt_source_tell_lost(s, to, dtype);
    return rc;
}

zt_err zt_zckpt_check_out(const char *out, const zt_args *args, struct zt_fault *fault)
{
    char found[PATH_MAX];
    struct stat st;
    bool is_file = stat(out, &st) == 0 && S_ISREG(st.st_mode);

    if (zt_args_flag(args, "overwrite") || (!is_file && !zt_find_model(out, found)))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s is there already; --overwrite replaces it",
                        is_file ? out : found);
}

/* An option that is for other forms is not passed over. */
static zt_err check_options(const char *form, const zt_args *args, struct zt_fault *fault)
{
    bool weights = strcmp(form, "safetensors") == 0 || strcmp(form, "pickle") == 0;
    bool checkpoint = strcmp(form, "zlaunch") == 0 || strcmp(form, "universal") == 0;

    if (checkpoint && zt_args_given(args, "dtype"))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--dtype is of weights; a checkpoint (--to %s) keeps its types", form);
    if (!weights && zt_args_given(args, "max_shard_size"))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--max_shard_size is for --to safetensors and --to pickle, and "
            "this is --to %s",
            form);
    return ZT_OK;
}

zt_err zt_zckpt_convert(const zt_args *args, const char *const *words, int num_words,
                        struct zt_fault *fault)
{
    const char *form = zt_args_string(args, "to");
    struct zt_checkpoint_source *s = NULL;
    zt_err rc = zt_source_open(words[0], zt_args_string(args, "tag"), &s, fault);

    (void)num_words;
    if (rc)
        return rc;
    if (!form)
        form = guess_form(s, words[1]);
    rc = check_name(words[1], form, fault);
    if (!rc)
        rc = check_options(form, args, fault);
    if (!rc && strcmp(form, "universal") != 0 && strcmp(form, "zlaunch") != 0)
        rc = zt_zckpt_check_out(words[1], args, fault);
    if (!rc)
        rc = zt_source_check_apart(s, words[1], fault);
    if (!rc && strcmp(form, "safetensors") != 0 && strcmp(form, "pickle") != 0 &&
        (s->adapters || strcmp(form, "gguf") == 0))
        rc = zt_export_check_is_model(s, words[1], fault);
    if (rc) {
        zt_source_close(s);
        return rc;
    }
    if (strcmp(form, "safetensors") == 0 || strcmp(form, "pickle") == 0)
        rc = to_weights(s, words[1], form[0] == 's', args, fault);
    else if (strcmp(form, "gguf") == 0)
        rc = zt_convert_to_gguf(s, words[1], zt_args_string(args, "dtype"), fault);
    else if (strcmp(form, "universal") == 0)
        rc = zt_convert_to_universal(s, words[1], zt_args_flag(args, "overwrite"), fault);
    else
        rc = zt_convert_to_zlaunch(s, words[1], zt_args_flag(args, "overwrite"), fault);
    zt_source_close(s);
    return rc;
}
