/* Addresses to places in the file and back, also where pieces touch. */
#include "test/unit/comm/ranks.h"
#include "worker/comm/shm/heap.h"
#include "worker/comm/shm/available_memory.h"

#define PAGE 4096u

/* Pages [file_page, file_page + pages) of the file at page `at_page` of `memory`. */
static void add(struct zt_heap *h, char *memory, size_t at_page, uint64_t file_page,
                size_t pages)
{
    assert_true(zt_heap_reserve(h));
    zt_heap_add(h, (struct zt_heap_region){.at = memory + at_page * PAGE,
                                           .file_off = file_page * PAGE,
                                           .bytes = pages * PAGE});
}

static char *reserve(size_t pages)
{
    char *at = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

static void test_places_are_found_in_touching_pieces_of_two_heaps(void **state)
{
    struct zt_heap outer = {0}, inner = {.outer = &outer};
    char *m = reserve(8);

    (void)state;
    /* touching both in memory and in the file, in another order, from two heaps */
    add(&outer, m, 4, 10, 2);
    add(&inner, m, 2, 12, 2);
    add(&outer, m, 0, 14, 2);
    add(&inner, m, 6, 16, 2);
    for (size_t i = 0; i < 8 * PAGE; i += PAGE / 2) {
        static const uint64_t file_page[] = {14, 12, 10, 16};
        uint64_t off = file_page[i / (2 * PAGE)] * PAGE + i % (2 * PAGE);
        bool outside = i / (2 * PAGE) % 2; /* in the inner heap alone */

        assert_true(zt_heap_off(&inner, m + i, 1) == off);
        assert_ptr_equal(zt_heap_at(&inner, off), m + i);
        assert_true(zt_heap_off(&outer, m + i, 1) == (outside ? ZT_HEAP_OUTSIDE : off));
        if (outside)
            assert_null(zt_heap_at(&outer, off));
    }
    zt_heap_release(&inner);
    zt_heap_release(&outer);
}

static void test_a_buffer_that_sticks_out_is_outside(void **state)
{
    struct zt_heap h = {0};
    char *m = reserve(4);

    (void)state;
    assert_true(zt_heap_off(&h, m, 1) == ZT_HEAP_OUTSIDE);
    add(&h, m, 1, 5, 2);
    assert_true(zt_heap_off(&h, m + PAGE, 2 * PAGE) == 5 * PAGE);
    assert_true(zt_heap_off(&h, m + PAGE, 2 * PAGE + 1) == ZT_HEAP_OUTSIDE);
    assert_true(zt_heap_off(&h, m + PAGE - 1, 2) == ZT_HEAP_OUTSIDE);
    assert_true(zt_heap_off(&h, m + 3 * PAGE - 1, 2) == ZT_HEAP_OUTSIDE);
    assert_true(zt_heap_off(&h, m + 3 * PAGE, 1) == ZT_HEAP_OUTSIDE);
    assert_true(zt_heap_off(&h, m + 2 * PAGE, SIZE_MAX) == ZT_HEAP_OUTSIDE);
    assert_null(zt_heap_at(&h, 4 * PAGE));
    assert_null(zt_heap_at(&h, 7 * PAGE));
    zt_heap_release(&h);
    munmap(m, 4 * PAGE);
}

static void test_many_pieces_in_any_order(void **state)
{
    enum { NUM = 500 };
    struct zt_heap h = {0};
    char *m = reserve(NUM);

    (void)state;
    for (size_t i = 0; i < NUM; i++) /* 7 and 11 have no factor in common with 500 */
        add(&h, m, i * 7 % NUM, i * 11 % NUM, 1);
    for (size_t i = 0; i < NUM; i++) {
        char *at = m + i * 7 % NUM * PAGE + i;

        assert_true(zt_heap_off(&h, at, 8) == i * 11 % NUM * PAGE + i);
        assert_ptr_equal(zt_heap_at(&h, i * 11 % NUM * PAGE + i), at);
    }
    zt_heap_release(&h);
}

static void test_the_machine_has_room_but_not_for_everything(void **state)
{
    (void)state;
    assert_true(zt_comm_available_memory() > 1u << 20);
    assert_true(zt_comm_available_memory() < (size_t)1 << 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_are_found_in_touching_pieces_of_two_heaps),
        cmocka_unit_test(test_a_buffer_that_sticks_out_is_outside),
        cmocka_unit_test(test_many_pieces_in_any_order),
        cmocka_unit_test(test_the_machine_has_room_but_not_for_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
