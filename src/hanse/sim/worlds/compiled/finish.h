/* State of the policy earliest-finish, which finish*.c share: twin of worlds/earliest_finish/. */
#ifndef HANSE_WORLD_FINISH_H
#define HANSE_WORLD_FINISH_H

#include "../../../policy/kernels/finish_time.h"
#include "transfers.h"
#include "world.h"

#include <string.h>

/* Time between two passes over the jobs that wait for a better place. */
#define PASS_US 1000000

/* Kernels of _kernels.so, in the order of their addresses in settings.arrays[0]. */
typedef struct {
    int64_t (*choose)(const finish_nodes_t *, const finish_job_t *, finish_entry_t *, int64_t *, double *);
    double (*ideal)(const finish_nodes_t *, const finish_job_t *);
    void (*duration_add)(double *, int64_t, double, int64_t, const int64_t *, const double *, const double *, double,
                         double);
    void (*duration_solve)(const double *, int64_t, double, const double *, double *);
    void (*duration_seconds)(const double *, int64_t, double, double, double *);
    void (*crowding_add)(double *, const double *, const int64_t *, double, int64_t, const int64_t *, const double *,
                         const double *);
    void (*crowding_solve)(const double *, const int64_t *, double, double *);
    double (*crowding_slow_down)(const double *, const int64_t *, int64_t, const double *);
} finish_kernels_t;

/* Settings, as doubles in this order. */
typedef struct {
    double works, has_constants;   /* kinds of work; 1 if the speeds of classes are declared */
    double uses_data, charge, learns_crowding, uses_sizes;
    double wait_ratio, wait_share; /* ratio 0: no task waits */
    double is_shortest_first, ageing;
    double explores;               /* share of jobs that are placed at random */
    double spreads[3];             /* of contrasts between rows: all work, kinds of work, kinds */
    double decay, crowding_decay, crowding_variance, solve_jobs;
    double first_seconds, off_max, seconds_min, size_unit;
} finish_options_t;

typedef struct {
    finish_kernels_t k;
    finish_options_t o;
    uint64_t seed;
    finish_nodes_t nodes;
    int64_t works, classes, row_words, answer_words, new_jobs;
    /* learned; the caller's */
    const double *constants;    /* [works][classes] contrasts declared, or NULL */
    const double *first_answer; /* [answer_words] */
    double *rows;               /* [1 + works + kinds][row_words] */
    double *crowding_row, *crowding_answer;
    /* nodes */
    int64_t *placed_cpu, *placed_us; /* [nodes][works] milli-CPU and expected microseconds of the tasks placed there */
    int64_t *running_cpu;            /* [nodes][works] milli-CPU of those that run */
    int64_t *integral, *settled_at;  /* [nodes][works] milli-CPU times microseconds, up to settled_at [nodes] */
    /* jobs and tasks */
    double *job_seconds; /* [jobs][classes]; first is negative: not estimated yet */
    double *job_ideal;   /* [jobs] least expected finish when it became ready */
    int64_t *ready_at;   /* [jobs] NEVER: not ready yet */
    int64_t *task_us;    /* [tasks] expected microseconds where it is placed; NONE: it is not placed */
    int64_t *begun;      /* [tasks][works] integrals at the start of its run */
    double *shares;      /* [tasks][works] of its node's cores, averaged over its run */
    bool *runs;          /* [tasks] */
    /* the job that is tried */
    double *rack_seconds; /* [racks] */
    int64_t *plan;        /* [tasks of a job] node of each waiting task, in order of number or of choice */
    int64_t plan_next;    /* the next of them, in order of choice */
    int64_t plan_end;     /* answer for a task without a place */
    finish_job_t job;
    finish_entry_t *entries;
    int64_t *chosen, *order;
    double *costs;       /* [classes] expected seconds on those that the job allows */
    double *entry_costs; /* [tasks of a job] */
    /* the job that is counted */
    int64_t *task_class;
    double *log_seconds, *sizes, *slow_downs, *answers;
} finish_t;

/* finish_nodes.c */
void finish_show(finish_t *f, const world_t *w, int64_t node);
void finish_show_all(finish_t *f, const world_t *w);
void finish_on_start(policy_t *p, const world_t *w, int64_t task, int64_t node);
void finish_on_input(policy_t *p, const world_t *w, int64_t task, int64_t node);
void finish_on_task_end(policy_t *p, const world_t *w, int64_t task, int64_t node, int64_t run_us);
void finish_on_lost(policy_t *p, const world_t *w, int64_t task, int64_t node);

/* finish_learning.c */
double finish_mean_bytes(const world_t *w, int64_t job);
void finish_estimate(finish_t *f, const world_t *w, int64_t job);
void finish_on_job_end(policy_t *p, const world_t *w, int64_t job);

#endif
