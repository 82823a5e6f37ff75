/*
 * Threads that are not Ruby's, with every signal unblocked, as a C library starts them:
 *   NativeThreads.start(n)  spend CPU time until …
 *   NativeThreads.join      … this, which gives how often each went round
 */
#include <ruby.h>

#include <pthread.h>
#include <signal.h>

#define MAX_THREADS 8

static struct {
    pthread_t id;
    unsigned long n_rounds;
} threads[MAX_THREADS];
static int n_threads;
static int stopped;

static void *
spend(void *rounds)
{
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) ++*(volatile unsigned long *)rounds;
    return NULL;
}

static VALUE
start(VALUE self, VALUE n)
{
    stopped = 0;
    for (int i = NUM2INT(n); i > 0 && n_threads < MAX_THREADS; i--) {
        threads[n_threads].n_rounds = 0;
        if (pthread_create(&threads[n_threads].id, NULL, spend, &threads[n_threads].n_rounds) != 0) rb_sys_fail("pthread");
        n_threads++;
    }
    return self;
}

static VALUE
join(VALUE self)
{
    VALUE rounds = rb_ary_new();
    (void)self;
    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    while (n_threads > 0) {
        pthread_join(threads[--n_threads].id, NULL);
        rb_ary_push(rounds, ULONG2NUM(threads[n_threads].n_rounds));
    }
    return rounds;
}

void
Init_native_threads(void)
{
    VALUE module = rb_define_module("NativeThreads");
    rb_define_singleton_method(module, "start", start, 1);
    rb_define_singleton_method(module, "join", join, 0);
}
