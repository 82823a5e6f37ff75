/*
 * Drives the core's hot paths a fixed number of times, the same way at every run, under callgrind: each phase's own
 * instructions are collected and dumped under its name; what prepares it is not. Paths are 50 frames deep: a trunk that
 * all share, and branches near the leaf, as real ones. Objects lie 40 bytes apart, as Ruby's do.
 *
 *   phases --versions     the libraries that phases call into
 */

#define _GNU_SOURCE
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>
#include <zlib.h>

#include "pprof.h"
#include "profile.h"

#define DEPTH 50
#define N_BRANCHES 10 /* frames that differ between paths */
#define N_PATHS 200
#define N_NEW_PATHS 5000
#define N_SAMPLES 100000
#define BATCH 100 /* samples between two drains */
#define CLASS_KEY 8
#define OBJECT_BYTES 40
#define FIRST_OBJECT ((uintptr_t)0x7f0000000000)

#define COLLECTING(statement)                                                                                          \
    do {                                                                                                               \
        CALLGRIND_TOGGLE_COLLECT;                                                                                      \
        statement;                                                                                                     \
        CALLGRIND_TOGGLE_COLLECT;                                                                                      \
    } while (0)

typedef struct {
    uintptr_t frames[DEPTH]; /* leaf first */
    int lines[DEPTH];
} path_t;

static mpp_profile_t *profile;
static path_t paths[N_PATHS];
static uintptr_t next_object = FIRST_OBJECT;
static mpp_snapshot_t *snapshot;

static void
expect(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "phases: %s\n", what);
    exit(1);
}

/* A branch's frame is its left or right one, by a bit of the number, and its line the other bits. */
static void
make_path(path_t *path, uint32_t number)
{
    for (uint32_t i = 0; i < DEPTH; i++) {
        bool in_trunk = i >= N_BRANCHES;
        path->frames[i] = 16 * (i + 1) + (in_trunk ? 0 : number >> i & 1) * 8;
        path->lines[i] = (int)(in_trunk ? i : (number >> N_BRANCHES) + i);
    }
}

static void
sample(const path_t *path)
{
    mpp_backtrace_t backtrace = {path->frames, path->lines, DEPTH, false};
    mpp_profile_sample(profile, next_object, MPP_WEIGHT_ONE, &backtrace);
    next_object += OBJECT_BYTES;
}

static void
name_frames(mpp_sample_t *in_hand)
{
    char name[32];
    for (uintptr_t frame; (frame = mpp_profile_unknown_frame(profile, in_hand)) != 0;) {
        int length = snprintf(name, sizeof name, "method_%lu", (unsigned long)frame);
        mpp_view_t view = {name, (size_t)length};
        expect(mpp_profile_define_frame(profile, frame, view, MPP_VIEW("app.rb"), 1) == MPP_OK, "naming");
    }
}

static void
drain(void)
{
    mpp_sample_t in_hand;
    while (mpp_profile_take(profile, &in_hand)) {
        name_frames(&in_hand);
        mpp_birth_t birth = {.bytes = OBJECT_BYTES, .live = true};
        birth.class_name = mpp_profile_find_class(profile, CLASS_KEY);
        mpp_profile_commit(profile, &in_hand, &birth);
    }
}

/* -- the phases, in this order: later ones find what earlier ones have made -- */

static void
tick(void)
{
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, 0.01, 1);
    volatile uint32_t n_samples = 0;
    CALLGRIND_TOGGLE_COLLECT;
    for (uint32_t i = 0; i < 1000000; i++) {
        if (!mpp_sampler_tick(&sampler)) continue;
        mpp_sampler_draw(&sampler);
        n_samples++;
    }
    CALLGRIND_TOGGLE_COLLECT;
    expect(n_samples > 9000 && n_samples < 11000, "sampling");
}

static void
sample_last_stack(void)
{
    for (uint32_t i = 0; i < N_SAMPLES / BATCH; i++) {
        COLLECTING(for (uint32_t j = 0; j < BATCH; j++) sample(&paths[0]));
        drain();
    }
}

static void
sample_known_stack(void)
{
    for (uint32_t i = 0; i < N_SAMPLES / BATCH; i++) {
        COLLECTING(for (uint32_t j = 0; j < BATCH; j++) sample(&paths[(i * BATCH + j) % N_PATHS]));
        drain();
    }
}

static void
sample_new_stack(void)
{
    for (uint32_t i = 0; i < N_NEW_PATHS; i++) {
        path_t path;
        make_path(&path, (1 << N_BRANCHES) + i);
        COLLECTING(sample(&path));
        drain();
    }
}

static void
commit(void)
{
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        sample(&paths[i % N_PATHS]);
        if (i % BATCH == BATCH - 1) COLLECTING(drain());
    }
    expect(mpp_profile_live_count(profile) == 3 * N_SAMPLES + N_NEW_PATHS + N_PATHS, "live records");
}

static void
death_of_another(void)
{
    const mpp_live_t *live = mpp_profile_live(profile);
    uintptr_t other = next_object + (1u << 30);
    volatile uint32_t n_candidates = 0;
    CALLGRIND_TOGGLE_COLLECT;
    for (uint32_t i = 0; i < 1000000; i++) {
        if (mpp_live_may_have(live, other + (uintptr_t)i * OBJECT_BYTES)) n_candidates++;
    }
    CALLGRIND_TOGGLE_COLLECT;
    expect(n_candidates < 100000, "most objects are told to be unknown at once");
}

static void
death_of_sampled(void)
{
    CALLGRIND_TOGGLE_COLLECT;
    for (uint32_t i = 0; i < N_SAMPLES; i++) mpp_profile_forget_object(profile, FIRST_OBJECT + i * OBJECT_BYTES);
    CALLGRIND_TOGGLE_COLLECT;
}

static mpp_finding_t
same_size(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    (void)context;
    *bytes = record->bytes;
    return MPP_FOUND_ALIVE;
}

static void
measure(void)
{
    mpp_id_t cursor = 0;
    uint64_t n_stale = 0;
    COLLECTING(while (mpp_profile_measure(profile, &cursor, 1024, same_size, NULL, &n_stale)) continue);
}

static void
take_snapshot(void)
{
    mpp_snapshot_options_t options = {.delta = true};
    mpp_status_t status;
    COLLECTING(status = mpp_profile_snapshot(profile, &options, &snapshot));
    expect(status == MPP_OK, "snapshot");
}

static mpp_status_t
discard(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    *(size_t *)context += n_bytes;
    return MPP_OK;
}

static void
encode(void)
{
    const mpp_value_type_t value_types[] = {
        {MPP_VIEW_INIT("allocations"), MPP_VIEW_INIT("count"), MPP_ALLOCATED_COUNT},
        {MPP_VIEW_INIT("retained_size"), MPP_VIEW_INIT("bytes"), MPP_RETAINED_BYTES},
    };
    mpp_pprof_options_t options = {
        .value_types = value_types,
        .n_value_types = sizeof value_types / sizeof value_types[0],
        .class_mode = MPP_CLASS_LABEL,
        .period_type = MPP_VIEW("allocations"),
        .period_unit = MPP_VIEW("count"),
        .period = 1,
        .mapping_file = MPP_VIEW("phases"),
        .compression_level = 1,
    };
    mpp_budget_t scratch;
    mpp_budget_init(&scratch, SIZE_MAX);
    size_t n_bytes = 0;
    mpp_status_t status;
    COLLECTING(status = mpp_pprof_encode(&snapshot->view, &options, &scratch.allocator, discard, &n_bytes));
    expect(status == MPP_OK && n_bytes > 1000, "encoding");
    mpp_snapshot_free(snapshot);
}

static const struct {
    const char *name;
    void (*run)(void);
} phases[] = {
    {"tick", tick},
    {"sample_last_stack", sample_last_stack},
    {"sample_known_stack", sample_known_stack},
    {"sample_new_stack", sample_new_stack},
    {"commit", commit},
    {"death_of_another", death_of_another},
    {"death_of_sampled", death_of_sampled},
    {"measure", measure},
    {"snapshot", take_snapshot},
    {"encode", encode},
};

static void
set_up(void)
{
    mpp_profile_config_t config = {
        .memory_limit_bytes = 256u << 20,
        .max_rows = 100000,
        .max_live = 1000000,
        .max_pending = 1024,
        .max_depth = 512,
        .tracks_live = true,
        .seed = 1,
    };
    expect(mpp_pprof_init() == MPP_OK, "schema");
    expect(mpp_profile_new(&config, &profile) == MPP_OK, "profile");
    mpp_id_t class_name = mpp_profile_define_class(profile, CLASS_KEY, MPP_VIEW("Object"));
    expect(class_name != 0, "class"); /* its reference stays ours */
    for (uint32_t i = 0; i < N_PATHS; i++) {
        make_path(&paths[i], i);
        sample(&paths[i]);
        drain();
    }
}

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--versions") == 0) {
        printf("glibc %s, zlib %s\n", gnu_get_libc_version(), zlibVersion());
        return 0;
    }
    set_up();
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        phases[i].run();
        CALLGRIND_DUMP_STATS_AT(phases[i].name);
    }
    mpp_profile_release(profile);
    return 0;
}
