/*
 * The back end that costs nothing when an object is freed: an ObjectSpace::WeakMap of each run, number of a record →
 * object, filled at the safe point. The VM keeps it through compaction and through the collections of any Ractor. A
 * death shows as an entry that is gone, from the end of marking on, and whoever walks the records notices it: a flush
 * looks at all of them, a job at some. A record that leaves otherwise (by thinning) leaves its entry to the object's
 * death.
 *
 * Every call of the map checks interrupts: other threads may run, and Thread#raise and Thread#kill strike. Calls of
 * ours go on with that; a job cannot, for the VM forgets what it raises, and a thread whose end was forgotten never
 * ends. So this back end is for Rubies where a job can hold them off (3.4 and later); before, mark_hook.c stands in
 * for it.
 */
#include "own_work.h"
#include "vm.h"

/*
 * Each sample pays for so many looks at records, to be taken after the next collection: few of the records are dead
 * then that the collection before has not shown. At most so many at once, a few milliseconds.
 */
#define LOOKS_PER_SAMPLE 4u
#define MAX_LOOKS 16384u

/* Of the map's methods under our own names: what the program makes of ObjectSpace::WeakMap's does not matter. */
static ID id_put, id_get, id_has;
static VALUE map_class;

typedef struct {
    mpp_weak_map_t *weak;
    VALUE number;
    VALUE object;
} entry_t;

/* Of what a record keeps: its serial, which wraps after 2^32 records, and 28 bits of its birth, others by then. */
static VALUE
number_of(const mpp_live_record_t *record)
{
    return LONG2FIX((long)((uint64_t)record->serial << 28 | (record->birth & 0xfffffff)));
}

static bool
is_want_of_memory(VALUE error)
{
    if (RB_SPECIAL_CONST_P(error) || RB_BUILTIN_TYPE(error) == RUBY_T_IMEMO) return false;
    return rb_obj_is_kind_of(error, rb_eNoMemError) || rb_obj_is_kind_of(error, rb_eSysStackError);
}

/* Whether it went well; if not, *raised is 0 or what to rb_jump_tag with. */
static bool
protect(VALUE (*function)(VALUE), entry_t *entry, int *raised)
{
    VALUE error = rb_errinfo();
    rb_protect(function, (VALUE)entry, raised);
    if (*raised == 0) return true;
    if (!is_want_of_memory(rb_errinfo())) return false;
    mpp_compat_restore_error(error);
    *raised = 0;
    return false;
}

/* What runs during the call of a method is not our work. */
static bool
call(VALUE (*function)(VALUE), entry_t *entry, int *raised)
{
    mpp_own_work_t own_work = mpp_own_work_suspend();
    bool done = protect(function, entry, raised);
    mpp_own_work_resume(&own_work);
    return done;
}

/* -- filling -- */

static VALUE
make_map(VALUE argument)
{
    const entry_t *entry = (const entry_t *)argument;
    entry->weak->map = rb_obj_alloc(map_class);
    return Qnil;
}

static bool
has_map(entry_t *entry, int *raised)
{
    mpp_own_work_t own_work;
    if (!NIL_P(entry->weak->map)) return true;
    mpp_own_work_begin(&own_work);
    bool made = protect(make_map, entry, raised);
    mpp_own_work_end(&own_work);
    return made;
}

static VALUE
put(VALUE argument)
{
    const entry_t *entry = (const entry_t *)argument;
    VALUE number_and_object[] = {entry->number, entry->object};
    rb_funcallv(entry->weak->map, id_put, 2, number_and_object);
    return Qnil;
}

static int
follow(mpp_collector_t *collector, mpp_profile_t *profile, mpp_id_t id, VALUE object)
{
    mpp_live_record_t *record = mpp_live_at(mpp_profile_live(profile), id);
    entry_t entry = {&collector->weak_map, number_of(record), object};
    uint32_t serial = record->serial;
    int raised = 0;
    if (collector->weak_map.ended) return 0;
    bool is_of_map = collector->profile == profile;
    record->unmeasured = RBASIC_CLASS(object) == 0;
    if (is_of_map && has_map(&entry, &raised) && call(put, &entry, &raised)) return 0;
    mpp_profile_give_up(profile, id, serial);
    return raised;
}

/* -- looking -- */

static VALUE
get(VALUE argument)
{
    entry_t *entry = (entry_t *)argument;
    entry->object = rb_funcallv(entry->weak->map, id_get, 1, &entry->number);
    return Qnil;
}

static VALUE
has(VALUE argument)
{
    entry_t *entry = (entry_t *)argument;
    entry->object = rb_funcallv(entry->weak->map, id_has, 1, &entry->number);
    return Qnil;
}

/* What the VM has hidden meanwhile is not to come out of the map, for a program can see what its methods return. */
static mpp_finding_t
find(mpp_walk_t *walk, const mpp_live_record_t *record, VALUE *object)
{
    entry_t entry = {&walk->collector->weak_map, number_of(record), Qnil};
    bool is_of_map = walk->collector->profile == walk->profile && !NIL_P(entry.weak->map);
    if (walk->raised || !is_of_map) return MPP_FOUND_STALE;
    if (!call(record->unmeasured ? has : get, &entry, &walk->raised)) return MPP_FOUND_STALE;
    if (record->unmeasured) return RTEST(entry.object) ? MPP_FOUND_STALE : MPP_FOUND_DEAD;
    *object = entry.object;
    return NIL_P(entry.object) ? MPP_FOUND_DEAD : MPP_FOUND_ALIVE;
}

static mpp_finding_t
look(void *walk, const mpp_live_record_t *record, uint64_t *bytes)
{
    VALUE object;
    (void)bytes; /* those it has */
    return find(walk, record, &object);
}

static bool
is_time_to_look(mpp_weak_map_t *weak)
{
    uint32_t gc_count = (uint32_t)rb_gc_count();
    if (weak->cursor != 0) return true;
    if (weak->gc_count == gc_count) return false;
    weak->gc_count = gc_count;
    return true;
}

static int
look_around(mpp_collector_t *collector, uint32_t n_samples)
{
    mpp_weak_map_t *weak = &collector->weak_map;
    mpp_walk_t walk = {.collector = collector, .profile = collector->profile};
    if (walk.profile == NULL || weak->ended) return 0;
    weak->n_looks += (uint64_t)n_samples * LOOKS_PER_SAMPLE;
    uint32_t n_live = mpp_profile_live_count(walk.profile);
    if (weak->n_looks > n_live) weak->n_looks = n_live;
    if (!is_time_to_look(weak)) return 0;

    uint32_t n = weak->n_looks < MAX_LOOKS ? (uint32_t)weak->n_looks : MAX_LOOKS;
    uint32_t run = collector->run;
    mpp_id_t cursor = weak->cursor;
    uint64_t n_stale = 0;
    weak->n_looks -= n;
    mpp_profile_retain(walk.profile);
    bool more = mpp_profile_measure(walk.profile, &cursor, n, look, &walk, &n_stale);
    mpp_profile_release(walk.profile);
    if (collector->run == run) weak->cursor = more ? cursor : 0;
    return walk.raised;
}

/* -- a run, and the process -- */

static void
stop(mpp_collector_t *collector, VALUE self)
{
    (void)self;
    collector->weak_map.map = Qnil;
}

const mpp_liveness_t mpp_liveness_weak_map = {
    .name = "weak_map",
    .keeps_records = true,
    .late_deaths = true,
    .start = mpp_liveness_start_nothing,
    .stop = stop,
    .verify = mpp_liveness_verify_nothing,
    .follow = follow,
    .look_around = look_around,
    .find = find,
};

size_t
mpp_weak_map_bytes(const mpp_weak_map_t *weak)
{
    return NIL_P(weak->map) ? 0 : mpp_compat_memsize(weak->map);
}

void
mpp_weak_map_define(VALUE module)
{
    VALUE object_space = rb_const_get(rb_cObject, rb_intern("ObjectSpace"));
    map_class = rb_define_class_under(module, "FollowedObjects", rb_const_get(object_space, rb_intern("WeakMap")));
    rb_gc_register_mark_object(map_class);
    rb_define_alias(map_class, "put", "[]=");
    rb_define_alias(map_class, "get", "[]");
    rb_define_alias(map_class, "has", "key?");
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("FollowedObjects")));
    id_put = rb_intern("put");
    id_get = rb_intern("get");
    id_has = rb_intern("has");
    static const char *const others[] = {"[]=", "[]", "key?", "values", "each", "each_pair", "each_value", "each_key", "keys",
                                         "include?", "member?", "delete", "size", "length"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) rb_undef_method(map_class, others[i]);
    rb_define_alias(map_class, "inspect", "to_s");
}
