/* The run of a central policy: twin of central.py. */
#define _POSIX_C_SOURCE 199309L
#include "central.h"

#include <stdlib.h>
#include <time.h>

/* Weight of a second of expected work against a second of waiting, in the order shortest-work. */
#define WORK_WEIGHT 10

void run_fail(run_t *r, const char *why) { world_fail(r->w, why); }

static int64_t processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t key_of(run_t *r, int64_t job)
{
    const columns_t *c = &r->w->c;
    if (r->p.key)
        return r->p.key(&r->p, r->w, job, r->unfinished[job]);
    if (r->order == FIFO)
        return 0;
    if (r->order == FEWEST_REMAINING)
        return r->unfinished[job];
    return c->job_arrival[job] + WORK_WEIGHT * c->job_estimate[job];
}

static void put_in_queue(run_t *r, int64_t job)
{
    if (!r->is_aside[job] && !queue_put(&r->q, job, key_of(r, job)))
        run_fail(r, "out of memory");
}

/* The first waiting task of a job that has one. */
int64_t run_waiting_task(run_t *r, int64_t job)
{
    int64_t task = r->cursor[job];
    while (r->w->attempts[task].state != WAITING || r->bound_node[task] != NONE)
        task++;
    return r->cursor[job] = task;
}

/* Give a task its place. */
void run_place(run_t *r, int64_t task, int64_t node)
{
    world_start(r->w, task, node);
    if (r->p.on_start)
        r->p.on_start(&r->p, r->w, task, node);
    if (r->p.on_input && r->w->attempts[task].state == RUNNING)
        r->p.on_input(&r->p, r->w, task, node);
}

/* Let a task that has lost its place wait again. */
void run_undo(run_t *r, int64_t task)
{
    int64_t job = r->w->job_of[task];
    if (r->w->attempts[task].state == STAGING)
        world_withdraw(r->w, task);
    r->waiting[job]++;
    if (task < r->cursor[job])
        r->cursor[job] = task;
    put_in_queue(r, job);
}

/* Room has come free on a node: shapes that fit there are tried again. */
void run_freed(run_t *r, int64_t node)
{
    world_t *w = r->w;
    if (w->ahead_parts)
        world_swap(w); /* the larger room counts */
    for (int64_t shape = 0; shape < r->q.shape_count; shape++) {
        const shape_t *s = &r->q.shapes[shape];
        if (s->blocked && (fits(w, s->example, node) ||
                           (w->c.job_gang[s->example] && world_has_place(w, s->example, node))))
            queue_block(&r->q, shape, false);
    }
    if (w->ahead_parts)
        world_swap(w);
}

/* Place the tasks of a job one by one; 0 if all have a place, else the answer of the policy. */
static int64_t place_tasks(run_t *r, int64_t job)
{
    if (r->p.begin)
        r->p.begin(&r->p, r->w, job);
    while (r->waiting[job] && !r->w->wrong) {
        int64_t task = run_waiting_task(r, job);
        int64_t node = r->p.choose(&r->p, r->w, job, task);
        if (node < 0)
            return node;
        if (!fits(r->w, job, node)) {
            run_fail(r, "a policy chose a node without room");
            return NOWHERE;
        }
        r->waiting[job]--;
        if (!r->w->ahead_parts ||
            (has_input(r->w, task, r->w->c.node_rack[node]) && world_has_place(r->w, job, node)))
            run_place(r, task, node);
        else
            bound_add(r, task, node);
    }
    return 0;
}

/* The same; where no node has room left, tasks are bound ahead. */
static int64_t attempt_tasks(run_t *r, int64_t job)
{
    int64_t answer = place_tasks(r, job);
    if (answer == NOWHERE && r->w->ahead_parts) {
        world_swap(r->w);
        answer = place_tasks(r, job);
        world_swap(r->w);
    }
    return answer;
}

static void attempt(run_t *r, int64_t job)
{
    bool first = !r->decided[job];
    int64_t begin = first ? processor_ns() : 0;
    int64_t answer;
    if (r->w->c.job_gang[job]) {
        answer = gang_attempt(r, job);
        if (answer == 0)
            r->waiting[job] = 0;
    } else {
        answer = attempt_tasks(r, job);
    }
    if (answer == NOWHERE) {
        queue_block(&r->q, r->q.job_shape[job], true);
    } else {
        queue_remove(&r->q, job);
        if (answer == WAIT) {
            if (r->p.pass_us <= 0)
                run_fail(r, "a policy waits that has no passes");
            r->is_aside[job] = true;
            r->aside[r->aside_count++] = (int32_t)job;
            if (r->next_pass == NEVER)
                r->next_pass = (r->w->now / r->p.pass_us + 1) * r->p.pass_us;
        }
    }
    if (first) {
        r->decided[job] = true;
        r->w->c.decision_ns[job] = processor_ns() - begin;
    }
}

/* Ask again those who wait for a better place. */
static void end_waits(run_t *r)
{
    r->next_pass = NEVER;
    int64_t count = r->aside_count;
    r->aside_count = 0;
    for (int64_t each = 0; each < count; each++) {
        r->is_aside[r->aside[each]] = false;
        put_in_queue(r, r->aside[each]);
    }
}

/* One thing less for a job to wait for; at none it is ready. */
static void satisfy(run_t *r, int64_t job)
{
    if (--r->needs_left[job] == 0)
        put_in_queue(r, job);
}

static void on_ended(run_t *r, const event_t *event)
{
    world_t *w = r->w;
    int64_t task = event->number, job = w->job_of[task], node = w->attempts[task].node;
    if (r->p.on_task_end)
        r->p.on_task_end(&r->p, w, task, node, event->time - w->c.run[task]);
    world_step(w, event);
    if (--r->unfinished[job] == 0) {
        r->ended++;
        if (r->p.on_job_end)
            r->p.on_job_end(&r->p, w, job);
        for (int64_t at = r->dependents_offset[job]; at < r->dependents_offset[job + 1]; at++)
            satisfy(r, r->dependents[at]);
    } else if (queue_has(&r->q, job)) {
        put_in_queue(r, job);
    }
    bound_try(r, node);
    run_freed(r, node);
}

static void on_event(run_t *r, const event_t *event)
{
    world_t *w = r->w;
    int64_t task = event->number;
    w->now = event->time;
    switch (event->kind) {
    case ENDED:
        on_ended(r, event);
        return;
    case LOST:
        if (r->p.on_lost)
            r->p.on_lost(&r->p, w, task, w->attempts[task].node);
        world_step(w, event);
        run_undo(r, task);
        if (w->c.job_gang[w->job_of[task]])
            gang_undo(r, w->job_of[task]);
        return;
    case DOWN:
        world_step(w, event);
        bound_clear(r, task);
        return;
    case UP:
        world_step(w, event);
        if (!w->outages[task])
            run_freed(r, task);
        return;
    case STAGED:
        world_step(w, event);
        bound_try(r, r->bound_node[task]);
        return;
    default:
        world_step(w, event);
        if (r->p.on_input)
            r->p.on_input(&r->p, w, task, w->attempts[task].node);
    }
}

/* Everything that happens at one time, then what the policy does about it. */
static void run_moment(run_t *r, int64_t now)
{
    world_t *w = r->w;
    event_t event;
    while (!w->wrong && world_peek(w, &event) && event.time == now)
        on_event(r, &event);
    w->now = now;
    for (; r->arrived < w->n.jobs && w->c.job_arrival[r->arrived] == now; r->arrived++) {
        if (r->p.on_arrival)
            r->p.on_arrival(&r->p, w, r->arrived);
        satisfy(r, r->arrived);
    }
    if (r->next_pass == now)
        end_waits(r);
    for (int64_t job; !w->wrong && (job = queue_first(&r->q)) != NONE;)
        attempt(r, job);
}

/* Go on until so many jobs have ended, or all; returns the jobs that have ended. */
int64_t hanse_world_play(run_t *r, int64_t jobs)
{
    world_t *w = r->w;
    while (!w->wrong && r->ended < w->n.jobs && r->ended < jobs) {
        int64_t now = world_next(w);
        if (r->arrived < w->n.jobs && w->c.job_arrival[r->arrived] < now)
            now = w->c.job_arrival[r->arrived];
        if (r->next_pass < now)
            now = r->next_pass;
        if (now == NEVER) {
            run_fail(r, "jobs wait that can never start");
            break;
        }
        run_moment(r, now);
    }
    return r->ended;
}

static bool make_dependents(run_t *r)
{
    const columns_t *c = &r->w->c;
    int64_t jobs = r->w->n.jobs, entries = c->needs_offset[jobs];
    r->dependents_offset = calloc((size_t)jobs + 2, sizeof *r->dependents_offset);
    r->dependents = malloc((size_t)(entries + 1) * sizeof *r->dependents);
    if (!r->dependents_offset || !r->dependents)
        return false;
    int64_t *offset = r->dependents_offset;
    for (int64_t at = 0; at < entries; at++)
        offset[c->needs[at] + 2]++;
    for (int64_t job = 0; job < jobs; job++)
        offset[job + 2] += offset[job + 1];
    for (int64_t job = 0; job < jobs; job++)
        for (int64_t at = c->needs_offset[job]; at < c->needs_offset[job + 1]; at++)
            r->dependents[offset[c->needs[at] + 1]++] = job;
    return true;
}

static bool fill_run(run_t *r)
{
    const world_t *w = r->w;
    size_t jobs = (size_t)w->n.jobs + 1, nodes = (size_t)w->n.nodes, tasks = (size_t)w->n.tasks;
    r->unfinished = malloc(jobs * sizeof *r->unfinished);
    r->waiting = malloc(jobs * sizeof *r->waiting);
    r->cursor = malloc(jobs * sizeof *r->cursor);
    r->needs_left = malloc(jobs * sizeof *r->needs_left);
    r->decided = calloc(jobs, sizeof *r->decided);
    r->aside = malloc(jobs * sizeof *r->aside);
    r->is_aside = calloc(jobs, sizeof *r->is_aside);
    r->kept_cpu = malloc(nodes * sizeof *r->kept_cpu);
    r->kept_memory = malloc(nodes * sizeof *r->kept_memory);
    r->kept_gpu = malloc(nodes * sizeof *r->kept_gpu);
    r->slots = malloc((nodes + (size_t)w->n.racks + (size_t)w->n.clusters) * sizeof *r->slots);
    r->chosen = malloc(tasks * sizeof *r->chosen);
    if (!queue_make(&r->q, w->n.jobs, w->c.job_shape) || !bound_make(r) || !make_dependents(r) ||
        !r->unfinished || !r->waiting || !r->cursor || !r->needs_left || !r->decided || !r->aside ||
        !r->is_aside || !r->kept_cpu || !r->kept_memory || !r->kept_gpu || !r->slots || !r->chosen)
        return false;
    for (int64_t job = 0; job < w->n.jobs; job++) {
        r->unfinished[job] = r->waiting[job] = (int32_t)(w->c.job_offset[job + 1] - w->c.job_offset[job]);
        r->cursor[job] = w->c.job_offset[job];
        r->needs_left[job] = (int32_t)(w->c.needs_offset[job + 1] - w->c.needs_offset[job]) + 1;
    }
    return true;
}

void hanse_world_close(run_t *r)
{
    if (!r)
        return;
    if (r->p.close)
        r->p.close(&r->p, r->w);
    queue_free(&r->q);
    bound_free(r);
    void *arrays[] = {r->unfinished, r->waiting, r->cursor, r->needs_left, r->dependents_offset, r->dependents,
                      r->decided, r->aside, r->is_aside, r->kept_cpu, r->kept_memory, r->kept_gpu, r->slots,
                      r->chosen};
    for (size_t each = 0; each < sizeof arrays / sizeof *arrays; each++)
        free(arrays[each]);
    free(r);
}

/* A run in a world, which stays the caller's; NULL without memory, or if the policy refuses its settings. */
run_t *hanse_world_run(world_t *w, const choice_t *choice, const settings_t *settings)
{
    run_t *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->w = w;
    r->order = choice->order;
    r->next_pass = NEVER;
    if (!fill_run(r) || !POLICIES[choice->policy].make(&r->p, w, settings)) {
        hanse_world_close(r);
        return NULL;
    }
    return r;
}
