#include "worker/tools/output_name.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const struct {
    const char *ending;
    zt_name_form form;
} written[] = {{".bin", ZT_NAME_PICKLE},
               {".pt", ZT_NAME_PICKLE},
               {".pth", ZT_NAME_PICKLE},
               {".safetensors", ZT_NAME_SAFETENSORS},
               {".gguf", ZT_NAME_GGUF}};

/* Files of weights elsewhere, and files that are no weights. */
static const char *const others[] = {
    ".onnx", ".ckpt",    ".pkl",     ".pickle", ".npz",    ".npy",     ".h5",
    ".hdf5", ".keras",   ".msgpack", ".pb",     ".tflite", ".mlmodel", ".engine",
    ".ggml", ".pt2",     ".ot",      ".tar",    ".gz",     ".tgz",     ".zip",
    ".zst",  ".parquet", ".json",    ".txt"};

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n > k && s[n - k - 1] != '/' && strcasecmp(s + n - k, tail) == 0;
}

zt_name_form zt_form_of_name(const char *name)
{
    for (size_t i = 0; i < sizeof(written) / sizeof(*written); i++)
        if (ends_with(name, written[i].ending))
            return written[i].form;
    return ZT_NAME_FOLDER;
}

zt_err zt_check_output_name(const char *name, struct zt_fault *fault)
{
    struct stat st;

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (ends_with(name, others[i]) && (stat(name, &st) < 0 || !S_ISDIR(st.st_mode)))
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "%s: files of this form (%s) are not written; those that end in "
                ".safetensors, .bin, .pt or .pth are, by zckpt convert .gguf too, and "
                "folders: %s/ is one",
                name, others[i], name);
    return ZT_OK;
}
