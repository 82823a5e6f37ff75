/*
 * The model plays the host: objects, frames and classes are slots at fixed addresses, which die, move (slots are swapped)
 * and are used again. It knows for each object what its live record must say, and for each stack × class what was
 * counted. What a run may not predict (which sample a limit drops, which record thinning keeps) it reads off the profile,
 * and checks the sums: counted + dropped + waiting is what was fed, each row's live sums are its records', a delta gives
 * what no delta gave before, and every reference has a holder.
 */

#include "stateful.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "profile_private.h"

#define N_OBJECTS 48u
#define N_FRAMES 24u
#define N_CLASSES 8u
#define FIRST_OBJECT 0x10000u
#define FIRST_FRAME 0x20000u
#define FIRST_CLASS 0x30000u
#define BYTES_PER_SLOT 8u
#define MAX_DEPTH 6u
#define MAX_QUEUE 128u
#define MAX_IN_HAND 3u
#define MAX_SNAPSHOTS 3u
#define MAX_KEYS 2048u
#define MAX_NESTING 2

/* Notes the first check that fails; the run ends with the operation in which it did. */
#define CHECK(model, condition)                                                                                        \
    do {                                                                                                               \
        if (!(condition) && !(model)->failed) {                                                                        \
            (model)->failed = __LINE__;                                                                                \
            fprintf(stderr, "stateful.c:%d: %s\n", __LINE__, #condition);                                              \
        }                                                                                                              \
    } while (0)

typedef struct {
    uint64_t stack; /* hash of its text, leaf first */
    uint64_t class_name;
} row_key_t;

typedef struct {
    bool waits;   /* its sample is pending or in hand, so the host keeps it where it is */
    bool tracked; /* the address may have a live record: this one */
    row_key_t key;
    uint64_t bytes;
    mpp_weight_t weight;
    uint32_t birth;
    bool born_sweeping;
    uint32_t serial;
} object_t;

typedef struct {
    uint32_t object;
    mpp_weight_t weight;
    uint64_t stack;
    mpp_sample_t sample; /* when in hand */
} waiting_t;

typedef struct {
    row_key_t key;
    mpp_amount_t allocated;
    mpp_amount_t unflushed;
} counted_t;

typedef struct {
    mpp_snapshot_t *snapshot;
    uint64_t fingerprint;
    mpp_amount_t given;
} outstanding_t;

typedef struct {
    const uint8_t *data;
    size_t size;
    size_t at;
    int failed;
    int nesting;
    uint32_t n_steps;
    mpp_profile_t *profile;
    mpp_profile_config_t config;

    object_t objects[N_OBJECTS];
    uint32_t frames[N_FRAMES]; /* the serial that its name is made of */
    uint32_t classes[N_CLASSES];
    bool frame_is_pinned[N_FRAMES];
    uint32_t next_serial;
    uint32_t measured; /* 1 + the slot whose record is being measured */

    waiting_t queue[MAX_QUEUE];
    uint32_t n_queue;
    waiting_t in_hand[MAX_IN_HAND];
    uint32_t n_in_hand;
    bool committing; /* naming what the newest in hand needs */

    counted_t counted[MAX_KEYS];
    uint32_t n_counted;
    mpp_amount_t fed;       /* all that was handed in, with the bytes known so far */
    mpp_amount_t unflushed; /* of all rows */
    uint64_t n_dropped_flushed[MPP_N_DROPS];
    uint64_t n_records_lost;
    outstanding_t snapshots[MAX_SNAPSHOTS];
    uint32_t n_snapshots;

    uint32_t gc_count;
    bool sweeping;
    bool detached;
    bool ever_thinned;
    mpp_id_t cursor;
} model_t;

static void step(model_t *model);

/* -- decisions -- */

static uint32_t
decide(model_t *model, uint32_t bound)
{
    uint32_t byte = model->at < model->size ? model->data[model->at] : 0;
    model->at++;
    return byte % bound;
}

/* -- names and addresses -- */

static uintptr_t
address(uintptr_t first, uint32_t slot)
{
    return first + slot * BYTES_PER_SLOT;
}

static uint64_t
hash_text(uint64_t hash, mpp_view_t text, int line)
{
    return mpp_hash_pair(mpp_hash_bytes(hash, text), (uint32_t)line);
}

typedef struct {
    char text[24];
} name_t;

static name_t
name_of(const char *kind, uint32_t serial)
{
    name_t name;
    (void)snprintf(name.text, sizeof name.text, "%s%u", kind, serial);
    return name;
}

static mpp_view_t
view_of(const name_t *name)
{
    return (mpp_view_t){name->text, strlen(name->text)};
}

static uint64_t
class_hash(uint32_t serial)
{
    name_t name = name_of("Class", serial);
    return mpp_hash_bytes(0, view_of(&name));
}

static uint64_t
stack_hash(const mpp_frames_t *frames, mpp_id_t stack)
{
    uint64_t hash = 0;
    while (stack != 0) {
        const mpp_stack_t *node = mpp_frames_get_stack(frames, stack);
        const mpp_location_t *location = mpp_frames_get_location(frames, node->location);
        const mpp_function_t *function = mpp_frames_get_function(frames, location->function);
        hash = hash_text(hash, mpp_strtab_view(frames->strings, function->name), location->line);
        stack = node->parent;
    }
    return hash;
}

static row_key_t
key_of(const mpp_profile_t *profile, mpp_id_t stack, mpp_id_t class_name)
{
    row_key_t key = {stack_hash(&profile->frames, stack), 0};
    if (class_name) key.class_name = mpp_hash_bytes(0, mpp_strtab_view(&profile->strings, class_name));
    return key;
}

static bool
same_key(row_key_t left, row_key_t right)
{
    return left.stack == right.stack && left.class_name == right.class_name;
}

static bool
same_amount(const mpp_amount_t *left, const mpp_amount_t *right)
{
    return left->count == right->count && left->bytes == right->bytes && left->samples == right->samples;
}

static bool
at_most(const mpp_amount_t *left, const mpp_amount_t *right)
{
    return left->count <= right->count && left->bytes <= right->bytes && left->samples <= right->samples;
}

/* -- the model's own rows -- */

static counted_t *
counted_at(model_t *model, row_key_t key)
{
    for (uint32_t i = 0; i < model->n_counted; i++) {
        if (same_key(model->counted[i].key, key)) return &model->counted[i];
    }
    if (model->n_counted == MAX_KEYS) return &model->counted[MAX_KEYS - 1];
    counted_t *counted = &model->counted[model->n_counted++];
    counted->key = key;
    return counted;
}

static mpp_amount_t
amount_of(mpp_weight_t weight, uint64_t bytes)
{
    return (mpp_amount_t){weight, (mpp_sum_t)weight * bytes, 1};
}

/* A sample has come to its end, in a row or dropped. */
static void
end_sample(model_t *model, mpp_weight_t weight, uint64_t bytes)
{
    mpp_amount_t amount = amount_of(weight, bytes);
    mpp_amount_add(&model->unflushed, &amount);
    model->fed.bytes += amount.bytes;
}

static void
feed(model_t *model, mpp_weight_t weight)
{
    model->fed.count += weight;
    model->fed.samples++;
}

static const mpp_row_t *
dropped_row(const model_t *model)
{
    return mpp_rows_at(&model->profile->rows, model->profile->dropped_row);
}

/* -- checks -- */

static void
check_conservation(model_t *model)
{
    mpp_profile_stats_t stats;
    mpp_profile_stats(model->profile, &stats);
    mpp_amount_t sum = mpp_profile_counted(model->profile);
    mpp_amount_add(&sum, &stats.dropped);
    for (uint32_t i = 0; i < model->n_queue; i++) {
        sum.count += model->queue[i].weight;
        sum.samples++;
    }
    for (uint32_t i = 0; i < model->n_in_hand; i++) {
        sum.count += model->in_hand[i].weight;
        sum.samples++;
    }
    CHECK(model, same_amount(&sum, &model->fed));
    CHECK(model, stats.n_pending == model->n_queue);
    CHECK(model, stats.dropped.samples == stats.n_dropped[MPP_DROP_PENDING_FULL] +
                                              stats.n_dropped[MPP_DROP_MEMORY_LIMIT] +
                                              stats.n_dropped[MPP_DROP_NO_MEMORY] +
                                              stats.n_dropped[MPP_DROP_ROW_LIMIT] + stats.n_dropped[MPP_DROP_UNNAMED]);
    CHECK(model, stats.n_dropped[MPP_DROP_UNTRACKED] == model->n_records_lost);
    CHECK(model, stats.n_rows <= model->config.max_rows);
    CHECK(model, stats.n_live <= model->config.max_live);
    CHECK(model, stats.memory_used <= stats.memory_limit);
    size_t tables = stats.strings_bytes + stats.functions_bytes + stats.locations_bytes + stats.stacks_bytes +
                    stats.rows_bytes + stats.live_bytes + stats.pending_bytes + stats.caches_bytes;
    CHECK(model, tables + sizeof(mpp_profile_t) == stats.memory_used);
    if (stats.n_thinnings > 0) model->ever_thinned = true;
}

static void
check_record(model_t *model, const mpp_live_record_t *record)
{
    uintptr_t slot = (record->key - FIRST_OBJECT) / BYTES_PER_SLOT;
    CHECK(model, slot < N_OBJECTS);
    if (slot >= N_OBJECTS) return;
    const object_t *object = &model->objects[slot];
    const mpp_row_t *row = mpp_rows_at(&model->profile->rows, record->row);
    CHECK(model, object->tracked);
    CHECK(model, object->bytes == record->bytes && object->weight == mpp_live_weight(record) >> record->doublings);
    CHECK(model, object->birth == record->birth && object->born_sweeping == record->born_sweeping);
    CHECK(model, same_key(object->key, key_of(model->profile, row->stack, row->class_name)));
    CHECK(model, record->doublings == 0 || model->ever_thinned);
}

static bool
every_record_is_kept(const model_t *model)
{
    return !model->ever_thinned && model->profile->n_dropped[MPP_DROP_LIVE_LIMIT] == 0;
}

static void
check_live(model_t *model)
{
    const mpp_profile_t *profile = model->profile;
    static mpp_row_t sums[MPP_SLAB_CHUNK_ELEMENTS + 1]; /* no configuration has more rows */
    memset(sums, 0, sizeof sums);
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) {
        const mpp_live_record_t *record = mpp_live_at(&profile->live, id);
        CHECK(model, (record->key == 0) == model->detached);
        if (!model->detached) check_record(model, record);
        sums[record->row].live_count += mpp_live_weight(record);
        sums[record->row].live_bytes += mpp_live_weight(record) * record->bytes;
        sums[record->row].n_live++;
    }
    mpp_amount_t total = {0};
    for (mpp_id_t id = 0; (id = mpp_rows_next(&profile->rows, id)) != 0;) {
        const mpp_row_t *row = mpp_rows_at(&profile->rows, id);
        CHECK(model, row->live_count == sums[id].live_count && row->live_bytes == sums[id].live_bytes);
        CHECK(model, row->n_live == sums[id].n_live);
        mpp_amount_add(&total, &row->allocated);
    }
    CHECK(model, same_amount(&total, &profile->rows.total));
    if (model->detached || !every_record_is_kept(model)) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_OBJECTS; i++) n += model->objects[i].tracked;
    CHECK(model, n == mpp_profile_live_count(profile));
}

/* Every reference to a stack, a location or a function has a holder, and the other way round. */
static void
check_references(model_t *model)
{
    const mpp_profile_t *profile = model->profile;
    const mpp_frames_t *frames = &profile->frames;
    int64_t stacks = 2; /* the resolver's pseudo stacks */
    int64_t locations = 0;
    int64_t functions = profile->resolver.functions.n_used;
    if (profile->resolver.last.n > 0) stacks++;
    stacks += mpp_rows_count_used(&profile->rows);
    for (uint32_t i = 0; i < model->n_snapshots; i++) stacks += model->snapshots[i].snapshot->view.n_rows;
    for (uint32_t i = 0; i < profile->pending.n_used; i++) {
        stacks += profile->pending.entries[(profile->pending.head + i) % profile->pending.n_entries].stack != 0;
    }
    for (uint32_t i = 0; i < model->n_in_hand; i++) stacks += model->in_hand[i].sample.entry.stack != 0;

    for (mpp_id_t id = 0; (id = mpp_slab_next(&frames->stacks, id)) != 0;) {
        const mpp_stack_t *stack = mpp_frames_get_stack(frames, id);
        stacks += (stack->parent != 0 && stack->location != 0) - (int64_t)stack->references;
        locations += stack->location != 0;
    }
    for (mpp_id_t id = 0; (id = mpp_slab_next(&frames->locations, id)) != 0;) {
        const mpp_location_t *location = mpp_frames_get_location(frames, id);
        locations -= location->references;
        functions += location->references != 0;
    }
    for (mpp_id_t id = 0; (id = mpp_slab_next(&frames->functions, id)) != 0;) {
        functions -= mpp_frames_get_function(frames, id)->references;
    }
    CHECK(model, stacks == 0);
    CHECK(model, locations == 0);
    CHECK(model, functions == 0);
}

static void
check_tables(model_t *model)
{
    check_live(model);
    check_references(model);
}

/* -- the host's garbage collector -- */

static void
pin(void *context, uintptr_t key)
{
    model_t *model = context;
    uintptr_t slot = (key - FIRST_FRAME) / BYTES_PER_SLOT;
    if (key >= FIRST_FRAME && slot < N_FRAMES) {
        model->frame_is_pinned[slot] = true;
    } else {
        CHECK(model, (key - FIRST_OBJECT) / BYTES_PER_SLOT < N_OBJECTS);
        CHECK(model, model->objects[(key - FIRST_OBJECT) / BYTES_PER_SLOT].waits);
    }
}

static void
find_pinned(model_t *model)
{
    memset(model->frame_is_pinned, 0, sizeof model->frame_is_pinned);
    mpp_profile_each_pending(model->profile, pin, model);
}

static bool
can_swap(const model_t *model, uintptr_t first, uint32_t slot)
{
    uint32_t other = slot ^ 1;
    if (first == FIRST_OBJECT) return !model->objects[slot].waits && !model->objects[other].waits;
    if (first == FIRST_FRAME) return !model->frame_is_pinned[slot] && !model->frame_is_pinned[other];
    return true;
}

/* Every pair of neighbours changes places, unless one of them is pinned. */
static uintptr_t
relocate(void *context, uintptr_t key)
{
    const model_t *model = context;
    uintptr_t first = key >= FIRST_CLASS ? FIRST_CLASS : key >= FIRST_FRAME ? FIRST_FRAME : FIRST_OBJECT;
    return can_swap(model, first, (uint32_t)(key - first) / BYTES_PER_SLOT) ? key ^ BYTES_PER_SLOT : key;
}

#define SWAP(type, left, right)                                                                                        \
    do {                                                                                                               \
        type swapped = (left);                                                                                         \
        (left) = (right);                                                                                              \
        (right) = swapped;                                                                                             \
    } while (0)

static void
do_rekey(model_t *model)
{
    find_pinned(model);
    mpp_profile_rekey(model->profile, relocate, model);
    for (uint32_t i = 0; i < N_OBJECTS; i += 2) {
        if (can_swap(model, FIRST_OBJECT, i)) SWAP(object_t, model->objects[i], model->objects[i + 1]);
    }
    for (uint32_t i = 0; i < N_FRAMES; i += 2) {
        if (can_swap(model, FIRST_FRAME, i)) SWAP(uint32_t, model->frames[i], model->frames[i + 1]);
    }
    for (uint32_t i = 0; i < N_CLASSES; i += 2) SWAP(uint32_t, model->classes[i], model->classes[i + 1]);
}

static void
do_forget_object(model_t *model)
{
    uint32_t slot = decide(model, N_OBJECTS);
    if (model->objects[slot].waits) return;
    mpp_profile_forget_object(model->profile, address(FIRST_OBJECT, slot));
    if (!model->detached) model->objects[slot] = (object_t){.serial = model->next_serial++};
}

static void
do_forget_frame(model_t *model)
{
    uint32_t slot = decide(model, N_FRAMES);
    find_pinned(model);
    if (model->frame_is_pinned[slot]) return;
    mpp_profile_forget_frame(model->profile, address(FIRST_FRAME, slot));
    model->frames[slot] = model->next_serial++;
}

static void
do_forget_class(model_t *model)
{
    uint32_t slot = decide(model, N_CLASSES);
    mpp_profile_forget_class(model->profile, address(FIRST_CLASS, slot));
    model->classes[slot] = model->next_serial++;
}

static void
do_lose_track(model_t *model)
{
    if (decide(model, 4) != 0) return;
    uint64_t n_before = model->profile->n_dropped[MPP_DROP_UNTRACKED];
    uint32_t n_live = model->detached ? 0 : mpp_profile_live_count(model->profile);
    mpp_profile_lose_track(model->profile);
    CHECK(model, model->profile->n_dropped[MPP_DROP_UNTRACKED] == n_before + n_live);
    model->n_records_lost += n_live;
    if (model->detached) return;
    for (uint32_t i = 0; i < N_OBJECTS; i++) model->objects[i].tracked = false;
}

static void
visit_key(void *context, uintptr_t key)
{
    model_t *model = context;
    CHECK(model, (key >= FIRST_FRAME && key < address(FIRST_FRAME, N_FRAMES)) ||
                     (key >= FIRST_CLASS && key < address(FIRST_CLASS, N_CLASSES)));
}

static void
do_collect(model_t *model)
{
    model->gc_count++;
    model->sweeping = decide(model, 2) == 1;
    if (decide(model, 3) == 0) mpp_profile_sweep_keys(model->profile, visit_key, model);
}

/* -- sampling -- */

static void
do_sample(model_t *model)
{
    static const mpp_weight_t weights[] = {MPP_WEIGHT_ONE, MPP_WEIGHT_ONE * 3 / 2, MPP_WEIGHT_ONE * 100 + 128};
    uintptr_t frames[MAX_DEPTH];
    int lines[MAX_DEPTH];
    uint32_t slot = decide(model, N_OBJECTS);
    mpp_weight_t weight = weights[decide(model, 3)];
    mpp_backtrace_t backtrace = {frames, lines, decide(model, MAX_DEPTH + 1), decide(model, 5) == 0};
    uint32_t first = decide(model, N_FRAMES);
    if (model->objects[slot].waits || model->detached || model->n_queue == MAX_QUEUE) return;

    uint64_t hash = 0;
    for (uint32_t i = 0; i < backtrace.n; i++) {
        uint32_t frame = (first + i * 5) % N_FRAMES;
        name_t name = name_of("frame", model->frames[frame]);
        frames[i] = address(FIRST_FRAME, frame);
        lines[i] = (int)(i * first % 3);
        hash = hash_text(hash, view_of(&name), lines[i]);
    }
    if (backtrace.truncated) {
        hash = hash_text(hash, MPP_VIEW("(truncated)"), 0);
    } else if (backtrace.n == 0) {
        hash = hash_text(hash, MPP_VIEW("(no frames)"), 0);
    }

    uint64_t n_dropped = dropped_row(model)->allocated.samples;
    mpp_profile_sample(model->profile, address(FIRST_OBJECT, slot), weight, &backtrace);
    feed(model, weight);
    if (dropped_row(model)->allocated.samples > n_dropped) {
        end_sample(model, weight, 0);
        return;
    }
    model->queue[model->n_queue++] = (waiting_t){.object = slot, .weight = weight, .stack = hash};
    model->objects[slot].waits = true;
}

/* The record at the address of a sample, if there is one, is of an object that died unseen. */
static void
lose_predecessor(model_t *model, uint32_t slot)
{
    model->n_records_lost += mpp_live_find(&model->profile->live, address(FIRST_OBJECT, slot)) != 0;
    model->objects[slot].tracked = false;
}

static void
do_take(model_t *model)
{
    if (model->n_in_hand == MAX_IN_HAND) return;
    if (model->n_queue > 0 && model->measured == model->queue[0].object + 1) return;
    if (model->n_queue > 0 && model->profile->pressure) lose_predecessor(model, model->queue[0].object);
    waiting_t *waiting = &model->in_hand[model->n_in_hand];
    mpp_sample_t sample;
    bool taken = mpp_profile_take(model->profile, &sample);
    CHECK(model, taken == (model->n_queue > 0));
    if (!taken) return;
    *waiting = model->queue[0];
    waiting->sample = sample;
    memmove(model->queue, model->queue + 1, --model->n_queue * sizeof *model->queue);
    model->n_in_hand++;
    CHECK(model, sample.entry.object == address(FIRST_OBJECT, waiting->object));
    CHECK(model, sample.entry.weight == waiting->weight);
}

/* As a host does: naming runs its code, in which anything may happen. */
static void
name_frames(model_t *model, mpp_sample_t *sample)
{
    uintptr_t frame;
    uint32_t n = 0;
    while ((frame = mpp_profile_unknown_frame(model->profile, sample)) != 0) {
        CHECK(model, ++n <= 4 * MAX_DEPTH);
        name_t name = name_of("frame", model->frames[(frame - FIRST_FRAME) / BYTES_PER_SLOT]);
        if (decide(model, 8) == 0) step(model);
        mpp_status_t status = mpp_profile_define_frame(model->profile, frame, view_of(&name), MPP_VIEW("file.rb"), 1);
        CHECK(model, status == MPP_OK || status == MPP_NO_MEMORY || status == MPP_MEMORY_LIMIT);
    }
}

static mpp_id_t
name_class(model_t *model, uint32_t slot)
{
    uintptr_t key = address(FIRST_CLASS, slot);
    mpp_id_t id = mpp_profile_find_class(model->profile, key);
    if (id == 0) {
        name_t name = name_of("Class", model->classes[slot]);
        id = mpp_profile_define_class(model->profile, decide(model, 4) ? key : 0, view_of(&name));
    }
    if (id == 0) return 0;
    uint64_t hash = mpp_hash_bytes(0, mpp_strtab_view(&model->profile->strings, id));
    CHECK(model, hash == class_hash(model->classes[slot]));
    return id;
}

static void
note_birth(model_t *model, uint32_t slot, const waiting_t *waiting, const mpp_birth_t *birth, row_key_t key)
{
    object_t *object = &model->objects[slot];
    if (!birth->live || !model->config.tracks_live || model->detached) return;
    *object = (object_t){
        .tracked = true,
        .key = key,
        .bytes = birth->bytes,
        .weight = waiting->weight,
        .birth = birth->gc_count,
        .born_sweeping = birth->sweeping,
        .serial = model->next_serial++,
    };
}

static void
leave_hand(model_t *model, uint32_t which)
{
    model->objects[model->in_hand[which].object].waits = false;
    memmove(model->in_hand + which, model->in_hand + which + 1, (--model->n_in_hand - which) * sizeof *model->in_hand);
}

static void
do_commit(model_t *model)
{
    if (model->n_in_hand == 0 || model->committing) return;
    uint32_t which = model->n_in_hand - 1; /* nested operations may take more in hand */
    if (model->measured == model->in_hand[which].object + 1) return;
    model->committing = true;
    name_frames(model, &model->in_hand[which].sample);
    model->committing = false;

    waiting_t waiting = model->in_hand[which];
    uint32_t class_slot = decide(model, N_CLASSES + 1);
    mpp_birth_t birth = {
        .class_name = class_slot == N_CLASSES ? 0 : name_class(model, class_slot),
        .bytes = decide(model, 256) * 1000u,
        .gc_count = model->gc_count,
        .sweeping = model->sweeping,
        .live = decide(model, 6) != 0,
    };
    row_key_t key = {waiting.stack, birth.class_name ? class_hash(model->classes[class_slot]) : 0};
    uint64_t n_dropped = dropped_row(model)->allocated.samples;
    lose_predecessor(model, waiting.object);
    mpp_profile_commit(model->profile, &waiting.sample, &birth);
    leave_hand(model, which);
    end_sample(model, waiting.weight, birth.bytes);
    if (dropped_row(model)->allocated.samples > n_dropped) return;
    counted_t *counted = counted_at(model, key);
    mpp_amount_t amount = amount_of(waiting.weight, birth.bytes);
    mpp_amount_add(&counted->allocated, &amount);
    mpp_amount_add(&counted->unflushed, &amount);
    note_birth(model, waiting.object, &waiting, &birth, key);
}

static void
do_discard(model_t *model)
{
    mpp_drop_t reason = (mpp_drop_t[]){MPP_DROP_NO_MEMORY, MPP_DROP_UNNAMED}[decide(model, 2)];
    if (model->n_in_hand == 0 || model->committing) return;
    uint32_t which = model->n_in_hand - 1;
    waiting_t waiting = model->in_hand[which];
    if (model->measured == waiting.object + 1) return;
    lose_predecessor(model, waiting.object);
    mpp_profile_discard(model->profile, &waiting.sample, reason);
    leave_hand(model, which);
    end_sample(model, waiting.weight, 0);
}

/* -- measuring -- */

static mpp_finding_t
measure(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    model_t *model = context;
    uint32_t slot = (uint32_t)(record->key - FIRST_OBJECT) / BYTES_PER_SLOT;
    CHECK(model, slot < N_OBJECTS && model->objects[slot].tracked);
    if (slot >= N_OBJECTS) return MPP_FOUND_STALE;
    const mpp_live_t *live = &model->profile->live;
    mpp_id_t id = mpp_live_find(live, record->key);
    uint32_t serial = model->objects[slot].serial;
    static const mpp_finding_t findings[] = {MPP_FOUND_ALIVE, MPP_FOUND_ALIVE, MPP_FOUND_STALE, MPP_FOUND_DEAD};
    mpp_finding_t finding = findings[decide(model, 4)];
    *bytes = decide(model, 256) * 100u;
    model->measured = slot + 1;
    if (decide(model, 4) == 0) step(model);
    model->measured = 0;
    bool heeded = mpp_live_has(live, id, record->serial) && mpp_live_find(live, record->key) == id;
    if (!heeded) return finding;
    object_t *object = &model->objects[slot];
    CHECK(model, object->serial == serial);
    if (finding == MPP_FOUND_ALIVE) object->bytes = *bytes;
    if (finding == MPP_FOUND_DEAD) object->tracked = false;
    return finding;
}

static void
do_measure(model_t *model)
{
    uint64_t n_stale = 0;
    uint32_t n = decide(model, 16);
    if (model->measured) return;
    if (!mpp_profile_measure(model->profile, &model->cursor, n, measure, model, &n_stale)) model->cursor = 0;
    CHECK(model, n_stale <= n);
}

/* -- snapshots -- */

static uint64_t
fingerprint(const mpp_snapshot_t *snapshot)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        const mpp_snapshot_row_t *row = &snapshot->view.rows[i];
        row_key_t key = key_of(snapshot->profile, row->stack, row->class_name);
        hash = mpp_hash_pair(hash, mpp_hash_pair(key.stack, key.class_name));
        hash = mpp_hash_pair(hash, (uint64_t)row->values[MPP_RETAINED_BYTES]);
    }
    return hash;
}

static bool
is_pseudo(row_key_t key)
{
    return key.stack == hash_text(0, MPP_VIEW("(dropped)"), 0) || key.stack == hash_text(0, MPP_VIEW("(evicted)"), 0);
}

static void
check_allocated(model_t *model, const mpp_snapshot_t *snapshot, mpp_amount_t *sum)
{
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        const mpp_snapshot_row_t *row = &snapshot->view.rows[i];
        row_key_t key = key_of(snapshot->profile, row->stack, row->class_name);
        mpp_amount_t amount = {row->values[MPP_ALLOCATED_COUNT], row->values[MPP_ALLOCATED_BYTES], 0};
        CHECK(model, row->values[MPP_ALLOCATED_COUNT] || row->values[MPP_RETAINED_COUNT]);
        mpp_amount_add(sum, &amount);
        if (is_pseudo(key)) continue;

        const counted_t *counted = counted_at(model, key);
        mpp_amount_t exact = snapshot->delta ? counted->unflushed : counted->allocated;
        exact.samples = 0;
        CHECK(model, at_most(&amount, &counted->allocated));
        CHECK(model, same_amount(&amount, &exact) || model->profile->rows.n_evicted);
        n_found += amount.count != 0;
    }
    if (model->profile->rows.n_evicted) return;
    for (uint32_t i = 0; i < model->n_counted; i++) {
        n_found -= (snapshot->delta ? model->counted[i].unflushed.count : model->counted[i].allocated.count) != 0;
    }
    CHECK(model, n_found == 0);
}

static void
check_retained(model_t *model, const mpp_snapshot_t *snapshot, const mpp_snapshot_options_t *options)
{
    const mpp_live_t *live = &model->profile->live;
    mpp_sum_t count = 0, bytes = 0;
    uint64_t n = 0;
    for (mpp_id_t id = 0; (id = mpp_live_next(live, id)) != 0;) {
        const mpp_live_record_t *record = mpp_live_at(live, id);
        int64_t age = (int64_t)options->gc_count_finished - (int64_t)record->birth;
        if (options->min_gc_age > 0 && age < (int64_t)options->min_gc_age) continue;
        n++;
        count += mpp_live_weight(record);
        bytes += mpp_live_weight(record) * record->bytes;
    }
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        count -= snapshot->view.rows[i].values[MPP_RETAINED_COUNT];
        bytes -= snapshot->view.rows[i].values[MPP_RETAINED_BYTES];
    }
    CHECK(model, count == 0 && bytes == 0);
    CHECK(model, n == snapshot->n_live_samples);
}

static void
flush_model(model_t *model)
{
    for (uint32_t i = 0; i < model->n_counted; i++) model->counted[i].unflushed = (mpp_amount_t){0};
    model->unflushed = (mpp_amount_t){0};
}

static void
do_snapshot(model_t *model)
{
    mpp_snapshot_options_t options = {
        .delta = decide(model, 2) == 1,
        .min_gc_age = decide(model, 4),
        .gc_count_finished = model->sweeping ? model->gc_count - 1 : model->gc_count,
    };
    if (model->n_snapshots == MAX_SNAPSHOTS) return;
    mpp_snapshot_t *snapshot;
    if (mpp_profile_snapshot(model->profile, &options, &snapshot) != MPP_OK) {
        CHECK(model, snapshot == NULL);
        return;
    }
    mpp_amount_t sum = {0}, total = model->unflushed;
    check_allocated(model, snapshot, &sum);
    check_retained(model, snapshot, &options);
    if (!options.delta) {
        mpp_profile_stats_t stats;
        mpp_profile_stats(model->profile, &stats);
        total = mpp_profile_counted(model->profile);
        mpp_amount_add(&total, &stats.dropped);
    }
    CHECK(model, sum.count == total.count && sum.bytes == total.bytes);

    for (int i = 0; i < MPP_N_DROPS; i++) {
        uint64_t n = model->profile->n_dropped[i];
        CHECK(model, snapshot->dropped[i] == (options.delta ? n - model->n_dropped_flushed[i] : n));
        if (options.delta) model->n_dropped_flushed[i] = n;
    }
    outstanding_t *outstanding = &model->snapshots[model->n_snapshots++];
    *outstanding = (outstanding_t){snapshot, fingerprint(snapshot), model->unflushed};
    if (options.delta) flush_model(model);
}

static void
give_back(model_t *model, const outstanding_t *outstanding)
{
    const mpp_snapshot_t *snapshot = outstanding->snapshot;
    mpp_snapshot_give_back(outstanding->snapshot);
    if (!snapshot->delta) return;
    mpp_amount_add(&model->unflushed, &outstanding->given);
    for (int i = 0; i < MPP_N_DROPS; i++) model->n_dropped_flushed[i] -= snapshot->dropped[i];
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        const mpp_snapshot_row_t *row = &snapshot->view.rows[i];
        row_key_t key = key_of(snapshot->profile, row->stack, row->class_name);
        if (!is_pseudo(key)) mpp_amount_add(&counted_at(model, key)->unflushed, &snapshot->given[i]);
    }
}

static void
free_one(model_t *model, bool gives_back)
{
    uint32_t which = decide(model, MAX_SNAPSHOTS);
    if (which >= model->n_snapshots) return;
    outstanding_t outstanding = model->snapshots[which];
    CHECK(model, fingerprint(outstanding.snapshot) == outstanding.fingerprint);
    if (gives_back) give_back(model, &outstanding);
    mpp_snapshot_free(outstanding.snapshot);
    model->snapshots[which] = model->snapshots[--model->n_snapshots];
}

static void
do_free(model_t *model)
{
    free_one(model, false);
}

static void
do_give_back(model_t *model)
{
    free_one(model, true);
}

/* -- the run -- */

static void
do_refuse_memory(model_t *model)
{
    mpp_budget_t *budget = &model->profile->budget;
    budget->fail_from = budget->n_requests + 1 + decide(model, 4);
    budget->fail_count = decide(model, 16);
    model->profile->snapshot_budget.fail_from = decide(model, 4);
    model->profile->snapshot_budget.fail_count = decide(model, 2);
}

static void
do_detach(model_t *model)
{
    if (decide(model, 8) != 0 || model->n_queue + model->n_in_hand > 0) return;
    mpp_profile_detach(model->profile);
    model->detached = true;
}

static void
do_trim(model_t *model)
{
    mpp_profile_trim(model->profile);
}

/* As often as they stand here. */
static void (*const operations[])(model_t *model) = {
    do_sample,    do_sample, do_sample,        do_sample,       do_take,          do_take,         do_take,
    do_commit,    do_commit, do_commit,        do_forget_frame, do_forget_object, do_forget_class, do_forget_object,
    do_collect,   do_rekey,  do_forget_object, do_measure,      do_lose_track,    do_detach,       do_snapshot,
    do_give_back, do_free,   do_refuse_memory, do_discard,      do_trim,
};

static void
step(model_t *model)
{
    if (model->nesting == MAX_NESTING || model->failed) return;
    model->nesting++;
    operations[decide(model, sizeof operations / sizeof *operations)](model);
    model->nesting--;
    check_conservation(model);
    if (model->n_steps++ % 8 == 0) check_tables(model);
}

static bool
start(model_t *model)
{
    static const uint32_t rows[] = {1, 4, 20, 900}, live[] = {1, 3, 16, 900}, pending[] = {1, 8, 64};
    model->config = (mpp_profile_config_t){
        .memory_limit_bytes = 4u << 20,
        .max_rows = rows[decide(model, 4)],
        .max_live = live[decide(model, 4)],
        .max_pending = pending[decide(model, 3)],
        .max_depth = MAX_DEPTH,
        .tracks_live = decide(model, 8) != 0,
        .seed = decide(model, 256),
    };
    uint32_t spare = decide(model, 256);
    if (mpp_profile_new(&model->config, &model->profile) != MPP_OK) return false;
    model->profile->min_thinned = 4;
    mpp_budget_t *budget = &model->profile->budget;
    if (spare < 128) budget->limit_bytes = budget->used_bytes + spare * 512;
    for (uint32_t i = 0; i < N_FRAMES; i++) model->frames[i] = model->next_serial++;
    for (uint32_t i = 0; i < N_CLASSES; i++) model->classes[i] = model->next_serial++;
    return true;
}

static void
finish(model_t *model)
{
    while (model->n_in_hand > 0) do_commit(model);
    check_conservation(model);
    check_tables(model);
    mpp_profile_release(model->profile); /* the snapshots still hold it */
    for (uint32_t i = 0; i < model->n_snapshots; i++) {
        CHECK(model, fingerprint(model->snapshots[i].snapshot) == model->snapshots[i].fingerprint);
        mpp_snapshot_free(model->snapshots[i].snapshot);
    }
}

int
mpp_stateful_run(const uint8_t *data, size_t size)
{
    static model_t model;
    memset(&model, 0, sizeof model);
    model.data = data;
    model.size = size;
    if (!start(&model)) return 0;
    while (model.at < size && model.n_counted < MAX_KEYS && !model.failed) step(&model);
    finish(&model);
    return model.failed;
}
