#include "relay.h"

#if defined(__linux__) && defined(HAVE_TIMER_CREATE) && MPP_RUBY_AT_LEAST(3, 3)

#include <pthread.h>
#include <ruby/thread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES 65536

/* It also looks up by itself, for where the user's queue of signals is full it cannot be told to end. */
static const struct timespec longest_wait = {.tv_nsec = 500000000};

static struct {
    pthread_t thread;
    pid_t id; /* of the thread, by the kernel; 0 until it runs */
    bool runs;
    bool ends;
    int signal_number;
    void (*on_tick)(const siginfo_t *info);
    rb_internal_thread_event_hook_t *hook;
    pid_t runner; /* the thread that has the GVL, 0: none */
} relay;

static pid_t
this_thread(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* In the thread that it is about. */
static void
on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused)
{
    pid_t self = this_thread();
    (void)data;
    (void)unused;
    if (event == RUBY_INTERNAL_THREAD_EVENT_RESUMED) {
        __atomic_store_n(&relay.runner, self, __ATOMIC_RELAXED);
    } else {
        __atomic_compare_exchange_n(&relay.runner, &self, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

static bool
send_to(pid_t thread)
{
    return syscall(SYS_tgkill, getpid(), thread, relay.signal_number) == 0;
}

bool
mpp_relay_send_on(void)
{
    pid_t runner = __atomic_load_n(&relay.runner, __ATOMIC_RELAXED);
    return runner != 0 && send_to(runner);
}

static void *
pass_on(void *unused)
{
    sigset_t awaited;
    siginfo_t info;
    (void)unused;
    sigemptyset(&awaited);
    sigaddset(&awaited, relay.signal_number);
    __atomic_store_n(&relay.id, this_thread(), __ATOMIC_RELEASE);
    while (!__atomic_load_n(&relay.ends, __ATOMIC_ACQUIRE)) {
        if (sigtimedwait(&awaited, &info, &longest_wait) > 0 && info.si_code != SI_TKILL) relay.on_tick(&info);
    }
    return NULL;
}

/* With all signals blocked, for it inherits that. */
static bool
create_thread(void)
{
    sigset_t all, former;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    bool created = pthread_create(&relay.thread, &attributes, pass_on, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    pthread_attr_destroy(&attributes);
    return created;
}

bool
mpp_relay_start(int signal_number, void (*on_tick)(const siginfo_t *info))
{
    relay.signal_number = signal_number;
    relay.on_tick = on_tick;
    relay.ends = false;
    relay.id = 0;
    relay.runner = this_thread();
    if (!create_thread()) return false;
    while (__atomic_load_n(&relay.id, __ATOMIC_ACQUIRE) == 0) sched_yield();
    if (relay.hook == NULL) {
        relay.hook = rb_internal_thread_add_event_hook(on_thread_event,
                                                       RUBY_INTERNAL_THREAD_EVENT_RESUMED |
                                                           RUBY_INTERNAL_THREAD_EVENT_SUSPENDED |
                                                           RUBY_INTERNAL_THREAD_EVENT_EXITED,
                                                       NULL);
    }
    relay.runs = true;
    return true;
}

void
mpp_relay_stop(void)
{
    if (relay.runs) {
        __atomic_store_n(&relay.ends, true, __ATOMIC_RELEASE);
        send_to(relay.id);
        pthread_join(relay.thread, NULL);
        relay.runs = false;
    }
    if (relay.hook) rb_internal_thread_remove_event_hook(relay.hook);
    relay.hook = NULL;
}

void
mpp_relay_forget(void)
{
    relay.runs = false;
}

bool
mpp_relay_runs(void)
{
    return relay.runs;
}

pid_t
mpp_relay_thread(void)
{
    return relay.id;
}

#else

bool
mpp_relay_start(int signal_number, void (*on_tick)(const siginfo_t *info))
{
    (void)signal_number;
    (void)on_tick;
    return false;
}

void
mpp_relay_stop(void)
{
}

void
mpp_relay_forget(void)
{
}

bool
mpp_relay_runs(void)
{
    return false;
}

pid_t
mpp_relay_thread(void)
{
    return 0;
}

bool
mpp_relay_send_on(void)
{
    return false;
}

#endif
