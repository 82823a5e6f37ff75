/*
 * See timer.h. The handler runs on any thread at any instruction: it takes stamps, asks for the job, and nothing else.
 * Its one note (`tick`) is empty, being written or read, or ready; of two ticks that wait, one is left out.
 * It runs on the stack that is in use: the VM frees a thread's alternate stack while its native thread may still have it.
 * Whoever takes a tick arms the next. For safety the handler arms one too: the timer itself never repeats, so whoever
 * takes the signal from us meets one tick at most.
 *
 * From Linux 6.4 the signal hits the thread that has used the CPU time. Before, a relay sends it there, where it can be had.
 */
#include "timer.h"

#include "relay.h"

#include "../core/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef _WIN32
#include <sys/utsname.h>
#endif
#ifdef __linux__
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid /* glibc before 2.39 has no name for it */
#endif
#endif

static uint64_t
read_clock(clockid_t id)
{
    struct timespec now;
    if (clock_gettime(id, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t
mpp_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t
mpp_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* It looks when the coarse clock is advanced. */
uint64_t
mpp_timer_resolution_ns(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    struct timespec step;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &step) == 0 && step.tv_sec == 0 && step.tv_nsec >= 1000000) {
        return (uint64_t)step.tv_nsec;
    }
#endif
    return 4000000;
}

#if defined(__linux__) && defined(HAVE_TIMER_CREATE)

/* Ticks must have come before this thread has spent so much CPU time. */
#define TEST_NS UINT64_C(60000000)

enum { EMPTY, WRITING, READY };

static struct {
    timer_t id;
    bool exists;
    int signal_number; /* 0: not running */
    struct sigaction former;
    bool proven;       /* ticks have arrived in this process */
    bool hits_runner;  /* ticks are noted in the thread that used the CPU time */
    uint64_t repeat_ns; /* from a tick to the one that its handler arms, 0: none */
    volatile sig_atomic_t testing;
    volatile sig_atomic_t test_ticks;
} timer;

static struct {
    int state;
    pthread_t thread;
    uint64_t thread_cpu_ns;
    uint64_t cpu_ns; /* of the process */
    bool in_gc;
    bool without_gvl; /* no thread had it */
    uint64_t refused_ns; /* cpu_ns of the last tick that has been refused */
} tick;

static bool
claim(int state)
{
    return __atomic_compare_exchange_n(&tick.state, &state, WRITING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void
refuse(void)
{
    __atomic_store_n(&tick.refused_ns, tick.cpu_ns, __ATOMIC_RELAXED);
}

/*
 * One that waits in this thread stays: it is the one whose lateness counts. One that waits in another thread, which ran
 * without the GVL or in another Ractor, must not stand in the way of this one.
 */
static bool
claim_for_this_thread(void)
{
    if (claim(EMPTY)) return true;
    if (!timer.hits_runner || !claim(READY)) return false;
    bool hit_this = pthread_equal(tick.thread, pthread_self());
    if (hit_this) __atomic_store_n(&tick.state, READY, __ATOMIC_RELEASE);
    if (!hit_this) refuse();
    return !hit_this;
}

static void
note_tick(bool without_gvl)
{
    if (!claim_for_this_thread()) return;
    tick.without_gvl = without_gvl;
    tick.thread = pthread_self();
    tick.cpu_ns = mpp_cpu_ns();
    tick.thread_cpu_ns = mpp_thread_cpu_ns();
    tick.in_gc = rb_during_gc();
    __atomic_store_n(&tick.state, READY, __ATOMIC_RELEASE);
}

static struct timespec
to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / UINT64_C(1000000000)), (long)(ns % UINT64_C(1000000000))};
}

static void
arm_again(void)
{
    struct itimerspec times = {.it_value = to_timespec(__atomic_load_n(&timer.repeat_ns, __ATOMIC_RELAXED))};
    if (timer.exists) timer_settime(timer.id, 0, &times, NULL);
}

static void
take_note(bool without_gvl)
{
    note_tick(without_gvl);
    mpp_compat_trigger_job();
}

static void on_signal(int signal_number, siginfo_t *info, void *context);

/* Gives whether it is to be noted. */
static bool
is_tick(const siginfo_t *info)
{
    if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &timer) return false;
    arm_again(); /* first, for who takes the tick arms after us */
    if (timer.testing) timer.test_ticks++;
    return !timer.testing;
}

static bool
handler_is_ours(void)
{
    struct sigaction present;
    if (sigaction(timer.signal_number, NULL, &present) != 0) return false;
    return (present.sa_flags & SA_SIGINFO) && present.sa_sigaction == on_signal;
}

/* The relay waits for the signal, whoever handles it. */
static void
on_relayed_signal(const siginfo_t *info)
{
    if (handler_is_ours() && is_tick(info) && !mpp_relay_send_on()) take_note(true);
}

static void
on_signal(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    int error = errno;
    bool sent_on = info->si_code == SI_TKILL && info->si_pid == getpid() && mpp_relay_runs();
    if ((sent_on || is_tick(info)) && ruby_native_thread_p()) take_note(false);
    errno = error;
}

bool
mpp_timer_take(mpp_tick_t *taken)
{
    if (!claim(READY)) return false;
    bool same_thread = pthread_equal(tick.thread, pthread_self());
    taken->late_ns = timer.hits_runner ? mpp_thread_cpu_ns() - tick.thread_cpu_ns : mpp_cpu_ns() - tick.cpu_ns;
    taken->in_gc = tick.in_gc;
    taken->usable = !tick.without_gvl && (same_thread || !timer.hits_runner);
    __atomic_store_n(&tick.state, EMPTY, __ATOMIC_RELEASE);
    return true;
}

bool
mpp_timer_lost_signal(void)
{
    return !handler_is_ours();
}

void
mpp_timer_arm(uint64_t due_ns, uint64_t repeat_ns)
{
    if (!timer.exists || !handler_is_ours()) return;
    struct itimerspec times = {.it_value = to_timespec(due_ns ? due_ns : 1)};
    __atomic_store_n(&timer.repeat_ns, repeat_ns, __ATOMIC_RELAXED);
    timer_settime(timer.id, TIMER_ABSTIME, &times, NULL);
}

void
mpp_timer_refuse(void)
{
    if (!claim(READY)) return;
    bool hit_this = pthread_equal(tick.thread, pthread_self());
    if (hit_this) {
        refuse();
        uint64_t resolution_ns = mpp_timer_resolution_ns();
        mpp_timer_arm(tick.cpu_ns + mpp_hash_mix(tick.cpu_ns) % (2 * resolution_ns), resolution_ns);
    }
    __atomic_store_n(&tick.state, hit_this ? EMPTY : READY, __ATOMIC_RELEASE);
}

uint64_t
mpp_timer_refused_ns(void)
{
    return __atomic_exchange_n(&tick.refused_ns, 0, __ATOMIC_RELAXED);
}

static bool
create(void)
{
    struct sigevent event;
    memset(&event, 0, sizeof(event));
    event.sigev_notify = SIGEV_SIGNAL;
    if (mpp_relay_runs()) {
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = mpp_relay_thread();
    }
    event.sigev_signo = timer.signal_number;
    event.sigev_value.sival_ptr = &timer;
    timer.exists = timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer.id) == 0;
    return timer.exists;
}

static bool
is_free(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

/* From the top, for what is chosen by hand is chosen from the bottom. 0: there is none. */
static int
free_signal(void)
{
    int number = SIGRTMAX - 1;
    while (number > SIGRTMIN && !is_free(number)) number--;
    return number > SIGRTMIN ? number : 0;
}

static bool
kernel_is_at_least(int major, int minor)
{
    struct utsname name;
    int has_major, has_minor;
    if (uname(&name) != 0 || sscanf(name.release, "%d.%d", &has_major, &has_minor) != 2) return false;
    return has_major > major || (has_major == major && has_minor >= minor);
}

/* Has ticks noted in the thread that uses the CPU time, if that can be had. Before create, which asks the relay. */
static void
reach_runner(void)
{
    timer.hits_runner = kernel_is_at_least(6, 4) || mpp_relay_start(timer.signal_number, on_relayed_signal);
}

static bool
ticks_arrive(void)
{
    if (timer.proven) return true;
    uint64_t start = mpp_thread_cpu_ns();
    timer.test_ticks = 0;
    timer.testing = true;
    mpp_timer_arm(1, 0); /* long past: at the kernel's next look */
    while (timer.test_ticks == 0 && mpp_thread_cpu_ns() - start < TEST_NS) continue;
    timer.testing = false;
    timer.proven = timer.test_ticks > 0;
    return timer.proven;
}

/* Ignoring a signal throws away those that are under way, which would else meet the former handler. Who has taken the
 * signal after us keeps it. */
static void
give_signal_back(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (handler_is_ours()) {
        sigaction(timer.signal_number, &ignore, NULL);
        sigaction(timer.signal_number, &timer.former, NULL);
    }
    timer.signal_number = 0;
    tick.state = EMPTY;
}

const char *
mpp_timer_start(int signal_number)
{
    if (timer.signal_number != 0) return NULL;
    if (signal_number == 0 && (signal_number = free_signal()) == 0) return "every real-time signal is in use";
    if (!is_free(signal_number)) return "the program uses the signal that timer_signal names";
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    if (sigaction(signal_number, &action, &timer.former) != 0) return "the signal cannot be handled";
    timer.signal_number = signal_number;
    reach_runner();
    if (!create()) {
        mpp_relay_stop();
        give_signal_back();
        return "the system gives no timer of CPU time";
    }
    if (!ticks_arrive()) {
        mpp_timer_stop();
        return "the timer's signal does not arrive";
    }
    return NULL;
}

void
mpp_timer_stop(void)
{
    if (timer.signal_number == 0) return;
    if (timer.exists) timer_delete(timer.id);
    timer.exists = false;
    mpp_relay_stop();
    give_signal_back();
}

void
mpp_timer_forget(void)
{
    timer.exists = false;
    mpp_relay_forget();
    tick.state = EMPTY;
    tick.refused_ns = 0;
}

bool
mpp_timer_restart(void)
{
    if (timer.exists) return true;
    if (timer.signal_number == 0) return false;
    reach_runner();
    return create();
}

int
mpp_timer_signal(void)
{
    return timer.signal_number;
}

#else

const char *
mpp_timer_start(int signal_number)
{
    (void)signal_number;
    return "this system has no timers of CPU time that signal";
}

void
mpp_timer_stop(void)
{
}

void
mpp_timer_forget(void)
{
}

bool
mpp_timer_restart(void)
{
    return false;
}

bool
mpp_timer_lost_signal(void)
{
    return false;
}

void
mpp_timer_arm(uint64_t due_ns, uint64_t repeat_ns)
{
    (void)due_ns;
    (void)repeat_ns;
}

bool
mpp_timer_take(mpp_tick_t *taken)
{
    (void)taken;
    return false;
}

void
mpp_timer_refuse(void)
{
}

uint64_t
mpp_timer_refused_ns(void)
{
    return 0;
}

int
mpp_timer_signal(void)
{
    return 0;
}

#endif
