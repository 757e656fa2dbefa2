/* The nodes on which equal tasks finish first: see numpy_finish.py, which these functions equal to the bit.
 *
 * Speed: the best `count` nodes of one walk are kept in a heap; no other node can be chosen, as it would have to
 * beat `count` nodes, each of which loses its place only by being chosen once. Run time and transfer are the same
 * for a whole stretch of nodes, and neighbours only add to them: a stretch that cannot beat the heap's worst is
 * passed over as a whole.
 */
#include "finish_time.h"

/* Two versions of a block loop, chosen when the library is loaded, as in kernels.c. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) \
    && !defined(HANSE_NO_CLONES)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

static const double KNOT[KNOTS] = {0.0, 0.25, 0.5, 0.75, 1.0};

/* Slow-down for sensitivity 1: piecewise linear in the pressure. */
static inline double bend(const double *slopes, double pressure)
{
    double sum = 0.0;
    for (int at = 0; at < KNOTS && pressure > KNOT[at]; at++)
        sum = sum + slopes[at] * (pressure - KNOT[at]);
    return sum;
}

/* Finish of the next task itself on a node that was given `given` of them; the bend of its pressure in `to`. */
static inline double finish_of(const finish_nodes_t *nodes, const finish_job_t *job, double alone, double transfer,
                               int64_t node, int64_t given, double *to)
{
    double before = nodes->pressure[node] + (double)given * job->own_pressure;
    *to = bend(job->slopes, (before + job->own_pressure) * nodes->room[node]);
    return transfer + alone * (1.0 + job->sensitivity * *to);
}

/* Cost of that task: its finish, and what its neighbours lose. */
static inline double cost_of(const finish_nodes_t *nodes, const finish_job_t *job, int64_t node, int64_t given,
                             double finish, double to)
{
    double before = nodes->pressure[node] + (double)given * job->own_pressure;
    double from = bend(job->slopes, before * nodes->room[node]);
    double exposed = nodes->exposure[node] + (double)given * job->own_exposure;
    return finish + job->charge * (exposed * (to - from));
}

static inline int has_room(const finish_nodes_t *nodes, const finish_job_t *job, int64_t node, int64_t given)
{
    int64_t tasks = given + 1;
    return nodes->free_cpu[node] >= tasks * job->cpu && nodes->free_memory[node] >= tasks * job->memory
        && nodes->free_gpu[node] >= tasks * job->gpu && (!job->each_max || given < job->each_max);
}

static inline int is_before(const finish_entry_t *a, const finish_entry_t *b)
{
    return a->cost != b->cost ? a->cost < b->cost : a->node < b->node;
}

/* Put an entry where it belongs, from `at` downwards. The root is the last in order while candidates are gathered
 * (rising = 0), the first while they are chosen (rising = 1). */
static void sift_down(finish_entry_t *heap, int64_t size, int64_t at, int rising)
{
    finish_entry_t entry = heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= size)
            break;
        if (child + 1 < size && is_before(&heap[child + 1], &heap[child]) == rising)
            child++;
        if (is_before(&heap[child], &entry) != rising)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

static void sift_up(finish_entry_t *heap, int64_t at)
{
    finish_entry_t entry = heap[at];
    while (at) {
        int64_t parent = (at - 1) / 2;
        if (!is_before(&heap[parent], &entry))
            break;
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = entry;
}

/* Whether any node of a stretch has enough milli-CPU: a full stretch is passed over at the speed of vectors. */
static inline int has_cpu(const int64_t *free_cpu, int64_t from, int64_t past, int64_t cpu)
{
    int64_t any = 0;
    for (int64_t node = from; node < past; node++)
        any |= free_cpu[node] >= cpu;
    return any != 0;
}

CLONES
static int64_t gather(const finish_nodes_t *nodes, const finish_job_t *job, finish_entry_t *heap, int64_t most)
{
    int64_t size = 0;
    double limit = job->finish_max, to;
    for (int64_t at = 0; at < nodes->stretches; at++) {
        double alone = job->class_seconds[nodes->stretch_class[at]];
        double transfer = job->rack_seconds[nodes->stretch_rack[at]];
        if (alone < 0.0 || transfer < 0.0 || transfer + alone > limit
            || !has_cpu(nodes->free_cpu, nodes->stretch_from[at], nodes->stretch_from[at + 1], job->cpu))
            continue;
        for (int64_t node = nodes->stretch_from[at]; node < nodes->stretch_from[at + 1]; node++) {
            if (nodes->free_cpu[node] < job->cpu || !has_room(nodes, job, node, 0))
                continue;
            double finish = finish_of(nodes, job, alone, transfer, node, 0, &to);
            if (finish > limit) /* the cost is at least as much */
                continue;
            finish_entry_t entry = {cost_of(nodes, job, node, 0, finish, to), node, 0, at};
            if (size < most) {
                heap[size] = entry;
                sift_up(heap, size++);
            } else if (is_before(&entry, &heap[0])) {
                heap[0] = entry;
                sift_down(heap, size, 0, 0);
            }
            if (size == most && heap[0].cost < limit)
                limit = heap[0].cost;
        }
    }
    return size;
}

static void debit(const finish_nodes_t *nodes, const finish_job_t *job, int64_t node)
{
    nodes->free_cpu[node] -= job->cpu;
    nodes->free_memory[node] -= job->memory;
    nodes->free_gpu[node] -= job->gpu;
    nodes->pressure[node] = nodes->pressure[node] + job->own_pressure;
    nodes->exposure[node] = nodes->exposure[node] + job->own_exposure;
}

int64_t hanse_finish_choose(const finish_nodes_t *nodes, const finish_job_t *job, finish_entry_t *entries,
                            int64_t *chosen, double *costs)
{
    int64_t most = job->count < nodes->nodes ? job->count : nodes->nodes, done = 0;
    double finish, to;
    if (most <= 0)
        return 0;
    int64_t size = gather(nodes, job, entries, most);
    if (size == 1 && job->count == 1) { /* the usual case */
        chosen[0] = entries[0].node;
        costs[0] = entries[0].cost;
        done = 1;
    } else {
        for (int64_t at = size / 2 - 1; at >= 0; at--)
            sift_down(entries, size, at, 1);
        while (done < job->count && size) {
            finish_entry_t *best = &entries[0];
            chosen[done] = best->node;
            costs[done++] = best->cost;
            best->given++;
            int64_t at = best->stretch;
            finish = finish_of(nodes, job, job->class_seconds[nodes->stretch_class[at]],
                               job->rack_seconds[nodes->stretch_rack[at]], best->node, best->given, &to);
            best->cost = cost_of(nodes, job, best->node, best->given, finish, to);
            if (!has_room(nodes, job, best->node, best->given) || finish > job->finish_max)
                *best = entries[--size];
            if (size)
                sift_down(entries, size, 0, 1);
        }
    }
    if (job->is_debited)
        for (int64_t at = 0; at < done; at++)
            debit(nodes, job, chosen[at]);
    return done;
}

double hanse_finish_ideal(const finish_nodes_t *nodes, const finish_job_t *job)
{
    double best = -1.0;
    for (int64_t at = 0; at < nodes->stretches; at++) {
        double alone = job->class_seconds[nodes->stretch_class[at]];
        double transfer = job->rack_seconds[nodes->stretch_rack[at]];
        if (alone < 0.0 || transfer < 0.0 || nodes->stretch_from[at] == nodes->stretch_from[at + 1])
            continue;
        double pressure = job->own_pressure * nodes->room[nodes->stretch_from[at]];
        double cost = transfer + alone * (1.0 + job->sensitivity * bend(job->slopes, pressure));
        if (best < 0.0 || cost < best)
            best = cost;
    }
    return best;
}

void hanse_finish_costs(const finish_nodes_t *nodes, const finish_job_t *job, double *costs)
{
    for (int64_t at = 0; at < nodes->stretches; at++) {
        double alone = job->class_seconds[nodes->stretch_class[at]];
        double transfer = job->rack_seconds[nodes->stretch_rack[at]];
        for (int64_t node = nodes->stretch_from[at]; node < nodes->stretch_from[at + 1]; node++) {
            double to, finish = finish_of(nodes, job, alone, transfer, node, 0, &to);
            costs[node] = alone < 0.0 || transfer < 0.0 ? -1.0 : cost_of(nodes, job, node, 0, finish, to);
        }
    }
}
