/* A run of a central policy: which jobs wait, and who is asked when. */
#ifndef HANSE_WORLD_CENTRAL_H
#define HANSE_WORLD_CENTRAL_H

#include "queue.h"

enum { FIFO, FEWEST_REMAINING, SHORTEST_WORK }; /* orders; ORDERS of central.py */

/* run.py fills it in this order. */
typedef struct {
    int64_t policy, order, seed;
} choice_t;

typedef struct {
    world_t *w;
    policy_t p;
    queue_t q;
    int64_t order;
    int64_t arrived;        /* jobs that have arrived */
    int64_t ended;          /* jobs */
    int64_t next_pass;      /* when jobs that answered WAIT are asked again */
    int32_t *unfinished;    /* [J] tasks that have not ended */
    int32_t *waiting;       /* [J] tasks without a place, and not bound to one */
    int64_t *cursor;        /* [J] no task before it waits */
    int32_t *needs_left;    /* [J] jobs that must end first, and one until its arrival */
    int64_t *dependents_offset, *dependents; /* jobs that need each job */
    bool *decided;          /* [J] decision_ns is filled */
    int32_t *aside;         /* jobs that answered WAIT */
    int64_t aside_count;
    bool *is_aside;         /* [J] */
    /* tasks bound to nodes ahead of their start, a list each in order of binding */
    int32_t *bound_first, *bound_last; /* [N] */
    int32_t *bound_next;               /* [T] */
    int32_t *bound_node;               /* [T] NONE: not bound */
    /* for gangs: copies of what the nodes show, sums per domain, nodes chosen */
    int64_t *kept_cpu, *kept_memory, *kept_gpu, *slots, *chosen;
} run_t;

#define EXPORT __attribute__((visibility("default")))

/* central.c */
EXPORT run_t *hanse_world_run(world_t *w, const choice_t *choice, const settings_t *settings);
EXPORT int64_t hanse_world_play(run_t *r, int64_t jobs);
EXPORT void hanse_world_close(run_t *r);
void run_fail(run_t *r, const char *why);
void run_freed(run_t *r, int64_t node);
void run_place(run_t *r, int64_t task, int64_t node);
int64_t run_waiting_task(run_t *r, int64_t job);
void run_undo(run_t *r, int64_t task);

/* gangs.c */
int64_t gang_attempt(run_t *r, int64_t job);
void gang_undo(run_t *r, int64_t job);

/* bound.c */
bool bound_make(run_t *r);
void bound_free(run_t *r);
void bound_add(run_t *r, int64_t task, int64_t node);
void bound_try(run_t *r, int64_t node);
void bound_clear(run_t *r, int64_t node);

#endif
