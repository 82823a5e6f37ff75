/*
 * To be preloaded: makes this kernel one that a program may meet elsewhere, by OTHER_KERNEL:
 *   6.1    a timer of the process's CPU time that may signal any thread signals the main one, as before Linux 6.4
 *   deaf   timers are set and never fire
 */
#define _GNU_SOURCE 1

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int
is(const char *kernel)
{
    const char *chosen = getenv("OTHER_KERNEL");
    return chosen && strcmp(chosen, kernel) == 0;
}

int
uname(struct utsname *name)
{
    int (*next)(struct utsname *) = (int (*)(struct utsname *))dlsym(RTLD_NEXT, "uname");
    int result = next(name);
    if (result == 0 && is("6.1")) strcpy(name->release, "6.1.0-18-amd64");
    return result;
}

int
timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
    int (*next)(clockid_t, struct sigevent *, timer_t *) =
        (int (*)(clockid_t, struct sigevent *, timer_t *))dlsym(RTLD_NEXT, "timer_create");
    struct sigevent to_main;
    if (!event || event->sigev_notify != SIGEV_SIGNAL || !is("6.1") || clock != CLOCK_PROCESS_CPUTIME_ID) return next(clock, event, timer);
    to_main = *event;
    to_main.sigev_notify = SIGEV_THREAD_ID;
    to_main.sigev_notify_thread_id = getpid();
    return next(clock, &to_main, timer);
}

int
timer_settime(timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *former)
{
    int (*next)(timer_t, int, const struct itimerspec *, struct itimerspec *) =
        (int (*)(timer_t, int, const struct itimerspec *, struct itimerspec *))dlsym(RTLD_NEXT, "timer_settime");
    return is("deaf") ? 0 : next(timer, flags, value, former);
}

/* mkmf wants one. */
void Init_other_kernel(void);

void
Init_other_kernel(void)
{
}
