/* Attempts on nodes, and the events of a world: twin of physics.py. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* Seconds of work that may be left at an end: times are whole microseconds. */
#define WORK_TOLERANCE 1e-5

/* Where cores are not held during transfers: the part of a node that may be bound to tasks ahead of their start. */
#define AHEAD_PARTS 4

void world_fail(world_t *w, const char *why)
{
    if (!w->wrong)
        w->wrong = why;
}

static bool make_arrays(world_t *w)
{
    size_t nodes = (size_t)w->n.nodes, tasks = (size_t)w->n.tasks;
    bool made = heap_make(&w->ends, w->n.nodes);
    made = heap_make(&w->arrivals, w->n.tasks) && made;
    made = heap_make(&w->ups, w->n.outages) && made;
    made = links_make(w) && made;
    w->free_cpu = malloc(nodes * sizeof *w->free_cpu);
    w->free_memory = malloc(nodes * sizeof *w->free_memory);
    w->free_gpu = malloc(nodes * sizeof *w->free_gpu);
    w->room_cpu = malloc(nodes * sizeof *w->room_cpu);
    w->ahead_cpu = malloc(nodes * sizeof *w->ahead_cpu);
    w->ahead_memory = malloc(nodes * sizeof *w->ahead_memory);
    w->ahead_gpu = malloc(nodes * sizeof *w->ahead_gpu);
    w->bound_cpu = calloc(nodes, sizeof *w->bound_cpu);
    w->bound_memory = calloc(nodes, sizeof *w->bound_memory);
    w->bound_gpu = calloc(nodes, sizeof *w->bound_gpu);
    w->room_memory = malloc(nodes * sizeof *w->room_memory);
    w->room_gpu = malloc(nodes * sizeof *w->room_gpu);
    w->demand = calloc(nodes, sizeof *w->demand);
    w->pollution = calloc(nodes, sizeof *w->pollution);
    w->first = malloc(nodes * sizeof *w->first);
    w->last = malloc(nodes * sizeof *w->last);
    w->outages = calloc(nodes, sizeof *w->outages);
    w->settled_at = calloc(nodes, sizeof *w->settled_at);
    w->attempts = calloc(tasks, sizeof *w->attempts);
    w->job_of = malloc(tasks * sizeof *w->job_of);
    w->staged_rack = malloc(tasks * sizeof *w->staged_rack);
    return made && w->free_cpu && w->free_memory && w->free_gpu && w->ahead_cpu && w->ahead_memory && w->ahead_gpu && w->bound_cpu && w->bound_memory && w->bound_gpu && w->room_cpu && w->room_memory && w->room_gpu && w->demand && w->pollution &&
           w->first && w->last && w->outages && w->settled_at && w->attempts && w->job_of && w->staged_rack;
}

world_t *world_make(const sizes_t *n, const constants_t *k, const columns_t *c)
{
    world_t *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->n = *n;
    w->k = *k;
    w->c = *c;
    w->lost_node = NONE;
    w->ahead_parts = n->holds_cores ? 0 : AHEAD_PARTS;
    if (!make_arrays(w)) {
        world_free(w);
        return NULL;
    }
    memcpy(w->free_cpu, c->node_cpu, (size_t)n->nodes * sizeof *w->free_cpu);
    memcpy(w->free_memory, c->node_memory, (size_t)n->nodes * sizeof *w->free_memory);
    memcpy(w->free_gpu, c->node_gpu, (size_t)n->nodes * sizeof *w->free_gpu);
    for (int64_t node = 0; node < n->nodes; node++) {
        w->first[node] = w->last[node] = NONE;
        world_show(w, node);
    }
    for (int64_t job = 0; job < n->jobs; job++)
        for (int64_t task = c->job_offset[job]; task < c->job_offset[job + 1]; task++)
            w->job_of[task] = (int32_t)job;
    for (int64_t task = 0; task < n->tasks; task++) {
        w->staged_rack[task] = NONE;
        w->attempts[task].node = NONE;
        w->attempts[task].state = WAITING;
        w->c.node[task] = NONE;
        w->c.start[task] = w->c.run[task] = w->c.end[task] = NONE;
    }
    return w;
}

void world_free(world_t *w)
{
    if (!w)
        return;
    heap_free(&w->ends);
    heap_free(&w->arrivals);
    heap_free(&w->ups);
    links_free(w);
    void *arrays[] = {w->free_cpu, w->free_memory, w->free_gpu, w->ahead_cpu, w->ahead_memory, w->ahead_gpu, w->bound_cpu, w->bound_memory, w->bound_gpu, w->room_cpu, w->room_memory, w->room_gpu, w->demand, w->pollution, w->first,
                      w->last, w->outages, w->settled_at, w->attempts, w->job_of, w->staged_rack, w->lost};
    for (size_t each = 0; each < sizeof arrays / sizeof *arrays; each++)
        free(arrays[each]);
    free(w);
}

/* Bring the work left of a node's attempts to now. */
static void settle_node(world_t *w, int64_t node)
{
    double seconds = (double)(w->now - w->settled_at[node]) * 1e-6;
    w->settled_at[node] = w->now;
    for (int64_t task = w->first[node]; task != NONE; task = w->attempts[task].next)
        if (w->attempts[task].state == RUNNING)
            w->attempts[task].left -= w->attempts[task].rate * seconds;
}

/* Rates and the earliest end on a node whose tasks have changed; it must be settled. */
static void adjust_node(world_t *w, int64_t node)
{
    double demand = 0.0, pollution = 0.0;
    for (int64_t task = w->first[node]; task != NONE; task = w->attempts[task].next)
        if (w->attempts[task].state == RUNNING) {
            demand += w->attempts[task].demand;
            pollution += w->attempts[task].pollution;
        }
    w->demand[node] = demand;
    w->pollution[node] = pollution;
    double used = demand / w->c.node_bandwidth[node], cores = (double)w->c.node_cpu[node] / 1000.0;
    double crowding = used <= 1.0 ? w->k.knee * used * used * used : w->k.knee + w->k.slope * (used - 1.0);
    int64_t earliest = NEVER, which = NONE;
    for (int64_t task = w->first[node]; task != NONE; task = w->attempts[task].next) {
        attempt_t *a = &w->attempts[task];
        if (a->state != RUNNING)
            continue;
        a->rate = a->speed / (1.0 + a->bandwidth_sensitivity * crowding +
                              a->cache_sensitivity * (pollution - a->pollution) / cores);
        int64_t end = time_after(w->now, a->left, a->rate);
        if (end < earliest || (end == earliest && task < which)) {
            earliest = end;
            which = task;
        }
    }
    if (which == NONE)
        heap_remove(&w->ends, node);
    else
        heap_set(&w->ends, node, earliest, which);
}

static void begin_to_run(world_t *w, int64_t task)
{
    attempt_t *a = &w->attempts[task];
    settle_node(w, a->node);
    a->state = RUNNING;
    a->left = w->c.task_work[task];
    w->c.run[task] = w->now;
    adjust_node(w, a->node);
}

/* Give a task a place now. It reads its input, if it must, and runs. */
void world_start(world_t *w, int64_t task, int64_t node)
{
    attempt_t *a = &w->attempts[task];
    int64_t job = w->job_of[task];
    if (a->state != WAITING || !world_has_place(w, job, node)) {
        world_fail(w, "a task was started where it cannot run");
        return;
    }
    w->free_cpu[node] -= w->c.job_cpu[job];
    w->free_memory[node] -= w->c.job_memory[job];
    w->free_gpu[node] -= w->c.job_gpu[job];
    world_show(w, node);
    a->node = (int32_t)node;
    a->speed = w->c.template_speed[(int64_t)w->c.job_template[job] * w->n.classes + w->c.node_class[node]];
    a->demand = w->c.job_demand[job];
    a->bandwidth_sensitivity = w->c.job_bandwidth_sensitivity[job];
    a->cache_sensitivity = w->c.job_cache_sensitivity[job];
    a->pollution = w->c.job_pollution[job];
    a->next = NONE;
    a->previous = w->last[node];
    if (a->previous == NONE)
        w->first[node] = (int32_t)task;
    else
        w->attempts[a->previous].next = (int32_t)task;
    w->last[node] = (int32_t)task;
    w->launches++;
    w->c.node[task] = (int32_t)node;
    w->c.start[task] = w->now;
    w->c.run[task] = w->c.end[task] = NONE;
    a->state = READING;
    if (!flow_start(w, task, w->c.node_rack[node]))
        begin_to_run(w, task);
}

/* Bring a waiting task's input to a rack without a place. True: a STAGED event follows; false: nothing is to be
 * moved, and the task is as good as staged. */
bool world_stage(world_t *w, int64_t task, int64_t rack)
{
    attempt_t *a = &w->attempts[task];
    if (a->state != WAITING) {
        world_fail(w, "a task was staged that does not wait");
        return false;
    }
    if (!flow_start(w, task, rack)) {
        w->staged_rack[task] = (int32_t)rack;
        return false;
    }
    a->state = STAGING;
    return true;
}

/* Take an attempt off its node. */
static void leave_node(world_t *w, int64_t task)
{
    attempt_t *a = &w->attempts[task];
    int64_t node = a->node, job = w->job_of[task];
    settle_node(w, node);
    if (a->previous == NONE)
        w->first[node] = a->next;
    else
        w->attempts[a->previous].next = a->next;
    if (a->next == NONE)
        w->last[node] = a->previous;
    else
        w->attempts[a->next].previous = a->previous;
    w->free_cpu[node] += w->c.job_cpu[job];
    w->free_memory[node] += w->c.job_memory[job];
    w->free_gpu[node] += w->c.job_gpu[job];
    world_show(w, node);
    if (a->state == RUNNING)
        adjust_node(w, node);
    if (w->lost_node == node && w->first[node] == NONE)
        w->lost_node = NONE;
}

static void note_lost(world_t *w, int64_t task)
{
    if (w->lost_count == w->lost_room) {
        int64_t room = w->lost_room ? 2 * w->lost_room : 64;
        int64_t *larger = realloc(w->lost, (size_t)room * 5 * sizeof *larger);
        if (!larger) {
            world_fail(w, "out of memory");
            return;
        }
        w->lost = larger;
        w->lost_room = room;
    }
    int64_t end = w->attempts[task].state == DONE ? w->c.end[task] : w->now;
    int64_t *row = w->lost + 5 * w->lost_count++;
    row[0] = task;
    row[1] = w->c.node[task];
    row[2] = w->c.start[task];
    row[3] = w->c.run[task];
    row[4] = end;
    w->wasted_core_us += w->c.job_cpu[w->job_of[task]] * (end - w->c.start[task]) / 1000;
}

/* Undo what a task has done, even if it has ended: it waits again, from nothing. What was staged stays. */
void world_withdraw(world_t *w, int64_t task)
{
    attempt_t *a = &w->attempts[task];
    if (a->state == WAITING)
        return;
    if (a->state != STAGING)
        note_lost(w, task);
    if (a->state == STAGING || a->state == READING)
        flow_stop(w, task);
    if (a->state == READING || a->state == RUNNING)
        leave_node(w, task);
    a->state = WAITING;
    a->node = NONE;
    w->c.node[task] = NONE;
    w->c.start[task] = w->c.run[task] = w->c.end[task] = NONE;
}

/* Time of the next event. */
int64_t world_next(const world_t *w)
{
    event_t event;
    return world_peek(w, &event) ? event.time : NEVER;
}

static void prefer(event_t *event, int64_t time, int64_t kind, int64_t number)
{
    if (time < event->time) {
        event->time = time;
        event->kind = kind;
        event->number = number;
    }
}

/* The next event, or false. At one time: ends, arrivals of input, nodes that come up, nodes that go down. */
bool world_peek(const world_t *w, event_t *event)
{
    event->time = NEVER;
    if (w->lost_node != NONE) {
        prefer(event, w->now, LOST, w->first[w->lost_node]);
        return true;
    }
    if (w->ends.size) {
        int64_t node = w->ends.items[0];
        prefer(event, w->ends.time[node], ENDED, w->ends.tie[node]);
    }
    if (w->arrivals.size) {
        int64_t task = w->arrivals.items[0];
        prefer(event, w->arrivals.time[task], w->attempts[task].state == STAGING ? STAGED : ARRIVED, task);
    }
    if (w->ups.size)
        prefer(event, w->ups.time[w->ups.items[0]], UP, w->ups.tie[w->ups.items[0]]);
    if (w->downs < w->n.outages)
        prefer(event, w->c.outage_from[w->downs], DOWN, w->c.outage_node[w->downs]);
    return event->time != NEVER;
}

static void step_end(world_t *w, int64_t task)
{
    attempt_t *a = &w->attempts[task];
    leave_node(w, task);
    if (a->left > WORK_TOLERANCE || a->left < -WORK_TOLERANCE)
        world_fail(w, "a task ended with work left, or after its end");
    a->state = DONE;
    w->c.end[task] = w->now;
}

static void step_outage(world_t *w, const event_t *event)
{
    int64_t node = event->number;
    if (event->kind == UP) {
        heap_remove(&w->ups, w->ups.items[0]);
        w->outages[node]--;
        world_show(w, node);
        return;
    }
    heap_set(&w->ups, w->downs, w->c.outage_until[w->downs], node);
    w->downs++;
    w->outages[node]++;
    world_show(w, node);
    w->lost_node = w->first[node] == NONE ? NONE : node;
}

/* Let the event happen that world_peek gave. */
void world_step(world_t *w, const event_t *event)
{
    int64_t task = event->number;
    w->now = event->time;
    switch (event->kind) {
    case ENDED:
        step_end(w, task);
        break;
    case ARRIVED:
        flow_stop(w, task);
        begin_to_run(w, task);
        break;
    case STAGED:
        flow_stop(w, task);
        w->staged_rack[task] = w->flows[task].target;
        w->attempts[task].state = WAITING;
        break;
    case LOST:
        world_withdraw(w, task);
        break;
    default:
        step_outage(w, event);
    }
}

/* Seconds of work left of a task that runs. */
double world_work_left(const world_t *w, int64_t task)
{
    const attempt_t *a = &w->attempts[task];
    return a->left - a->rate * ((double)(w->now - w->settled_at[a->node]) * 1e-6);
}
