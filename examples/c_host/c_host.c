/*
 * A C program that profiles its own mallocs with the core: no Ruby anywhere. It shows the four things a host does.
 *
 *   hook        my_malloc: one countdown; of a sampled block the backtrace goes in, still without a name for any frame
 *   safe point  drain: outside the allocation, names each return address once (dladdr) and says how big the block is
 *   death       my_free: the block's record leaves
 *   flush       write_profile: a snapshot, encoded as a gzip'd pprof Profile
 *
 * One thread only: a host with more holds a lock around the first three.
 */

#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pprof.h"
#include "profile.h"

#define RATE 0.01
#define MAX_DEPTH 64

static mpp_profile_t *profile;
static mpp_sampler_t sampler;
static uint64_t n_mallocs; /* the truth, to compare the estimate with */

static void
give_up(const char *what, mpp_status_t status)
{
    fprintf(stderr, "c_host: %s: %s\n", what, mpp_status_text(status));
    exit(1);
}

/* -- safe point -- */

/* The key of a frame is its return address. Without line numbers all call sites in a function become one location. */
static void
name_frame(uintptr_t address)
{
    Dl_info info;
    char unknown[32];
    const char *name = unknown, *file = "";
    (void)snprintf(unknown, sizeof unknown, "0x%" PRIxPTR, address);
    if (dladdr((void *)(address - 1), &info)) { /* of the call, not of what follows it */
        if (info.dli_sname) name = info.dli_sname;
        if (info.dli_fname) file = info.dli_fname;
    }
    mpp_view_t name_view = {name, strlen(name)}, file_view = {file, strlen(file)};
    mpp_status_t status = mpp_profile_define_frame(profile, address, name_view, file_view, 0);
    (void)status; /* short of memory: the core drops the sample and counts the drop */
}

/* C has no classes; the power of two that a block fits in says as much. Its key is the number of bits. */
static mpp_id_t
size_class(size_t bytes)
{
    unsigned bits = 4;
    while (bits < 48 && ((size_t)1 << bits) < bytes) bits++;
    mpp_id_t name = mpp_profile_find_class(profile, bits);
    if (name) return name;
    char text[40];
    int length = snprintf(text, sizeof text, "up to %zu bytes", (size_t)1 << bits);
    return mpp_profile_define_class(profile, bits, (mpp_view_t){text, (size_t)length});
}

/* Every block is preceded by its size: that is how this host knows it later. */
typedef union {
    size_t bytes;
    max_align_t alignment;
} header_t;

static void
drain(void)
{
    mpp_sample_t sample;
    while (mpp_profile_take(profile, &sample)) {
        for (uintptr_t frame; (frame = mpp_profile_unknown_frame(profile, &sample)) != 0;) name_frame(frame);
        size_t bytes = ((const header_t *)sample.entry.object)[-1].bytes;
        mpp_birth_t birth = {.class_name = size_class(bytes), .bytes = bytes, .live = true};
        mpp_profile_commit(profile, &sample, &birth);
    }
}

/* -- hook and death -- */

static __attribute__((noinline)) void
sample_block(uintptr_t block)
{
    void *addresses[MAX_DEPTH + 3]; /* the first two are this function and my_malloc, the last tells of more */
    static const int lines[MAX_DEPTH];
    int n = backtrace(addresses, MAX_DEPTH + 3) - 2;
    bool truncated = n > MAX_DEPTH;
    if (truncated) n = MAX_DEPTH;
    uintptr_t frames[MAX_DEPTH];
    for (int i = 0; i < n; i++) frames[i] = (uintptr_t)addresses[i + 2];
    mpp_backtrace_t leaf_first = {frames, lines, n > 0 ? (uint32_t)n : 0, truncated};
    mpp_profile_sample(profile, block, sampler.weight, &leaf_first);
    mpp_sampler_draw(&sampler);
}

static __attribute__((noinline)) void *
my_malloc(size_t bytes)
{
    header_t *header = malloc(sizeof *header + bytes);
    if (!header) return NULL;
    header->bytes = bytes;
    n_mallocs++;
    if (mpp_sampler_tick(&sampler)) sample_block((uintptr_t)(header + 1));
    return header + 1;
}

static void
my_free(void *block)
{
    if (!block) return;
    /* What waits for the safe point must not die: a host whose objects can wait would keep it alive, this one drains. */
    if (mpp_profile_pending_count(profile) > 0) drain();
    mpp_profile_forget_object(profile, (uintptr_t)block);
    free((header_t *)block - 1);
}

/* -- flush -- */

static mpp_status_t
write_bytes(void *file, const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, file) == n ? MPP_OK : MPP_OUTPUT;
}

static void
encode(const mpp_snapshot_t *snapshot, FILE *file)
{
    const mpp_value_type_t value_types[] = {
        {MPP_VIEW("allocations"), MPP_VIEW("count"), MPP_ALLOCATED_COUNT},
        {MPP_VIEW("allocation_size"), MPP_VIEW("bytes"), MPP_ALLOCATED_BYTES},
        {MPP_VIEW("retained_objects"), MPP_VIEW("count"), MPP_RETAINED_COUNT},
        {MPP_VIEW("retained_size"), MPP_VIEW("bytes"), MPP_RETAINED_BYTES},
    };
    mpp_pprof_options_t options = {
        .value_types = value_types,
        .n_value_types = sizeof value_types / sizeof *value_types,
        .class_mode = MPP_CLASS_LABEL,
        .default_sample_type = MPP_VIEW("retained_size"),
        .period_type = MPP_VIEW("allocations"),
        .period_unit = MPP_VIEW("count"),
        .period = (int64_t)(1 / RATE),
        .time_ns = (int64_t)time(NULL) * 1000000000,
        .mapping_file = MPP_VIEW("c_host"),
        .compression_level = 6,
    };
    mpp_budget_t scratch;
    mpp_budget_init(&scratch, 4u << 20);
    mpp_status_t status = mpp_pprof_init();
    if (status == MPP_OK) {
        status = mpp_pprof_encode(&snapshot->view, &options, &scratch.allocator, write_bytes, file);
    }
    if (status != MPP_OK) give_up("encoding", status);
}

static void
write_profile(const char *path)
{
    drain();
    mpp_snapshot_t *snapshot;
    mpp_snapshot_options_t options = {.delta = false};
    mpp_status_t status = mpp_profile_snapshot(profile, &options, &snapshot);
    if (status != MPP_OK) give_up("snapshot", status);
    FILE *file = fopen(path, "wb");
    if (!file) give_up(path, MPP_OUTPUT);
    encode(snapshot, file); /* reads the snapshot alone: another thread could do it while this one goes on */
    if (fclose(file) != 0) give_up(path, MPP_OUTPUT);

    mpp_sum_t totals[MPP_N_VALUES] = {0};
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        for (int value = 0; value < MPP_N_VALUES; value++) totals[value] += snapshot->view.rows[i].values[value];
    }
    printf("%" PRIu64 " mallocs, estimated from %" PRIu64 " samples as %.0f of %.0f bytes\n", n_mallocs,
           snapshot->n_allocation_samples, (double)totals[MPP_ALLOCATED_COUNT] / (double)MPP_WEIGHT_ONE,
           (double)totals[MPP_ALLOCATED_BYTES] / (double)MPP_WEIGHT_ONE);
    printf("retained, from %" PRIu64 " samples: %.0f blocks of %.0f bytes\n", snapshot->n_live_samples,
           (double)totals[MPP_RETAINED_COUNT] / (double)MPP_WEIGHT_ONE,
           (double)totals[MPP_RETAINED_BYTES] / (double)MPP_WEIGHT_ONE);
    printf("go tool pprof -top %s\n", path);
    mpp_snapshot_free(snapshot);
}

/* -- something to profile: a tree that stays, and strings that come and go. Not static: dladdr sees exported names -- */

typedef struct node {
    struct node *left, *right;
    char *label;
} node_t;

char *make_label(unsigned number);
node_t *build_tree(unsigned depth);
void free_tree(node_t *node);
size_t count_words(unsigned n);

__attribute__((noinline)) char *
make_label(unsigned number)
{
    char *label = my_malloc(12 + number % 50);
    if (label) (void)snprintf(label, 12, "%u", number);
    return label;
}

__attribute__((noinline)) node_t *
build_tree(unsigned depth)
{
    node_t *node = depth ? my_malloc(sizeof *node) : NULL;
    if (node) *node = (node_t){build_tree(depth - 1), build_tree(depth - 1), make_label(depth)};
    return node;
}

void
free_tree(node_t *node)
{
    if (!node) return;
    free_tree(node->left);
    free_tree(node->right);
    my_free(node->label);
    my_free(node);
}

__attribute__((noinline)) size_t
count_words(unsigned n)
{
    size_t sum = 0;
    for (unsigned i = 0; i < n; i++) {
        char *word = make_label(i);
        if (word) sum += strlen(word);
        my_free(word);
    }
    return sum;
}

int
main(int argc, char **argv)
{
    mpp_profile_config_t config = {
        .memory_limit_bytes = 64u << 20,
        .max_rows = 10000,
        .max_live = 100000,
        .max_pending = 4096,
        .max_depth = MAX_DEPTH,
        .tracks_live = true,
        .seed = 1,
    };
    mpp_status_t status = mpp_profile_new(&config, &profile);
    if (status != MPP_OK) give_up("profile", status);
    mpp_sampler_init(&sampler, RATE, 2);

    node_t *tree = build_tree(17);
    size_t n_characters = count_words(1000000);
    write_profile(argc > 1 ? argv[1] : "c_host.pb.gz");
    free_tree(tree);
    bool consistent = mpp_profile_live_count(profile) == 0 && n_characters > 0;
    mpp_profile_release(profile);
    return consistent ? 0 : 1;
}
