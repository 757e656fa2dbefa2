/* What earliest-finish knows about the nodes: twin of worlds/earliest_finish/crowded_nodes.py. */
#include "finish.h"

/* Bring pressure and exposure of a node up to date with its tasks and the present answer. */
void finish_show(finish_t *f, const world_t *w, int64_t node)
{
    const double *sensitivity = f->crowding_answer + KNOTS, *press = sensitivity + f->works;
    double pressure = 0.0, exposure = 0.0;
    (void)w;
    for (int64_t work = 0; work < f->works; work++) {
        int64_t at = node * f->works + work;
        pressure = pressure + press[work] * ((double)f->placed_cpu[at] / 1000.0);
        exposure = exposure + sensitivity[work] * ((double)f->placed_us[at] * 1e-6);
    }
    f->nodes.pressure[node] = pressure;
    f->nodes.exposure[node] = exposure;
}

/* After a new answer. */
void finish_show_all(finish_t *f, const world_t *w)
{
    const double *strength = f->crowding_answer + KNOTS + 2 * f->works;
    double *room = (double *)f->nodes.room;
    for (int64_t node = 0; node < w->n.nodes; node++) {
        room[node] = 1.0 / ((double)w->c.node_cpu[node] / 1000.0 * strength[w->c.node_class[node]]);
        finish_show(f, w, node);
    }
}

static void settle(finish_t *f, const world_t *w, int64_t node)
{
    int64_t passed = w->now - f->settled_at[node];
    f->settled_at[node] = w->now;
    for (int64_t at = node * f->works; at < (node + 1) * f->works; at++)
        f->integral[at] += f->running_cpu[at] * passed;
}

void finish_on_start(policy_t *p, const world_t *w, int64_t task, int64_t node)
{
    finish_t *f = p->self;
    int64_t job = w->job_of[task], at = node * f->works + w->c.job_work_kind[job];
    f->task_us[task] = (int64_t)(f->job_seconds[job * f->classes + w->c.node_class[node]] * 1e6);
    f->placed_cpu[at] += w->c.job_cpu[job];
    f->placed_us[at] += f->task_us[task];
    finish_show(f, w, node);
}

void finish_on_input(policy_t *p, const world_t *w, int64_t task, int64_t node)
{
    finish_t *f = p->self;
    settle(f, w, node);
    for (int64_t work = 0; work < f->works; work++)
        f->begun[task * f->works + work] = f->integral[node * f->works + work];
    f->running_cpu[node * f->works + w->c.job_work_kind[w->job_of[task]]] += w->c.job_cpu[w->job_of[task]];
    f->runs[task] = true;
}

static void remove_task(finish_t *f, const world_t *w, int64_t task, int64_t node)
{
    int64_t job = w->job_of[task], at = node * f->works + w->c.job_work_kind[job];
    settle(f, w, node);
    f->placed_cpu[at] -= w->c.job_cpu[job];
    f->placed_us[at] -= f->task_us[task];
    if (f->runs[task])
        f->running_cpu[at] -= w->c.job_cpu[job];
    f->runs[task] = false;
    f->task_us[task] = NONE;
    finish_show(f, w, node);
}

void finish_on_task_end(policy_t *p, const world_t *w, int64_t task, int64_t node, int64_t run_us)
{
    finish_t *f = p->self;
    double whole = (double)(run_us > 0 ? run_us : 1) * (double)w->c.node_cpu[node];
    remove_task(f, w, task, node);
    for (int64_t work = 0; work < f->works; work++)
        f->shares[task * f->works + work] =
            (double)(f->integral[node * f->works + work] - f->begun[task * f->works + work]) / whole;
}

void finish_on_lost(policy_t *p, const world_t *w, int64_t task, int64_t node)
{
    finish_t *f = p->self;
    if (f->task_us[task] != NONE)
        remove_task(f, w, task, node);
}
