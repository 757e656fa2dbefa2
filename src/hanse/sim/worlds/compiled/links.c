/* Transfers that share links: twin of links.py. */
#include "world.h"

#include <stdlib.h>

/* A link refreshes the rates of its flows when their number differs from that at the last refresh by more than
 * one part in so many. */
#define REFRESH_PARTS 10

bool links_make(world_t *w)
{
    int64_t count = w->n.racks + w->n.clusters;
    w->links = calloc((size_t)count, sizeof *w->links);
    w->flows = calloc((size_t)w->n.tasks, sizeof *w->flows);
    if (!w->links || !w->flows)
        return false;
    for (int64_t link = 0; link < count; link++) {
        link_t *l = &w->links[link];
        l->capacity = link < w->n.racks ? w->c.rack_uplink[link] : w->c.cluster_wan[link - w->n.racks];
        l->share = l->capacity;
    }
    w->flow_limit = w->k.lan_flow_max;
    for (int64_t pair = 0; pair < w->n.clusters * w->n.clusters; pair++)
        if (pair / w->n.clusters != pair % w->n.clusters && w->c.wan_flow_max[pair] > w->flow_limit)
            w->flow_limit = w->c.wan_flow_max[pair];
    return true;
}

void links_free(world_t *w)
{
    if (w->links)
        for (int64_t link = 0; link < w->n.racks + w->n.clusters; link++)
            free(w->links[link].flows);
    free(w->links);
    free(w->flows);
}

/* The first whole microsecond at which `left` is gone at `rate`. */
int64_t time_after(int64_t now, double left, double rate)
{
    if (left <= 0.0)
        return now;
    double microseconds = left / rate * 1e6;
    if (!(microseconds < 1e15))
        return NEVER - 1;
    int64_t whole = (int64_t)microseconds;
    if ((double)whole < microseconds)
        whole++;
    return now + whole;
}

static void settle_flow(world_t *w, flow_t *f)
{
    f->left -= f->rate * ((double)(w->now - f->settled_at) * 1e-6);
    f->settled_at = w->now;
}

/* Give a flow the rate that its links' shares allow. */
static void adjust_flow(world_t *w, int64_t task)
{
    flow_t *f = &w->flows[task];
    double rate = f->flow_max;
    for (int each = 0; each < FLOW_LINKS_MAX && f->links[each] != NONE; each++)
        if (w->links[f->links[each]].share < rate)
            rate = w->links[f->links[each]].share;
    if (rate == f->rate)
        return;
    settle_flow(w, f);
    f->rate = rate;
    heap_set(&w->arrivals, task, time_after(w->now, f->left, rate), task);
}

static void refresh(world_t *w, link_t *l)
{
    int64_t change = l->size > l->counted ? l->size - l->counted : l->counted - l->size;
    if (change * REFRESH_PARTS <= l->counted)
        return;
    double share = l->size ? l->capacity / (double)l->size : l->capacity;
    bool free_before = l->share >= w->flow_limit, free_now = share >= w->flow_limit;
    l->counted = l->size;
    l->share = share;
    if (free_before && free_now)
        return; /* the link binds no flow, before or now */
    for (int64_t each = 0; each < l->size; each++)
        adjust_flow(w, l->flows[each]);
}

static void enter(world_t *w, int64_t task, int each)
{
    flow_t *f = &w->flows[task];
    link_t *l = &w->links[f->links[each]];
    if (l->size == l->room) {
        int64_t room = l->room ? 2 * l->room : 16;
        int32_t *larger = realloc(l->flows, (size_t)room * sizeof *larger);
        if (!larger) {
            world_fail(w, "out of memory");
            return;
        }
        l->flows = larger;
        l->room = room;
    }
    f->place[each] = (int32_t)l->size;
    l->flows[l->size++] = (int32_t)task;
}

static void leave(world_t *w, int64_t task, int each)
{
    flow_t *f = &w->flows[task];
    link_t *l = &w->links[f->links[each]];
    int32_t moved = l->flows[--l->size];
    l->flows[f->place[each]] = moved;
    flow_t *other = &w->flows[moved];
    for (int at = 0; at < FLOW_LINKS_MAX; at++)
        if (other->links[at] == f->links[each])
            other->place[at] = f->place[each];
}

static int64_t job_replica(const world_t *w, int64_t job, int each) { return w->c.replica_rack[job * REPLICAS_MAX + each]; }

/* Whether a task can run in a rack without a transfer. */
bool has_input(const world_t *w, int64_t task, int64_t rack)
{
    return !(w->c.task_bytes[task] > 0.0) || w->staged_rack[task] == rack;
}

/* The nearest replica: this rack, else the first in this cluster, else the first with the fastest flows. */
static int64_t find_source(const world_t *w, int64_t task, int64_t rack)
{
    int64_t job = w->job_of[task], cluster = w->c.rack_cluster[rack], found = NONE;
    double fastest = -1.0;
    int nearest = 3;
    for (int each = 0; each <= REPLICAS_MAX; each++) {
        int64_t source = each < REPLICAS_MAX ? job_replica(w, job, each) : w->staged_rack[task];
        if (source == NONE)
            continue;
        int64_t from = w->c.rack_cluster[source];
        int distance = source == rack ? 0 : from == cluster ? 1 : 2;
        double speed = distance < 2 ? 0.0 : w->c.wan_flow_max[from * w->n.clusters + cluster];
        if (distance < nearest || (distance == nearest && speed > fastest)) {
            nearest = distance;
            fastest = speed;
            found = source;
        }
    }
    return found;
}

/* Begin to move a task's input to a rack; false if there is nothing to move. */
bool flow_start(world_t *w, int64_t task, int64_t rack)
{
    int64_t source = has_input(w, task, rack) ? NONE : find_source(w, task, rack);
    if (source == NONE)
        return false;
    flow_t *f = &w->flows[task];
    int64_t to = w->c.rack_cluster[rack], from = w->c.rack_cluster[source];
    f->kind = source == rack ? 0 : from == to ? 1 : 2;
    f->flow_max = f->kind == 0 ? w->k.rack_flow_max
                  : f->kind == 1 ? w->k.lan_flow_max : w->c.wan_flow_max[from * w->n.clusters + to];
    f->left = w->c.task_bytes[task];
    f->rate = 0.0;
    f->settled_at = w->now;
    f->target = (int32_t)rack;
    int count = 0;
    if (f->kind > 0)
        f->links[count++] = (int32_t)source;
    if (f->kind > 1) {
        f->links[count++] = (int32_t)(w->n.racks + from);
        f->links[count++] = (int32_t)(w->n.racks + to);
    }
    if (f->kind > 0)
        f->links[count++] = (int32_t)rack;
    for (int each = count; each < FLOW_LINKS_MAX; each++)
        f->links[each] = NONE;
    for (int each = 0; each < count; each++) {
        enter(w, task, each);
        if (w->wrong)
            return false;
    }
    for (int each = 0; each < count; each++)
        refresh(w, &w->links[f->links[each]]);
    adjust_flow(w, task);
    return true;
}

/* End a transfer, finished or not. */
void flow_stop(world_t *w, int64_t task)
{
    flow_t *f = &w->flows[task];
    settle_flow(w, f);
    bool finished = w->arrivals.time[task] <= w->now;
    w->bytes[f->kind] += finished ? w->c.task_bytes[task] : w->c.task_bytes[task] - f->left;
    heap_remove(&w->arrivals, task);
    for (int each = 0; each < FLOW_LINKS_MAX && f->links[each] != NONE; each++)
        leave(w, task, each);
    for (int each = 0; each < FLOW_LINKS_MAX && f->links[each] != NONE; each++)
        refresh(w, &w->links[f->links[each]]);
}

double world_bytes_left(const world_t *w, int64_t task)
{
    const flow_t *f = &w->flows[task];
    return f->left - f->rate * ((double)(w->now - f->settled_at) * 1e-6);
}
