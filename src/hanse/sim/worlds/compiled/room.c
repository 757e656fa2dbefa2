/* What nodes show to policies: twin of PolicyView in policy_view.py. */
#include "world.h"

static void swap(int64_t **one, int64_t **other)
{
    int64_t *kept = *one;
    *one = *other;
    *other = kept;
}

void world_swap(world_t *w)
{
    swap(&w->room_cpu, &w->ahead_cpu);
    swap(&w->room_memory, &w->ahead_memory);
    swap(&w->room_gpu, &w->ahead_gpu);
    w->swapped = !w->swapped;
}

static int64_t ahead_of(const world_t *w, int64_t room, int64_t whole)
{
    room += whole / w->ahead_parts;
    return room < whole ? room : whole;
}

void world_show(world_t *w, int64_t node)
{
    bool swapped = w->swapped;
    if (swapped)
        world_swap(w);
    w->room_cpu[node] = w->free_cpu[node] - w->bound_cpu[node];
    w->room_memory[node] = w->free_memory[node] - w->bound_memory[node];
    w->room_gpu[node] = w->free_gpu[node] - w->bound_gpu[node];
    if (w->ahead_parts) {
        w->ahead_cpu[node] = ahead_of(w, w->room_cpu[node], w->c.node_cpu[node]);
        w->ahead_memory[node] = ahead_of(w, w->room_memory[node], w->c.node_memory[node]);
        w->ahead_gpu[node] = ahead_of(w, w->room_gpu[node], w->c.node_gpu[node]);
    }
    if (w->outages[node])
        w->room_cpu[node] = w->ahead_cpu[node] = CLOSED;
    if (swapped)
        world_swap(w);
}

void world_bind(world_t *w, int64_t job, int64_t node, int64_t sign)
{
    w->bound_cpu[node] += sign * w->c.job_cpu[job];
    w->bound_memory[node] += sign * w->c.job_memory[job];
    w->bound_gpu[node] += sign * w->c.job_gpu[job];
    world_show(w, node);
}

bool world_has_place(const world_t *w, int64_t job, int64_t node)
{
    return !w->outages[node] && w->free_cpu[node] >= w->c.job_cpu[job] &&
           w->free_memory[node] >= w->c.job_memory[job] && w->free_gpu[node] >= w->c.job_gpu[job] &&
           (w->c.job_classes[job] >> w->c.node_class[node] & 1);
}
