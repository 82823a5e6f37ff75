#ifndef SUPPORT_PROGRAM_H
#define SUPPORT_PROGRAM_H

/*
 * A program that allocates by a script, and a host that samples it in bursts, on a clock of their own. What the host does
 * takes the program's time as it would on a machine: events, looks at the clocks, captures, jobs. CPU timers fire at the
 * first of the kernel's timer interrupts at or after they are due; the job runs at the next safe point.
 *
 *   support_run_t run = {.program = storm, .config = config, .observer = SUPPORT_BURST, .program_ns = …, .seed = …};
 *   support_outcome_t outcome;
 *   support_run_program(&run, &outcome);    outcome has the truth and what was seen
 */

#include "support.h"

#include "burst.h"

#define SUPPORT_N_SITES 6

/* A piece of a program: first off the CPU, then a collection of garbage, then allocations. */
typedef struct {
    uint64_t sleep_ns;
    uint64_t collect_ns;
    uint32_t each_ns; /* CPU time up to each allocation, or of a stretch without any */
    uint32_t n_allocations;
    const uint8_t *sites; /* that of allocation i is sites[i % n_sites] */
    uint32_t n_sites;
    bool native; /* no safe point before its end */
} support_stretch_t;

/* What comes next: stretch number `i` of the run, at that program time. The stretch comes in zeroed. */
typedef void (*support_program_t)(support_random_t *random, uint64_t i, uint64_t time_ns, support_stretch_t *stretch);

typedef enum {
    SUPPORT_BURST,
    SUPPORT_FROM_SAFE_POINT, /* wrong: a window counts from the safe point on, however late that is */
    SUPPORT_COUNTED_WINDOWS, /* wrong: a window is of K allocations, which weigh what was allocated since the last */
    SUPPORT_UNCALIBRATED,    /* wrong where the config is: events cost what the config says */
} support_observer_t;

typedef struct {
    support_program_t program;
    support_observer_t observer;
    mpp_burst_config_t config;
    uint32_t hook_ns; /* the true cost of an event, without looks */
    uint32_t capture_ns;
    uint64_t flush_every_ns, flush_ns; /* CPU time; 0: never */
    const uint64_t *n_kept;            /* by site, how many objects live: those it has allocated last. NULL: none */
    uint64_t prelude_ns, program_ns;
    uint64_t seed;
} support_run_t;

typedef struct {
    double n_allocated[SUPPORT_N_SITES];                   /* the truth */
    double weight[SUPPORT_N_SITES][MPP_N_ORIGINS];         /* of samples, in allocations */
    double n_retained[SUPPORT_N_SITES];                    /* the truth of what lives */
    double retained_weight[SUPPORT_N_SITES][MPP_N_ORIGINS]; /* of samples that do */
    mpp_burst_totals_t totals;
    uint64_t own_ns, cpu_ns;            /* true CPU time: of profiling, of everything */
    uint64_t mean_interval_ns, lead_ns; /* at the end */
} support_outcome_t;

void support_run_program(const support_run_t *run, support_outcome_t *outcome);

/* The same run in steps, for watching it: begins, goes on until so much program time has passed since the begin. */
typedef struct support_host support_host_t;
support_host_t *support_host_new(const support_run_t *run);
void support_host_run(support_host_t *host, support_program_t program, uint64_t until_ns);
void support_host_look(const support_host_t *host, support_outcome_t *outcome);
void support_host_free(support_host_t *host);

#endif
