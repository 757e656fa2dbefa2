/* Tasks that are bound to a node ahead of their start, while their input is staged: twin of bound_tasks.py. */
#include "central.h"

#include <stdlib.h>

bool bound_make(run_t *r)
{
    int64_t nodes = r->w->n.nodes, tasks = r->w->n.tasks;
    r->bound_first = malloc((size_t)nodes * sizeof *r->bound_first);
    r->bound_last = malloc((size_t)nodes * sizeof *r->bound_last);
    r->bound_next = malloc((size_t)tasks * sizeof *r->bound_next);
    r->bound_node = malloc((size_t)tasks * sizeof *r->bound_node);
    if (!r->bound_first || !r->bound_last || !r->bound_next || !r->bound_node)
        return false;
    for (int64_t node = 0; node < nodes; node++)
        r->bound_first[node] = r->bound_last[node] = NONE;
    for (int64_t task = 0; task < tasks; task++)
        r->bound_next[task] = r->bound_node[task] = NONE;
    return true;
}

void bound_free(run_t *r)
{
    free(r->bound_first);
    free(r->bound_last);
    free(r->bound_next);
    free(r->bound_node);
}

/* Bind a task to a node: its input is staged in the node's rack, and it starts when there is room after that. */
void bound_add(run_t *r, int64_t task, int64_t node)
{
    world_t *w = r->w;
    if (r->bound_first[node] == NONE)
        r->bound_first[node] = (int32_t)task;
    else
        r->bound_next[r->bound_last[node]] = (int32_t)task;
    r->bound_last[node] = (int32_t)task;
    r->bound_next[task] = NONE;
    r->bound_node[task] = (int32_t)node;
    world_bind(w, w->job_of[task], node, 1);
    if (has_input(w, task, w->c.node_rack[node]) || !world_stage(w, task, w->c.node_rack[node]))
        bound_try(r, node); /* there is nothing to move */
}

static void unbind(run_t *r, int64_t task, int64_t previous)
{
    int64_t node = r->bound_node[task];
    int32_t next = r->bound_next[task];
    if (previous == NONE)
        r->bound_first[node] = next;
    else
        r->bound_next[previous] = next;
    if (next == NONE)
        r->bound_last[node] = (int32_t)previous;
    r->bound_node[task] = NONE;
    world_bind(r->w, r->w->job_of[task], node, -1);
}

/* Start the bound tasks that have their input and room, in order of binding. */
void bound_try(run_t *r, int64_t node)
{
    int64_t previous = NONE;
    for (int64_t task = r->bound_first[node]; task != NONE;) {
        int64_t next = r->bound_next[task];
        if (r->w->attempts[task].state == WAITING && world_has_place(r->w, r->w->job_of[task], node)) {
            unbind(r, task, previous);
            run_place(r, task, node);
        } else {
            previous = task;
        }
        task = next;
    }
}

/* Let the tasks bound to a node that has gone down wait for another. */
void bound_clear(run_t *r, int64_t node)
{
    while (r->bound_first[node] != NONE) {
        int64_t task = r->bound_first[node];
        unbind(r, task, NONE);
        run_undo(r, task);
    }
}
