#include "worker/records/foreign.h"

#include <endian.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARROW "an Arrow table: write it as JSON lines (datasets: to_json)"

static bool begins_with(struct zt_mapping m, const char *magic, size_t n)
{
    return m.bytes >= n && memcmp(m.data, magic, n) == 0;
}

/* Arrow's stream, which `datasets` keeps its tables in: a mark, and the bytes of a schema,
 * padded to 8. */
static bool is_arrow_stream(struct zt_mapping m)
{
    uint32_t n = 0;

    if (!begins_with(m, "\xff\xff\xff\xff", 4) || m.bytes < 8)
        return false;
    memcpy(&n, m.data + 4, sizeof(n));
    n = le32toh(n);
    return n > 0 && n % 8 == 0 && n <= m.bytes - 8;
}

const char *zt_foreign_data(struct zt_mapping m)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what;
    } known[] = {
        {"\x1f\x8b", 2, "a gzip archive: unpack it"},
        {"\x28\xb5\x2f\xfd", 4, "a zstd archive: unpack it"},
        {"\xfd"
         "7zXZ",
         5, "an xz archive: unpack it"},
        {"BZh", 3, "a bzip2 archive: unpack it"},
        {"PK\x03\x04", 4, "a zip archive: unpack it"},
        {"\x93NUMPY", 6, "a NumPy file: write its array as plain uint16 (tofile)"},
        {"PAR1", 4,
         "a Parquet table: write it as JSON lines (pandas: to_json(..., "
         "orient=\"records\", "
         "lines=True))"},
        {"ARROW1", 6, ARROW},
        {"%PDF-", 5, "a PDF: convert it to text"},
        {"version https://git-lfs", 23,
         "a pointer of Git LFS in place of the file: git lfs pull brings that"},
        {"\xff\xfe", 2, "UTF-16 text: convert it (iconv -f UTF-16 -t UTF-8)"},
        {"\xfe\xff", 2, "UTF-16 text: convert it (iconv -f UTF-16 -t UTF-8)"},
    };
    static const struct {
        uint32_t magic;
        const char *what;
    } llmc[] = {
        {20240326, "llm.c weights, not tokens"},
        {20240522, "an llm.c evaluation set (multiple choice), not a token stream"},
        {20240527, "an llm.c optimizer state, not tokens"},
        {20240328, "an llm.c tokenizer, not tokens"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (begins_with(m, known[i].magic, known[i].n))
            return known[i].what;
    if (is_arrow_stream(m))
        return ARROW;
    for (size_t i = 0; i < sizeof(llmc) / sizeof(*llmc); i++)
        if (begins_with(m, (const char *)&(uint32_t){htole32(llmc[i].magic)}, 4))
            return llmc[i].what;
    return NULL;
}

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int k = snprintf(path, sizeof(path), "%s/%s", folder, name);

    return k > 0 && k < (int)sizeof(path) && access(path, F_OK) == 0;
}

zt_err zt_data_file_open(const char *path, struct zt_mapping *out, struct zt_fault *fault)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
        (has(path, "dataset_info.json") || has(path, "dataset_dict.json")))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: is a folder that `datasets` saved; write it as JSON "
                            "lines and give that file (load_from_disk(...)%s.to_json)",
                            path, has(path, "dataset_dict.json") ? "[SPLIT]" : "");
    return zt_mapping_open(path, out, fault);
}
