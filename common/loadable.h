/*
 * loadable.h -- where the objects are that a run loads when it asks for them
 * (backends/NAME.so): a library that not everyone has stays out of the programs.
 */
#ifndef COMMON_LOADABLE_H
#define COMMON_LOADABLE_H

#include <stdbool.h>
#include <stddef.h>

#define ZT_LOADABLE_PATH 4352

/*
 * The path of `file` ("backends/mpi.so"): what the environment variable `env` says, else
 * beside the executable, else where `make install` puts it (../lib/zlaunch/<file>).
 * false: none of these is there, or `env` is "" or "0".
 * Threads: any.
 */
bool zt_loadable_find(const char *env, const char *file, char *out, size_t out_bytes);

/* The object of a backend with devices of its own, as --device and zt_loadable_find() name
 * it: known to zlaunch, which counts devices, and to the ranks, which open them. */
struct zt_device_object {
    const char *device, *environment, *file;
};
extern const struct zt_device_object zt_cuda_object;

/* May a rank with this value of --device use devices of an object that is here? "auto"
 * takes any. */
bool zt_device_object_is_wanted(const char *device);

/*
 * The path of a plugin: `name` itself if it has a '/' or is here, else what is in the
 * folders of ZLAUNCH_PLUGIN_PATH (':' between), beside the executable in models/, or where
 * `make install` puts it (../lib/zlaunch/models). false: it is in none of them; `out` is
 * then a list of the folders, for a message.
 */
bool zt_plugin_find(const char *name, char *out, size_t out_bytes);

/* What a compiler needs to find the headers of plugins, for a message: "-I DIR" where they
 * are beside the executable's folder, as they are built and installed. Returns `out`. */
const char *zt_plugin_header_flags(char *out, size_t out_bytes);

#endif
