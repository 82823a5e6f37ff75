/*
 * The threads of a host: one allocates, drains, collects garbage, starts runs over and forks, others flush. A mutex stands
 * for the host's lock just where the extension holds it: for everything but the encoding. What an encoder reads must stay
 * as it was when the snapshot was taken, whatever becomes of the profile meanwhile, and of each run every allocation is in
 * one delta. Under ThreadSanitizer what is touched without the lock shows as a race.
 */
#define _POSIX_C_SOURCE 200809L /* fork */

#include "support_profile.h"

#include "support_pprof.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* AddressSanitizer's allocator may be locked for good in a child of several threads. */
#ifdef SUPPORT_ADDRESS_SANITIZER
#define MAY_FORK false
#else
#define MAY_FORK true
#endif

enum { N_ROUNDS = 1500, N_FLUSHERS = 2, MIN_FLUSHES = 10, MAX_FLUSHES = 4096, N_SLOTS = 512, N_FRAMES = 60, N_CLASSES = 12 };

/* What a flusher hands to the test: it may not fail itself, for cmocka's assertions belong to one thread. */
typedef struct {
    support_sink_t sinks[2]; /* one of them by group */
    uint64_t n_allocations;  /* that each must add up to */
    mpp_status_t status;
} flush_t;

typedef struct {
    pthread_mutex_t lock; /* protects all that follows */
    mpp_profile_t *profile;
    uint64_t n_fed, n_flushed; /* in this run: allocations, and those that deltas have taken and not given back */
    uint32_t run;
    bool over;
    support_random_t random;
    flush_t flushes[MAX_FLUSHES];
    uint32_t n_flushes;
} host_t;

static host_t host;

static const mpp_value_type_t value_types[] = {
    {MPP_VIEW_INIT("allocations"), MPP_VIEW_INIT("count"), MPP_ALLOCATED_COUNT},
    {MPP_VIEW_INIT("retained_size"), MPP_VIEW_INIT("bytes"), MPP_RETAINED_BYTES},
};

static void
lock(void)
{
    pthread_mutex_lock(&host.lock);
}

static void
unlock(void)
{
    pthread_mutex_unlock(&host.lock);
}

/* -- runs, with the lock -- */

/* Few rows and little memory: rows fold, strings go, records are thinned. */
static void
begin_run(void)
{
    mpp_profile_config_t config = support_profile_config();
    config.max_rows = 200;
    config.max_live = 300;
    mpp_profile_t *former = host.profile;
    host.profile = support_profile_new(&config);
    host.n_fed = host.n_flushed = 0;
    host.run++;
    mpp_profile_release(former); /* an encoder may hold it still */
}

static uint64_t
n_allocations(const mpp_snapshot_t *snapshot)
{
    mpp_sum_t sum = 0;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) sum += snapshot->view.rows[i].values[MPP_ALLOCATED_COUNT];
    return (uint64_t)(sum >> MPP_WEIGHT_BITS);
}

static mpp_snapshot_t *
take_delta(void)
{
    mpp_snapshot_t *snapshot;
    mpp_snapshot_options_t options = {.delta = true};
    if (mpp_profile_snapshot(host.profile, &options, &snapshot) != MPP_OK) return NULL;
    host.n_flushed += n_allocations(snapshot);
    return snapshot;
}

/* -- a flusher -- */

static mpp_finding_t
measure(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    (void)context;
    *bytes = record->bytes + 8;
    return record->key % 7 == 0 ? MPP_FOUND_DEAD : MPP_FOUND_ALIVE;
}

/* In slices, between which others have the lock; a run that ends meanwhile ends it. */
static void
measure_all(void)
{
    mpp_id_t cursor = 0;
    uint64_t n_stale = 0;
    uint32_t run = host.run;
    while (run == host.run && mpp_profile_measure(host.profile, &cursor, 64, measure, NULL, &n_stale)) {
        unlock();
        lock();
    }
}

static void
encode(const mpp_snapshot_t *snapshot, flush_t *flush)
{
    for (int i = 0; i < 2 && flush->status == MPP_OK; i++) {
        mpp_budget_t scratch;
        mpp_budget_init(&scratch, SIZE_MAX);
        mpp_pprof_options_t options = {
            .value_types = value_types,
            .n_value_types = SUPPORT_LENGTH(value_types),
            .class_mode = i ? MPP_CLASS_LABEL : MPP_CLASS_OFF,
            .by_group = i == 1,
            .compression_level = 1,
        };
        flush->status =
            mpp_pprof_encode(&snapshot->view, &options, &scratch.allocator, support_sink_write, &flush->sinks[i]);
    }
}

static void *
flush_repeatedly(void *argument)
{
    (void)argument;
    lock();
    while (!host.over && host.n_flushes < MAX_FLUSHES) {
        flush_t *flush = &host.flushes[host.n_flushes++];
        measure_all();
        uint32_t run = host.run;
        mpp_snapshot_t *snapshot = take_delta();
        if (!snapshot) {
            flush->status = MPP_NO_MEMORY;
            break;
        }
        flush->n_allocations = n_allocations(snapshot);
        unlock();
        encode(snapshot, flush);
        lock();
        if (support_chance(&host.random, 1, 3)) {
            mpp_snapshot_give_back(snapshot);
            if (run == host.run) host.n_flushed -= flush->n_allocations;
        }
        mpp_snapshot_free(snapshot);
    }
    unlock();
    return NULL;
}

/* -- the program, with the lock -- */

static void
allocate(void)
{
    support_allocation_t allocation = {
        .object = 8 * (1 + support_below(&host.random, N_SLOTS)),
        .frame = 1 + support_below(&host.random, N_FRAMES),
        .depth = 1 + support_below(&host.random, 8),
        .class_key = support_below(&host.random, N_CLASSES),
        .bytes = support_below(&host.random, 4096),
        .dead = support_chance(&host.random, 1, 4),
    };
    mpp_profile_set_labels(host.profile, mpp_labels_with_group(0, (uint8_t)support_below(&host.random, 16)));
    support_profile_allocate(host.profile, &allocation);
    host.n_fed++;
}

static uintptr_t
relocate(void *context, uintptr_t key)
{
    (void)context;
    return key; /* objects are numbers here; tables are made anew all the same */
}

static void
collect_garbage(void)
{
    for (int i = 0; i < 60; i++) {
        mpp_profile_forget_object(host.profile, 8 * (1 + support_below(&host.random, N_SLOTS)));
        mpp_profile_forget_frame(host.profile, 1 + support_below(&host.random, N_FRAMES + 8));
        mpp_profile_forget_class(host.profile, 1 + support_below(&host.random, N_CLASSES));
    }
    mpp_profile_rekey(host.profile, relocate, NULL);
    mpp_profile_trim(host.profile);
}

static void
check_encoded(const flush_t *flush)
{
    for (size_t i = 0; i < SUPPORT_LENGTH(flush->sinks); i++) {
        support_pprof_t profile;
        uint64_t n = 0;
        support_pprof_read(&profile, &flush->sinks[i]);
        support_pprof_assert_valid(&profile);
        for (size_t k = 0; k < profile.n_samples; k++) n += profile.samples[k].values[0];
        assert_int_equal(n, flush->n_allocations);
        support_pprof_free(&profile);
    }
}

/* The child has none of the other threads; what they held stays where it is. */
static void
work_in_child(void)
{
    begin_run();
    for (int i = 0; i < 50; i++) allocate();
    mpp_snapshot_t *snapshot = take_delta();
    assert_non_null(snapshot);
    flush_t flush = {.n_allocations = 50};
    encode(snapshot, &flush);
    assert_int_equal(flush.status, MPP_OK);
    check_encoded(&flush);
    mpp_snapshot_free(snapshot);
}

static void
fork_child(void)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work_in_child(); /* a failure there fails the child's test */
        _exit(EXIT_SUCCESS);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void
run_program(void)
{
    bool flushed = false;
    for (uint32_t round = 1; round <= N_ROUNDS || !flushed; round++) {
        lock();
        for (int i = 0; i < 40; i++) allocate();
        if (round % 5 == 0) collect_garbage();
        if (round % 40 == 0) begin_run();
        if (MAY_FORK && round % 100 == 50) fork_child();
        flushed = host.n_flushes >= MIN_FLUSHES;
        unlock();
        if (round >= N_ROUNDS) sched_yield(); /* the mutex is not fair */
    }
}

static void
test_flushes_beside_a_program(void **state)
{
    (void)state;
    pthread_t flushers[N_FLUSHERS];
    assert_int_equal(mpp_pprof_init(), MPP_OK);
    assert_int_equal(pthread_mutex_init(&host.lock, NULL), 0);
    host.random.state = 7;
    begin_run();
    for (int i = 0; i < N_FLUSHERS; i++) {
        assert_int_equal(pthread_create(&flushers[i], NULL, flush_repeatedly, NULL), 0);
    }
    run_program();
    lock();
    host.over = true;
    unlock();
    for (int i = 0; i < N_FLUSHERS; i++) assert_int_equal(pthread_join(flushers[i], NULL), 0);

    for (int i = 0; i < 10; i++) allocate();
    mpp_snapshot_t *rest = take_delta();
    assert_non_null(rest);
    assert_int_equal(host.n_flushed, host.n_fed);
    mpp_snapshot_free(rest);
    mpp_profile_release(host.profile);

    for (uint32_t i = 0; i < host.n_flushes; i++) {
        assert_int_equal(host.flushes[i].status, MPP_OK);
        check_encoded(&host.flushes[i]);
        for (int k = 0; k < 2; k++) support_sink_free(&host.flushes[i].sinks[k]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flushes_beside_a_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
