#include "support.h"

#include "slab.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK MPP_SLAB_CHUNK_ELEMENTS

/* As users have it: the field that tells "in use" stands behind the first four bytes. */
typedef struct {
    uint32_t head;
    uint32_t in_use;
    uint64_t tail;
} element_t;

static mpp_budget_t budget;
static mpp_slab_t slab;

static void
start(uint32_t max_elements)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_slab_init(&slab, &budget.allocator, sizeof(element_t), max_elements), MPP_OK);
}

static void
finish(void)
{
    assert_int_equal(mpp_slab_bytes(&slab), budget.used_bytes);
    mpp_slab_cleanup(&slab);
    support_assert_no_leak(&budget);
}

static mpp_id_t
take(void)
{
    mpp_id_t id = 0;
    assert_int_equal(mpp_slab_take(&slab, &id), MPP_OK);
    assert_in_range(id, 1, slab.max_elements);
    element_t *element = mpp_slab_at(&slab, id);
    assert_int_equal(element->head, 0);
    assert_int_equal(element->in_use, 0);
    assert_true(element->tail == 0);
    *element = (element_t){.head = UINT32_MAX, .in_use = id, .tail = UINT64_MAX};
    return id;
}

static void
fill(uint32_t n)
{
    while (slab.n_used < n) (void)take();
}

static uint32_t
list_length(uint32_t first)
{
    uint32_t length = 0;
    uint32_t previous = 0;
    for (uint32_t link = first; link != 0; link = slab.chunks[link - 1].next) {
        assert_int_equal(slab.chunks[link - 1].previous, previous);
        previous = link;
        length++;
    }
    return length;
}

/* The directory is consistent: the counts, the two lists, and the one spare. */
static void
check(void)
{
    uint32_t n_used = 0, n_open = 0, n_released = 0, n_empty = 0;
    for (uint32_t number = 0; number < slab.end_chunk; number++) {
        const mpp_slab_chunk_t *chunk = &slab.chunks[number];
        uint32_t rest = slab.max_elements - number * CHUNK;
        n_used += chunk->n_used;
        n_released += chunk->elements == NULL;
        n_open += chunk->elements != NULL && chunk->n_used < (rest < CHUNK ? rest : CHUNK);
        n_empty += chunk->elements != NULL && chunk->n_used == 0;
    }
    assert_int_equal(n_used, slab.n_used);
    assert_int_equal(n_open, list_length(slab.first_open));
    assert_int_equal(n_released, list_length(slab.first_released));
    assert_int_equal(n_empty, slab.spare != 0);
    assert_int_equal(slab.n_chunks_allocated, slab.end_chunk - n_released);
    assert_int_equal(mpp_slab_bytes(&slab), budget.used_bytes);
}

static void
test_zeroed(void **state)
{
    (void)state;
    mpp_slab_t zeroed = {0};
    assert_int_equal(mpp_slab_next(&zeroed, 0), 0);
    assert_int_equal(mpp_slab_bytes(&zeroed), 0);
    mpp_slab_cleanup(&zeroed);
}

static void
test_no_elements_at_all(void **state)
{
    (void)state;
    start(0);
    mpp_id_t id = 77;
    assert_int_equal(mpp_slab_take(&slab, &id), MPP_FULL);
    assert_int_equal(id, 77);
    assert_int_equal(budget.used_bytes, 0);
    finish();
}

static void
test_one(void **state)
{
    (void)state;
    start(1);
    assert_int_equal(take(), 1);
    mpp_id_t id;
    assert_int_equal(mpp_slab_take(&slab, &id), MPP_FULL);
    assert_int_equal(mpp_slab_next(&slab, 0), 1);
    assert_int_equal(mpp_slab_next(&slab, 1), 0);
    mpp_slab_give(&slab, 1);
    assert_int_equal(((element_t *)mpp_slab_at(&slab, 1))->in_use, 0);
    assert_int_equal(take(), 1);
    check();
    finish();
}

static void
test_smallest_element(void **state)
{
    (void)state;
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_slab_init(&slab, &budget.allocator, 4, 10), MPP_OK);
    mpp_id_t ids[10];
    for (int i = 0; i < 10; i++) assert_int_equal(mpp_slab_take(&slab, &ids[i]), MPP_OK);
    for (int i = 0; i < 10; i++) mpp_slab_give(&slab, ids[i]);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(mpp_slab_take(&slab, &ids[i]), MPP_OK);
        assert_int_equal(*(uint32_t *)mpp_slab_at(&slab, ids[i]), 0);
    }
    finish();
}

static void
test_chunk_boundaries(void **state)
{
    (void)state;
    start(10 * CHUNK);
    fill(CHUNK - 1);
    assert_int_equal(slab.n_chunks_allocated, 1);
    assert_int_equal(take(), CHUNK);
    assert_int_equal(slab.n_chunks_allocated, 1);
    check();
    assert_int_equal(take(), CHUNK + 1);
    assert_int_equal(slab.n_chunks_allocated, 2);
    check();
    finish();
}

/* Whatever the remainder in the last chunk: exactly max_elements, also when taken again after all were given back. */
static void
test_limit_is_exact(void **state)
{
    (void)state;
    static const uint32_t limits[] = {1, 2, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 500, 2 * CHUNK, 2 * CHUNK + 1};
    for (size_t i = 0; i < SUPPORT_LENGTH(limits); i++) {
        start(limits[i]);
        for (int round = 0; round < 2; round++) {
            fill(limits[i]);
            mpp_id_t id;
            assert_int_equal(mpp_slab_take(&slab, &id), MPP_FULL);
            check();
            for (id = limits[i]; id != 0; id--) mpp_slab_give(&slab, id);
            check();
            assert_int_equal(slab.n_chunks_allocated, 1);
        }
        finish();
    }
}

/* The last chunk of a slab of 2^32 - 1 elements, with all before it made out to be full. */
static void
test_ids_up_to_the_last(void **state)
{
    (void)state;
    start(UINT32_MAX);
    assert_int_equal(slab.max_chunks, UINT32_C(1) << 22);
    slab.end_chunk = slab.max_chunks - 1;
    slab.n_used = slab.end_chunk * CHUNK;

    mpp_id_t first = slab.n_used + 1;
    for (mpp_id_t id = first; id != 0; id++) assert_int_equal(take(), id);
    mpp_id_t id;
    assert_int_equal(mpp_slab_take(&slab, &id), MPP_FULL);
    assert_int_equal(mpp_slab_next(&slab, 0), first);
    assert_int_equal(mpp_slab_next(&slab, UINT32_MAX - 1), UINT32_MAX);
    assert_int_equal(mpp_slab_next(&slab, UINT32_MAX), 0);
    mpp_slab_give(&slab, UINT32_MAX);
    assert_int_equal(take(), UINT32_MAX);
    finish();
}

static void
test_empty_chunks_go_back_but_one(void **state)
{
    (void)state;
    start(10 * CHUNK);
    fill(4 * CHUNK);
    for (mpp_id_t id = CHUNK + 1; id <= 3 * CHUNK; id++) mpp_slab_give(&slab, id);
    assert_int_equal(slab.n_chunks_allocated, 3);
    check();

    /* At the boundary, to and fro costs no request. */
    uint64_t n_requests = budget.n_requests;
    for (int i = 0; i < 10; i++) mpp_slab_give(&slab, take());
    assert_int_equal(budget.n_requests, n_requests);

    /* Numbers that were released are used again before new ones. */
    fill(4 * CHUNK);
    assert_int_equal(slab.end_chunk, 4);
    check();
    fill(5 * CHUNK);
    assert_int_equal(slab.end_chunk, 5);
    check();
    finish();
}

static void
test_scan(void **state)
{
    (void)state;
    start(10 * CHUNK);
    fill(3 * CHUNK + 5);
    for (mpp_id_t id = 1; id <= 2 * CHUNK; id++) mpp_slab_give(&slab, id);
    assert_null(slab.chunks[1].elements);

    uint32_t n_in_use = 0;
    mpp_id_t last = 0;
    for (mpp_id_t id = mpp_slab_next(&slab, 0); id != 0; id = mpp_slab_next(&slab, id)) {
        assert_true(id > last);
        last = id;
        const element_t *element = mpp_slab_at(&slab, id);
        if (element->in_use == 0) continue;
        assert_int_equal(element->in_use, id);
        n_in_use++;
    }
    assert_int_equal(n_in_use, CHUNK + 5);
    assert_int_equal(last, 3 * CHUNK + 5);

    /* From within a chunk that was released, or made anew and not used so far, on to the start of the next one. */
    assert_int_equal(mpp_slab_next(&slab, CHUNK + 500), 2 * CHUNK + 1);
    while (slab.chunks[1].elements == NULL) (void)take();
    assert_int_equal(mpp_slab_next(&slab, CHUNK), CHUNK + 1);
    assert_int_equal(mpp_slab_next(&slab, CHUNK + 1), 2 * CHUNK + 1);
    finish();
}

static void
test_limit_of_memory(void **state)
{
    (void)state;
    start(10 * CHUNK);
    budget.limit_bytes = budget.used_bytes + CHUNK * sizeof(element_t);
    fill(CHUNK);
    mpp_id_t id = 77;
    assert_int_equal(mpp_slab_take(&slab, &id), MPP_MEMORY_LIMIT);
    assert_int_equal(id, 77);
    check();
    mpp_slab_give(&slab, 500);
    assert_int_equal(take(), 500);
    check();
    finish();
}

/* Elements stand still and keep their bytes while others come and go, in waves that release chunks. */
static void
test_random_against_model(void **state)
{
    (void)state;
    enum { MAX = 5 * CHUNK + 123, STEPS = 200000 };
    static element_t *taken[MAX + 1];
    static mpp_id_t ids[MAX];
    uint32_t n = 0;
    support_random_t random = {42};
    start(MAX);
    for (int step = 0; step < STEPS; step++) {
        uint32_t growing = step / 20000 % 2 == 0 ? 70 : 28;
        if (support_chance(&random, growing, 100) && n < MAX) {
            mpp_id_t id = take();
            assert_null(taken[id]);
            taken[id] = mpp_slab_at(&slab, id);
            taken[id]->tail = support_next(&random) | 1;
            taken[id]->head = (uint32_t)(taken[id]->tail >> 32);
            ids[n++] = id;
        } else if (n > 0) {
            uint32_t i = support_below(&random, n);
            mpp_id_t id = ids[i];
            assert_ptr_equal(mpp_slab_at(&slab, id), taken[id]);
            assert_int_equal(taken[id]->in_use, id);
            assert_int_equal(taken[id]->head, (uint32_t)(taken[id]->tail >> 32));
            mpp_slab_give(&slab, id);
            taken[id] = NULL;
            ids[i] = ids[--n];
        }
        assert_int_equal(slab.n_used, n);
        if (step % 1000 == 0) check();
    }
    while (n > 0) mpp_slab_give(&slab, ids[--n]);
    check();
    assert_int_equal(slab.n_chunks_allocated, 1);
    finish();
}

static bool
is_in_use(const void *element)
{
    return ((const element_t *)element)->in_use != 0;
}

/* Elements know their ids: in_use is the one that they were taken under. */
static void
follow(void *context, mpp_id_t from, mpp_id_t to)
{
    uint32_t *n_moved = context;
    element_t *element = mpp_slab_at(&slab, to);
    assert_int_equal(element->in_use, from);
    assert_true(element->head == UINT32_MAX && element->tail == UINT64_MAX);
    element->in_use = to;
    ++*n_moved;
}

static uint32_t
chunks_needed(uint32_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* Whatever is given back, and wherever the last chunk ends: all that are left stand in as few chunks as hold them. */
static void
test_compaction(void **state)
{
    (void)state;
    enum { MAX = 6 * CHUNK + 77 };
    support_random_t random = {7};
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t n = support_below(&random, MAX + 1), keeps = support_below(&random, 101), n_moved = 0;
        start(MAX);
        fill(n);
        for (mpp_id_t id = 1; id <= n; id++) {
            if (!support_chance(&random, keeps, 100)) mpp_slab_give(&slab, id);
        }
        uint32_t n_left = slab.n_used;
        uint64_t n_requests = budget.n_requests;
        mpp_slab_compact(&slab, is_in_use, follow, &n_moved);
        assert_int_equal(budget.n_requests, n_requests);
        assert_int_equal(slab.n_used, n_left);
        assert_int_equal(slab.n_chunks_allocated, chunks_needed(n_left));
        assert_true(n_moved <= n_left);
        check();
        for (mpp_id_t id = 0; (id = mpp_slab_next(&slab, id)) != 0;) {
            const element_t *element = mpp_slab_at(&slab, id);
            if (!element->in_use) continue;
            assert_int_equal(element->in_use, id);
            n_left--;
        }
        assert_int_equal(n_left, 0);
        fill(MAX); /* ids of chunks that went back are used again */
        check();
        finish();
    }
}

static void
refused_scenario(mpp_budget_t *failing)
{
    mpp_slab_t table;
    if (support_refused(mpp_slab_init(&table, &failing->allocator, 16, 4 * CHUNK))) return;
    for (uint32_t i = 0; i < 3 * CHUNK; i++) {
        uint32_t n_used = table.n_used;
        mpp_id_t id = 77;
        if (!support_refused(mpp_slab_take(&table, &id))) continue;
        assert_int_equal(id, 77);
        assert_int_equal(table.n_used, n_used);
        assert_int_equal(table.first_open, 0);
    }
    mpp_slab_cleanup(&table);
}

static void
test_refused(void **state)
{
    (void)state;
    support_sweep_failures(refused_scenario);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed),
        cmocka_unit_test(test_no_elements_at_all),
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_smallest_element),
        cmocka_unit_test(test_chunk_boundaries),
        cmocka_unit_test(test_limit_is_exact),
        cmocka_unit_test(test_ids_up_to_the_last),
        cmocka_unit_test(test_empty_chunks_go_back_but_one),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_limit_of_memory),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_compaction),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
