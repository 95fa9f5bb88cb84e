/* output_name.h -- what the name of an output says about its form. */
#ifndef WORKER_TOOLS_OUTPUT_NAME_H
#define WORKER_TOOLS_OUTPUT_NAME_H

#include "common/fault.h"

typedef enum zt_name_form {
    ZT_NAME_FOLDER, /* no ending of a file, or a slash at the end */
    ZT_NAME_PICKLE, /* .bin, .pt, .pth: a file that torch.load opens */
    ZT_NAME_SAFETENSORS,
    ZT_NAME_GGUF,
} zt_name_form;

zt_name_form zt_form_of_name(const char *name);

/* An ending of files in a form that nothing here writes, as .onnx, would become a folder of
 * that name: ZT_E_USAGE, unless the folder is there already. */
zt_err zt_check_output_name(const char *name, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
