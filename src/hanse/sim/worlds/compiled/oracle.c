/* The policy oracle: twin of worlds/oracle_policy.py, which says what it does. It reads what is HIDDEN. */
#include "finish.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>

/* What the tasks placed on a node demand and have to lose, at `at`. */
typedef struct {
    double demand, pollution;
    double by_bandwidth, by_bandwidth_rate; /* sum of left / speed x sensitivity, and its decrease per second */
    double by_cache, by_cache_rate;
    int64_t at;
    bool is_stale;
} node_sums_t;

typedef struct {
    double uses_charge, wait_ratio, wait_share, is_shortest_first, ageing;
} oracle_options_t;

typedef struct {
    oracle_options_t o;
    node_sums_t *sums;    /* [nodes] */
    int64_t *ready_at;    /* [jobs] */
    double *rack_seconds; /* [racks] for the job that is tried, for one byte */
} oracle_t;

static double bend(const world_t *w, double used)
{
    return used <= 1.0 ? w->k.knee * used * used * used : w->k.knee + w->k.slope * (used - 1.0);
}

static double speed_of(const world_t *w, int64_t job, int64_t class)
{
    return w->c.template_speed[(int64_t)w->c.job_template[job] * w->n.classes + class];
}

static void settle(oracle_t *o, const world_t *w, int64_t node)
{
    node_sums_t sums = {0};
    sums.at = w->now;
    for (int64_t task = w->first[node]; task != NONE; task = w->attempts[task].next) {
        const attempt_t *a = &w->attempts[task];
        double left = a->state == RUNNING ? world_work_left(w, task) : w->c.task_work[task];
        double rate = a->state == RUNNING ? a->rate : 0.0;
        sums.demand = sums.demand + a->demand;
        sums.pollution = sums.pollution + a->pollution;
        sums.by_bandwidth = sums.by_bandwidth + left / a->speed * a->bandwidth_sensitivity;
        sums.by_bandwidth_rate = sums.by_bandwidth_rate + rate / a->speed * a->bandwidth_sensitivity;
        sums.by_cache = sums.by_cache + left / a->speed * a->cache_sensitivity;
        sums.by_cache_rate = sums.by_cache_rate + rate / a->speed * a->cache_sensitivity;
    }
    o->sums[node] = sums;
}

static int64_t key_of(policy_t *p, const world_t *w, int64_t job, int64_t unfinished)
{
    oracle_t *o = p->self;
    double sum = 0.0, best = 0.0;
    (void)unfinished;
    if (o->ready_at[job] == NEVER)
        o->ready_at[job] = w->now;
    if (o->o.is_shortest_first <= 0.0)
        return w->c.job_arrival[job];
    for (int64_t class = 0; class < w->n.classes; class++)
        best = speed_of(w, job, class) > best ? speed_of(w, job, class) : best;
    for (int64_t task = w->c.job_offset[job]; task < w->c.job_offset[job + 1]; task++)
        if (w->attempts[task].state != DONE)
            sum = sum + w->c.task_work[task];
    return (int64_t)(sum / best * 1e6) + (int64_t)o->o.ageing * w->c.job_arrival[job];
}

static void begin(policy_t *p, const world_t *w, int64_t job)
{
    oracle_t *o = p->self;
    expected_transfers(w, job, 1.0, 1.0, o->rack_seconds);
}

/* Seconds of a task alone, from its arrival to its end, on the best node with its input in the rack. */
static double ideal_of(const world_t *w, int64_t job, int64_t task)
{
    double best = INFINITY;
    for (int64_t node = 0; node < w->n.nodes; node++) {
        int64_t class = w->c.node_class[node];
        if (node && class == w->c.node_class[node - 1])
            continue;
        if (!(w->c.job_classes[job] >> class & 1))
            continue;
        double slow = 1.0 + w->c.job_bandwidth_sensitivity[job] *
                                bend(w, w->c.job_demand[job] / w->c.node_bandwidth[node]);
        double seconds = w->c.task_work[task] / speed_of(w, job, class) * slow;
        best = seconds < best ? seconds : best;
    }
    bool has_input = w->c.replica_rack[job * REPLICAS_MAX] == NONE;
    return best + (has_input ? 0.0 : w->c.task_bytes[task] / w->k.rack_flow_max);
}

/* Cost of a task on a node; its own finish in `finish`. */
static double cost_of(oracle_t *o, const world_t *w, int64_t job, int64_t node, double alone, double transfer,
                      double *finish)
{
    if (o->sums[node].is_stale)
        settle(o, w, node);
    const node_sums_t *s = &o->sums[node];
    double cores = (double)w->c.node_cpu[node] / 1000.0, bandwidth = w->c.node_bandwidth[node];
    double before = bend(w, s->demand / bandwidth), after = bend(w, (s->demand + w->c.job_demand[job]) / bandwidth);
    double passed = (double)(w->now - s->at) * 1e-6;
    double by_bandwidth = s->by_bandwidth - s->by_bandwidth_rate * passed;
    double by_cache = s->by_cache - s->by_cache_rate * passed;
    *finish = transfer + alone * (1.0 + w->c.job_bandwidth_sensitivity[job] * after +
                                  w->c.job_cache_sensitivity[job] * s->pollution / cores);
    return *finish + o->o.uses_charge * (by_bandwidth * (after - before) +
                                         by_cache * (w->c.job_pollution[job] / cores));
}

static int64_t choose(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    oracle_t *o = p->self;
    double limit = INFINITY, least = INFINITY, finish;
    double waited = (double)(w->now - o->ready_at[job]) * 1e-6, ideal = ideal_of(w, job, task);
    int64_t found = NOWHERE;
    bool has_room = false;
    if (o->o.wait_ratio > 0.0 && waited < o->o.wait_share * ideal && !w->c.job_gang[job])
        limit = o->o.wait_ratio * ideal;
    for (int64_t node = 0; node < w->n.nodes; node++) {
        if (!fits(w, job, node))
            continue;
        has_room = true;
        double transfer = w->c.task_bytes[task] * o->rack_seconds[w->c.node_rack[node]];
        double alone = w->c.task_work[task] / speed_of(w, job, w->c.node_class[node]);
        if (transfer + alone >= least || transfer + alone > limit)
            continue;
        double cost = cost_of(o, w, job, node, alone, transfer, &finish);
        if (finish <= limit && cost < least) {
            least = cost;
            found = node;
        }
    }
    return found == NOWHERE && has_room ? WAIT : found;
}

static void touch(policy_t *p, int64_t node) { ((oracle_t *)p->self)->sums[node].is_stale = true; }

static void on_start(policy_t *p, const world_t *w, int64_t task, int64_t node)
{
    (void)w;
    (void)task;
    touch(p, node);
}

static void on_task_end(policy_t *p, const world_t *w, int64_t task, int64_t node, int64_t run_us)
{
    (void)run_us;
    on_start(p, w, task, node);
}

static void close_oracle(policy_t *p, const world_t *w)
{
    oracle_t *o = p->self;
    (void)w;
    free(o->sums);
    free(o->ready_at);
    free(o->rack_seconds);
    free(o);
}

/* settings: numbers are oracle_options_t. */
bool make_oracle(policy_t *p, const world_t *w, const settings_t *settings)
{
    oracle_t *o = calloc(1, sizeof *o);
    if (!o || settings->number_count * (int64_t)sizeof(double) != sizeof o->o) {
        free(o);
        return false;
    }
    memcpy(&o->o, settings->numbers, sizeof o->o);
    p->self = o;
    p->close = close_oracle;
    o->sums = calloc((size_t)w->n.nodes, sizeof *o->sums);
    o->ready_at = malloc(((size_t)w->n.jobs + 1) * sizeof *o->ready_at);
    o->rack_seconds = calloc((size_t)w->n.racks, sizeof *o->rack_seconds);
    if (!o->sums || !o->ready_at || !o->rack_seconds)
        return false;
    for (int64_t job = 0; job < w->n.jobs; job++)
        o->ready_at[job] = NEVER;
    p->pass_us = o->o.wait_ratio > 0.0 ? PASS_US : 0;
    p->key = key_of;
    p->begin = begin;
    p->choose = choose;
    p->on_start = on_start;
    p->on_input = on_start;
    p->on_task_end = on_task_end;
    p->on_lost = on_start;
    return true;
}
