/* Gangs: all tasks of a job start at once, in one cluster, rack or node. Twin of gangs.py. */
#include "central.h"

#include <string.h>

static int64_t domain_of(const world_t *w, int64_t gang, int64_t node)
{
    return gang == 1 ? w->c.node_cluster[node] : gang == 2 ? w->c.node_rack[node] : node;
}

static int64_t domain_count(const world_t *w, int64_t gang)
{
    return gang == 1 ? w->n.clusters : gang == 2 ? w->n.racks : w->n.nodes;
}

static int64_t most(int64_t slots, int64_t amount, int64_t each)
{
    return each > 0 && amount / each < slots ? amount / each : slots;
}

/* Tasks of a job that fit on a node, at most `limit`. */
static int64_t slots_on(const world_t *w, int64_t job, int64_t node, int64_t limit)
{
    if (!world_has_place(w, job, node))
        return 0;
    int64_t slots = most(limit, w->free_cpu[node], w->c.job_cpu[job]);
    slots = most(slots, w->free_memory[node], w->c.job_memory[job]);
    return most(slots, w->free_gpu[node], w->c.job_gpu[job]);
}

static void keep_room(run_t *r, int64_t *cpu, int64_t *memory, int64_t *gpu, const int64_t *from[3])
{
    size_t bytes = (size_t)r->w->n.nodes * sizeof *cpu;
    memcpy(cpu, from[0], bytes);
    memcpy(memory, from[1], bytes);
    memcpy(gpu, from[2], bytes);
}

/* Choose nodes for all tasks; the room shown is what is really free, and only in domains that hold the gang. */
static int64_t choose_nodes(run_t *r, int64_t job, int64_t count)
{
    world_t *w = r->w;
    int64_t gang = w->c.job_gang[job], first = w->c.job_offset[job];
    for (int64_t node = 0; node < w->n.nodes; node++)
        if (w->outages[node] || r->slots[domain_of(w, gang, node)] < count)
            w->room_cpu[node] = CLOSED;
    if (r->p.begin)
        r->p.begin(&r->p, w, job);
    for (int64_t each = 0; each < count; each++) {
        int64_t node = r->p.choose(&r->p, w, job, first + each);
        if (node < 0)
            return node;
        if (!fits(w, job, node)) {
            run_fail(r, "a policy chose a node without room for a gang");
            return NOWHERE;
        }
        if (each == 0)
            for (int64_t other = 0; other < w->n.nodes; other++)
                if (domain_of(w, gang, other) != domain_of(w, gang, node))
                    w->room_cpu[other] = CLOSED;
        w->room_cpu[node] -= w->c.job_cpu[job];
        w->room_memory[node] -= w->c.job_memory[job];
        w->room_gpu[node] -= w->c.job_gpu[job];
        r->chosen[each] = node;
    }
    return 0;
}

/* Start a gang; NOWHERE if no domain holds it, WAIT if the policy says so, else 0. */
int64_t gang_attempt(run_t *r, int64_t job)
{
    world_t *w = r->w;
    int64_t gang = w->c.job_gang[job], first = w->c.job_offset[job], count = w->c.job_offset[job + 1] - first;
    memset(r->slots, 0, (size_t)domain_count(w, gang) * sizeof *r->slots);
    bool any = false;
    for (int64_t node = 0; node < w->n.nodes; node++) {
        int64_t *slots = &r->slots[domain_of(w, gang, node)];
        *slots += slots_on(w, job, node, count);
        any = any || *slots >= count;
    }
    if (!any)
        return NOWHERE;
    const int64_t *room[] = {w->room_cpu, w->room_memory, w->room_gpu};
    const int64_t *really_free[] = {w->free_cpu, w->free_memory, w->free_gpu};
    const int64_t *kept[] = {r->kept_cpu, r->kept_memory, r->kept_gpu};
    keep_room(r, r->kept_cpu, r->kept_memory, r->kept_gpu, room);
    keep_room(r, w->room_cpu, w->room_memory, w->room_gpu, really_free);
    int64_t answer = choose_nodes(r, job, count);
    keep_room(r, w->room_cpu, w->room_memory, w->room_gpu, kept);
    if (answer == 0 && !w->wrong)
        for (int64_t each = 0; each < count; each++)
            run_place(r, first + each, r->chosen[each]);
    return answer;
}

/* A task of a gang was lost: the others start again with it, from nothing, even if they have ended. */
void gang_undo(run_t *r, int64_t job)
{
    world_t *w = r->w;
    for (int64_t task = w->c.job_offset[job]; task < w->c.job_offset[job + 1]; task++) {
        int64_t node = w->attempts[task].node, state = w->attempts[task].state;
        if (state == WAITING)
            continue;
        if (state == DONE)
            r->unfinished[job]++;
        else if (r->p.on_lost)
            r->p.on_lost(&r->p, w, task, node);
        world_withdraw(w, task);
        run_undo(r, task);
        if (state != DONE) {
            bound_try(r, node);
            run_freed(r, node);
        }
    }
}
