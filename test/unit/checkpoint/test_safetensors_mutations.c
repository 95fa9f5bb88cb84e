/*
 * Safetensors files with changed bytes, against a reader of their headers by jansson alone: a
 * mutant that is accepted lists the tensors that its header says, with their bytes.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <sys/stat.h>

#include "test/unit/data/files.h"
#include "test/unit/mutations.h"
#include "worker/checkpoint/safetensors.h"

/* As the format's own list has them. */
static int64_t element_bits(const char *dtype)
{
    static const struct {
        const char *name;
        int64_t bits;
    } all[] = {{"F32", 32},        {"F16", 16},        {"BF16", 16},   {"I32", 32},
               {"I16", 16},        {"I64", 64},        {"U8", 8},      {"I8", 8},
               {"BOOL", 8},        {"U16", 16},        {"U32", 32},    {"U64", 64},
               {"F64", 64},        {"C64", 64},        {"F8_E5M2", 8}, {"F8_E4M3", 8},
               {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8}, {"F4", 4},      {"F6_E2M3", 6},
               {"F8_E5M2FNUZ", 8}, {"F6_E3M2", 6}};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(all[i].name, dtype) == 0)
            return all[i].bits;
    return 0;
}

/* What is listed for `name` is what its object in the header says. */
static void same_tensor(const struct zt_safetensors_tensor *t, const json_t *o,
                        const uint8_t *data)
{
    const json_t *shape = json_object_get(o, "shape");
    int64_t begin =
        json_integer_value(json_array_get(json_object_get(o, "data_offsets"), 0));
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    int64_t elems = 1;

    assert_non_null(t);
    assert_string_equal(t->type, dtype);
    assert_int_equal(t->ndim, json_array_size(shape));
    for (int i = 0; i < t->ndim; i++) {
        elems *= json_integer_value(json_array_get(shape, (size_t)i));
        assert_int_equal(t->shape[i],
                         json_integer_value(json_array_get(shape, (size_t)i)));
    }
    assert_int_equal(t->elems, elems);
    assert_int_equal(t->bytes, elems * element_bits(dtype) / 8);
    assert_memory_equal(t->data, data + begin, t->bytes);
    for (int64_t i = 0; strcmp(dtype, "F32") == 0 && i < elems; i++) {
        float x;

        assert_int_equal(zt_safetensors_read_f32(t, i, 1, &x, NULL), ZT_OK);
        assert_memory_equal(&x, data + begin + 4 * i, 4);
    }
}

static void same_file(const struct zt_safetensors_file *f, const uint8_t *bytes)
{
    const uint8_t *data;
    json_t *header, *o;
    const char *name;
    uint64_t n;
    int num = 0;

    memcpy(&n, bytes, 8);
    n = le64toh(n);
    data = bytes + 8 + n;
    header = json_loadb((const char *)bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(header);
    json_object_foreach(header, name, o)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        same_tensor(zt_safetensors_find(f, name), o, data);
        num++;
    }
    assert_int_equal(zt_safetensors_count(f), num);
    json_decref(header);
}

static void test_changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
        "\"i\":{\"dtype\":\"I16\",\"shape\":[2,2,1],\"data_offsets\":[32,40]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[40,48]}}  ";
    static const char letters[] = "0123456789\"wbiu,:[]{} FIUB-.eE";
    size_t head = strlen(header), n = 8 + head + 48;
    int mutations = num_mutations(2000), accepted = 0;
    uint8_t bytes[512], was[512];
    uint64_t x = mutation_seed(), length = htole64(head);

    (void)state;
    memcpy(was, &length, 8);
    memcpy(was + 8, header, head);
    for (size_t i = 0; i < 48; i++)
        was[8 + head + i] = (uint8_t)i;
    for (int i = 0; i < mutations; i++) {
        struct zt_safetensors_file *f = NULL;
        struct zt_fault fault = {0};

        memcpy(bytes, was, n);
        if (i % 2) /* so that it is JSON more often */
            bytes[8 + next_random(&x) % head] =
                (uint8_t)letters[(x >> 32) % strlen(letters)];
        else
            change_bytes(bytes, n, NULL, &x);
        if (zt_safetensors_open(put_file("changed", bytes, n), &f, &fault) == ZT_OK) {
            same_file(f, bytes);
            accepted++;
        } else if (fault.code != ZT_E_FORMAT || strlen(fault.text) < 20) {
            fail_msg("refused with \"%s\"", fault.text);
        }
        zt_safetensors_close(f);
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_bytes_mean_what_they_say_or_are_refused),
    };

    return cmocka_run_group_tests_name("safetensors mutations", tests, scratch_make,
                                       scratch_remove);
}
