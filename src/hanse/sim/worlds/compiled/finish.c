/* The policy earliest-finish: twin of worlds/earliest_finish/policy.py, which says what it does. */
#include "finish.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>

/* Make the job's record for the kernel, without its count. */
static void describe(finish_t *f, const world_t *w, int64_t job, double newcomers)
{
    const double *sensitivity = f->crowding_answer + KNOTS, *press = sensitivity + f->works;
    int64_t work = w->c.job_work_kind[job];
    double *seconds = f->job_seconds + job * f->classes, sum = 0.0;
    finish_job_t *j = &f->job;
    finish_estimate(f, w, job);
    for (int64_t at = 0; at < f->classes; at++) {
        sum = sum + seconds[at];
        f->costs[at] = w->c.job_classes[job] >> at & 1 ? seconds[at] : -1.0;
    }
    expected_transfers(w, job, f->o.uses_data > 0.0 ? finish_mean_bytes(w, job) : 0.0, newcomers, f->rack_seconds);
    *j = (finish_job_t){0};
    j->cpu = w->c.job_cpu[job];
    j->memory = w->c.job_memory[job];
    j->gpu = w->c.job_gpu[job];
    j->class_seconds = f->costs;
    j->rack_seconds = f->rack_seconds;
    j->slopes = f->crowding_answer;
    j->sensitivity = sensitivity[work];
    j->own_pressure = press[work] * ((double)j->cpu / 1000.0);
    j->own_exposure = sensitivity[work] * (sum / (double)f->classes);
    j->charge = f->o.charge;
    j->finish_max = INFINITY;
}

static int64_t key_of(policy_t *p, const world_t *w, int64_t job, int64_t unfinished)
{
    finish_t *f = p->self;
    if (f->ready_at[job] == NEVER) {
        f->ready_at[job] = w->now;
        describe(f, w, job, 1.0);
        f->job_ideal[job] = f->k.ideal(&f->nodes, &f->job);
    }
    if (f->o.is_shortest_first <= 0.0)
        return w->c.job_arrival[job];
    double least = f->job_seconds[job * f->classes];
    for (int64_t at = 1; at < f->classes; at++)
        if (f->job_seconds[job * f->classes + at] < least)
            least = f->job_seconds[job * f->classes + at];
    return (int64_t)((double)unfinished * least * 1e6) + (int64_t)f->o.ageing * w->c.job_arrival[job];
}

/* Explored jobs go to a rack drawn by the seed, whatever it costs. */
static bool is_explored(finish_t *f, const world_t *w, int64_t job)
{
    if ((double)(world_hash(f->seed, (uint64_t)job, 0) >> 32) >= f->o.explores * 4294967296.0)
        return false;
    for (int64_t rack = 0; rack < w->n.racks; rack++)
        f->rack_seconds[rack] = (double)(world_hash(f->seed, (uint64_t)job, (uint64_t)rack + 1) >> 40);
    for (int64_t at = 0; at < f->classes; at++)
        f->costs[at] = f->costs[at] < 0.0 ? -1.0 : 0.0;
    f->job.sensitivity = f->job.charge = 0.0;
    return true;
}

/* Bind the chosen nodes to the waiting tasks: the largest input gets the node that was chosen first. Where tasks wait
 * that are bound to nodes already, the nodes are given away in the order in which they were chosen. */
static void assign(finish_t *f, const world_t *w, int64_t job, int64_t count)
{
    int64_t first = w->c.job_offset[job], past = w->c.job_offset[job + 1], at = 0;
    f->plan_next = 0;
    if (!w->n.holds_cores) {
        memcpy(f->plan, f->chosen, (size_t)count * sizeof *f->plan);
        return;
    }
    for (int64_t task = first; task < past && at < count; task++)
        if (w->attempts[task].state == WAITING)
            f->order[at++] = task;
    for (int64_t each = 1; each < at; each++) { /* stable, largest first */
        int64_t task = f->order[each], place = each;
        for (; place && w->c.task_bytes[f->order[place - 1]] < w->c.task_bytes[task]; place--)
            f->order[place] = f->order[place - 1];
        f->order[place] = task;
    }
    for (int64_t each = 0; each < at; each++)
        f->plan[f->order[each] - first] = f->chosen[each];
}

/* Whether a task would fit on some node beside those that were chosen. */
static bool has_more_room(const finish_t *f, const world_t *w, int64_t job, int64_t done)
{
    for (int64_t node = 0; node < w->n.nodes; node++) {
        if (!fits(w, job, node))
            continue;
        int64_t tasks = 1;
        for (int64_t each = 0; each < done; each++)
            tasks += f->chosen[each] == node;
        if (w->room_cpu[node] >= tasks * w->c.job_cpu[job] && w->room_memory[node] >= tasks * w->c.job_memory[job] &&
            w->room_gpu[node] >= tasks * w->c.job_gpu[job])
            return true;
    }
    return false;
}

static void begin(policy_t *p, const world_t *w, int64_t job)
{
    finish_t *f = p->self;
    int64_t first = w->c.job_offset[job], past = w->c.job_offset[job + 1], count = 0;
    for (int64_t task = first; task < past; task++) {
        f->plan[task - first] = NOWHERE;
        count += w->attempts[task].state == WAITING;
    }
    f->nodes.free_cpu = w->room_cpu; /* the world swaps them */
    f->nodes.free_memory = w->room_memory;
    f->nodes.free_gpu = w->room_gpu;
    describe(f, w, job, 1.0);
    f->plan_end = NOWHERE;
    if (!is_explored(f, w, job) && !w->c.job_gang[job]) {
        double ideal = f->job_ideal[job], waited = (double)(w->now - f->ready_at[job]) * 1e-6;
        if (f->o.wait_ratio > 0.0 && waited < f->o.wait_share * ideal)
            f->job.finish_max = f->o.wait_ratio * ideal;
    }
    if (w->c.job_gang[job])
        return;
    f->job.count = count;
    int64_t done = f->k.choose(&f->nodes, &f->job, f->entries, f->chosen, f->entry_costs);
    assign(f, w, job, done);
    if (done < count && f->job.finish_max < INFINITY && has_more_room(f, w, job, done))
        f->plan_end = WAIT;
}

static int64_t choose(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    finish_t *f = p->self;
    if (w->c.job_gang[job]) {
        f->job.count = 1;
        return f->k.choose(&f->nodes, &f->job, f->entries, f->chosen, f->entry_costs) ? f->chosen[0] : NOWHERE;
    }
    int64_t node = f->plan[w->n.holds_cores ? task - w->c.job_offset[job] : f->plan_next++];
    return node == NOWHERE ? f->plan_end : node;
}

static void close_finish(policy_t *p, const world_t *w)
{
    finish_t *f = p->self;
    (void)w;
    void *arrays[] = {(void *)f->nodes.stretch_from, (void *)f->nodes.stretch_class, (void *)f->nodes.stretch_rack,
                      f->nodes.pressure, (void *)f->nodes.room, f->nodes.exposure, f->placed_cpu, f->placed_us,
                      f->running_cpu, f->integral, f->settled_at, f->job_seconds, f->job_ideal, f->ready_at, f->task_us, f->begun,
                      f->shares, f->runs, f->rack_seconds, f->plan, f->entries, f->chosen, f->order, f->costs,
                      f->entry_costs, f->task_class, f->log_seconds, f->sizes, f->slow_downs, f->answers};
    for (size_t each = 0; each < sizeof arrays / sizeof *arrays; each++)
        free(arrays[each]);
    free(f);
}

static int64_t make_stretches(const world_t *w, int64_t *from, int64_t *class, int64_t *rack)
{
    int64_t count = 0;
    for (int64_t node = 0; node < w->n.nodes; node++) {
        bool same = count && class[count - 1] == w->c.node_class[node] && rack[count - 1] == w->c.node_rack[node];
        if (same)
            continue;
        from[count] = node;
        class[count] = w->c.node_class[node];
        rack[count++] = w->c.node_rack[node];
    }
    from[count] = w->n.nodes;
    return count;
}

static bool make_nodes(finish_t *f, const world_t *w)
{
    size_t nodes = (size_t)w->n.nodes;
    int64_t *from = calloc(nodes + 1, sizeof *from), *class = calloc(nodes, sizeof *class);
    int64_t *rack = calloc(nodes, sizeof *rack);
    f->nodes.stretch_from = from;
    f->nodes.stretch_class = class;
    f->nodes.stretch_rack = rack;
    f->nodes.pressure = calloc(nodes, sizeof(double));
    f->nodes.room = calloc(nodes, sizeof(double));
    f->nodes.exposure = calloc(nodes, sizeof(double));
    if (!from || !class || !rack || !f->nodes.pressure || !f->nodes.room || !f->nodes.exposure)
        return false;
    f->nodes.nodes = w->n.nodes;
    f->nodes.stretches = make_stretches(w, from, class, rack);
    return true;
}

static bool make_columns(finish_t *f, const world_t *w)
{
    size_t works = (size_t)f->works, nodes = (size_t)w->n.nodes * works, tasks = (size_t)w->n.tasks + 1;
    size_t jobs = (size_t)w->n.jobs + 1, most = 1;
    for (int64_t job = 0; job < w->n.jobs; job++)
        if ((size_t)(w->c.job_offset[job + 1] - w->c.job_offset[job]) > most)
            most = (size_t)(w->c.job_offset[job + 1] - w->c.job_offset[job]);
    f->placed_cpu = calloc(nodes, sizeof *f->placed_cpu);
    f->placed_us = calloc(nodes, sizeof *f->placed_us);
    f->running_cpu = calloc(nodes, sizeof *f->running_cpu);
    f->integral = calloc(nodes, sizeof *f->integral);
    f->settled_at = calloc((size_t)w->n.nodes, sizeof *f->settled_at);
    f->job_seconds = malloc(jobs * (size_t)f->classes * sizeof *f->job_seconds);
    f->job_ideal = malloc(jobs * sizeof *f->job_ideal);
    f->ready_at = malloc(jobs * sizeof *f->ready_at);
    f->task_us = malloc(tasks * sizeof *f->task_us);
    f->begun = calloc(tasks * works, sizeof *f->begun);
    f->shares = calloc(tasks * works, sizeof *f->shares);
    f->runs = calloc(tasks, sizeof *f->runs);
    f->rack_seconds = calloc((size_t)w->n.racks, sizeof *f->rack_seconds);
    f->plan = calloc(most, sizeof *f->plan);
    f->entries = calloc(most, sizeof *f->entries);
    f->chosen = calloc(most, sizeof *f->chosen);
    f->order = calloc(most, sizeof *f->order);
    f->entry_costs = calloc(most, sizeof *f->entry_costs);
    f->costs = calloc((size_t)f->classes, sizeof *f->costs);
    f->task_class = calloc(most, sizeof *f->task_class);
    f->log_seconds = calloc(most, sizeof *f->log_seconds);
    f->sizes = calloc(most, sizeof *f->sizes);
    f->slow_downs = calloc(most, sizeof *f->slow_downs);
    f->answers = calloc(3 * (size_t)f->answer_words, sizeof *f->answers);
    if (!f->placed_cpu || !f->placed_us || !f->running_cpu || !f->integral || !f->settled_at || !f->job_seconds ||
        !f->job_ideal || !f->ready_at || !f->task_us || !f->begun || !f->shares || !f->runs || !f->rack_seconds || !f->plan ||
        !f->entries || !f->chosen || !f->order || !f->entry_costs || !f->costs || !f->task_class ||
        !f->log_seconds || !f->sizes || !f->slow_downs || !f->answers)
        return false;
    for (size_t at = 0; at < jobs * (size_t)f->classes; at++)
        f->job_seconds[at] = -1.0;
    for (size_t job = 0; job < jobs; job++)
        f->ready_at[job] = NEVER;
    for (size_t task = 0; task < tasks; task++)
        f->task_us[task] = NONE;
    return true;
}

/* settings: numbers are finish_options_t; arrays are the kernels, the constants or 0, the first answer, the rows, the
 * row and the answer of crowding. */
bool make_earliest_finish(policy_t *p, const world_t *w, const settings_t *settings)
{
    finish_t *f = calloc(1, sizeof *f);
    if (!f || settings->array_count < 6 || settings->number_count * (int64_t)sizeof(double) != sizeof f->o) {
        free(f);
        return false;
    }
    p->self = f;
    p->close = close_finish;
    memcpy(&f->k, settings->arrays[0], sizeof f->k);
    memcpy(&f->o, settings->numbers, sizeof f->o);
    f->seed = (uint64_t)settings->seed;
    f->constants = f->o.has_constants > 0.0 ? settings->arrays[1] : NULL;
    f->first_answer = settings->arrays[2];
    f->rows = settings->arrays[3];
    f->crowding_row = settings->arrays[4];
    f->crowding_answer = settings->arrays[5];
    f->works = (int64_t)f->o.works;
    f->classes = w->n.classes;
    f->answer_words = f->classes + 5;
    f->row_words = (f->classes + 2) * (f->classes + 3) / 2 + f->classes + 8;
    if (!make_nodes(f, w) || !make_columns(f, w))
        return false;
    finish_show_all(f, w);
    p->pass_us = f->o.wait_ratio > 0.0 ? PASS_US : 0;
    p->key = key_of;
    p->begin = begin;
    p->choose = choose;
    p->on_start = finish_on_start;
    p->on_input = finish_on_input;
    p->on_task_end = finish_on_task_end;
    p->on_lost = finish_on_lost;
    p->on_job_end = finish_on_job_end;
    return true;
}
