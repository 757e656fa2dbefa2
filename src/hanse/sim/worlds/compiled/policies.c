/* The simple central policies: twin of policies.py, which says what each does and how it breaks ties. */
#include "policies.h"

#include <stdlib.h>

typedef struct {
    int64_t *first_node;        /* [C+1] */
    const int32_t *job_cluster; /* [J] home, or the cluster that stands in for it */
    uint64_t seed;
} simple_t;

/* The upper and lower half of a product of two words, one folded onto the other. */
static uint64_t fold(uint64_t one, uint64_t other)
{
    uint64_t a = one >> 32, b = one & UINT32_MAX, c = other >> 32, d = other & UINT32_MAX;
    uint64_t low = b * d, middle = a * d + (low >> 32), cross = b * c + (middle & UINT32_MAX);
    return one * other ^ (a * c + (middle >> 32) + (cross >> 32));
}

/* policy/hashing.py hash_numbers, of two values */
uint64_t world_hash(uint64_t seed, uint64_t one, uint64_t other)
{
    uint64_t word = seed ^ UINT64_C(0x6A09E667F3BCC909);
    word = word * UINT64_C(0x9E3779B97F4A7C15) ^ one;
    word = word * UINT64_C(0x9E3779B97F4A7C15) ^ other;
    return fold(fold(word, UINT64_C(0xBF58476D1CE4E5B9)), UINT64_C(0x94D049BB133111EB));
}

/* A number below `count` from a word. */
static int64_t below(uint64_t word, uint64_t count)
{
    return (int64_t)(((word >> 32) * count + ((word & UINT32_MAX) * count >> 32)) >> 32);
}

static int64_t best_fit(const world_t *w, int64_t job, int64_t first, int64_t past)
{
    int64_t found = NOWHERE, gpu = 0, cpu = 0, memory = 0;
    for (int64_t node = first; node < past; node++) {
        if (!fits(w, job, node))
            continue;
        bool better = found == NOWHERE;
        if (!better && w->room_gpu[node] != gpu)
            better = w->room_gpu[node] < gpu;
        else if (!better && w->room_cpu[node] != cpu)
            better = w->room_cpu[node] < cpu;
        else if (!better)
            better = w->room_memory[node] < memory;
        if (better) {
            found = node;
            gpu = w->room_gpu[node];
            cpu = w->room_cpu[node];
            memory = w->room_memory[node];
        }
    }
    return found;
}

static double free_share(const world_t *w, int64_t node)
{
    return (double)w->room_cpu[node] / (double)w->c.node_cpu[node];
}

static int64_t least_loaded(const world_t *w, int64_t job, int64_t first, int64_t past)
{
    int64_t found = NOWHERE;
    double most = -1.0;
    for (int64_t node = first; node < past; node++)
        if (fits(w, job, node) && free_share(w, node) > most) {
            found = node;
            most = free_share(w, node);
        }
    return found;
}

static int64_t choose_independent(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    const simple_t *s = p->self;
    int64_t cluster = s->job_cluster[job];
    (void)task;
    return least_loaded(w, job, s->first_node[cluster], s->first_node[cluster + 1]);
}

static int64_t choose_best_fit(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    (void)p;
    (void)task;
    return best_fit(w, job, 0, w->n.nodes);
}

static int64_t choose_least_loaded(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    (void)p;
    (void)task;
    return least_loaded(w, job, 0, w->n.nodes);
}

static int64_t nth_fitting(const world_t *w, int64_t job, int64_t rank)
{
    for (int64_t node = 0; node < w->n.nodes; node++)
        if (fits(w, job, node) && rank-- == 0)
            return node;
    return NOWHERE;
}

static int64_t choose_power_of_two(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    const simple_t *s = p->self;
    int64_t count = 0;
    for (int64_t node = 0; node < w->n.nodes; node++)
        count += fits(w, job, node);
    if (count < 2)
        return nth_fitting(w, job, 0);
    int64_t one = below(world_hash(s->seed, (uint64_t)task, 0), (uint64_t)count);
    int64_t other = below(world_hash(s->seed, (uint64_t)task, 1), (uint64_t)count - 1);
    other += other >= one;
    int64_t low = nth_fitting(w, job, one < other ? one : other);
    int64_t high = nth_fitting(w, job, one < other ? other : one);
    return free_share(w, high) > free_share(w, low) ? high : low;
}

static bool has_replica(const world_t *w, int64_t job, int64_t cluster)
{
    for (int64_t at = job * REPLICAS_MAX; at < (job + 1) * REPLICAS_MAX; at++)
        if (w->c.replica_rack[at] != NONE && w->c.rack_cluster[w->c.replica_rack[at]] == cluster)
            return true;
    return false;
}

/* Place of a cluster in the order: with a replica and home, with a replica, home, others. */
static int rank_of(const world_t *w, int64_t job, int64_t cluster)
{
    return (has_replica(w, job, cluster) ? 0 : 2) + (cluster != w->c.job_home[job]);
}

static int64_t cluster_room(const simple_t *s, const world_t *w, int64_t cluster)
{
    int64_t sum = 0;
    for (int64_t node = s->first_node[cluster]; node < s->first_node[cluster + 1]; node++)
        sum += w->room_cpu[node] > 0 ? w->room_cpu[node] : 0;
    return sum;
}

/* Of the clusters of one rank that have room for the task, the one with most room in all; it is only summed up
 * where two have room. */
static int64_t choose_in_rank(const simple_t *s, const world_t *w, int64_t job, int rank)
{
    int64_t found = NOWHERE, room = NONE;
    for (int64_t cluster = 0; cluster < w->n.clusters; cluster++) {
        if (rank_of(w, job, cluster) != rank)
            continue;
        int64_t node = best_fit(w, job, s->first_node[cluster], s->first_node[cluster + 1]);
        if (node == NOWHERE)
            continue;
        if (found != NOWHERE) {
            room = room == NONE ? cluster_room(s, w, w->c.node_cluster[found]) : room;
            int64_t here = cluster_room(s, w, cluster);
            if (here <= room)
                continue;
            room = here;
        }
        found = node;
    }
    return found;
}

static int64_t choose_greedy(policy_t *p, const world_t *w, int64_t job, int64_t task)
{
    (void)task;
    for (int rank = 0; rank < 4; rank++) {
        int64_t node = choose_in_rank(p->self, w, job, rank);
        if (node != NOWHERE)
            return node;
    }
    return NOWHERE;
}

static void close_simple(policy_t *p, const world_t *w)
{
    simple_t *s = p->self;
    (void)w;
    free(s->first_node);
    free(s);
}

/* settings: arrays[0] is the cluster of each job for `independent`. */
static bool make_simple(policy_t *p, const world_t *w, const settings_t *settings)
{
    simple_t *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    p->self = s;
    p->close = close_simple;
    s->first_node = calloc((size_t)w->n.clusters + 1, sizeof *s->first_node);
    s->seed = (uint64_t)settings->seed;
    if (!s->first_node)
        return false;
    for (int64_t node = 0; node < w->n.nodes; node++)
        s->first_node[w->c.node_cluster[node] + 1] = node + 1;
    return true;
}

bool make_independent(policy_t *p, const world_t *w, const settings_t *settings)
{
    p->choose = choose_independent;
    if (settings->array_count < 1 || !make_simple(p, w, settings))
        return false;
    ((simple_t *)p->self)->job_cluster = settings->arrays[0];
    return true;
}

bool make_greedy(policy_t *p, const world_t *w, const settings_t *settings)
{
    p->choose = choose_greedy;
    return make_simple(p, w, settings);
}

bool make_best_fit(policy_t *p, const world_t *w, const settings_t *settings)
{
    p->choose = choose_best_fit;
    return make_simple(p, w, settings);
}

bool make_least_loaded(policy_t *p, const world_t *w, const settings_t *settings)
{
    p->choose = choose_least_loaded;
    return make_simple(p, w, settings);
}

bool make_power_of_two(policy_t *p, const world_t *w, const settings_t *settings)
{
    p->choose = choose_power_of_two;
    return make_simple(p, w, settings);
}
