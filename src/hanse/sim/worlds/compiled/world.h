/* The physics of a world and the central policies in it: declarations that all files of this folder share.
 *
 * A twin of the Python modules physics.py, links.py, job_queue.py, central.py and policies.py of the folder above,
 * which are the reference; both give the same outcome bit for bit. columns.py there says what the columns mean.
 * Times are whole microseconds; works, rates and bytes are doubles; only + - * / are used on them.
 */
#ifndef HANSE_WORLD_H
#define HANSE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEVER (INT64_C(1) << 62)
#define NONE (-1)
#define REPLICAS_MAX 4
#define FLOW_LINKS_MAX 4
#define CLOSED (-1) /* room_cpu of a node that may not be chosen */

/* Answers of `choose` beside a node. */
#define NOWHERE (-1) /* no node has room: jobs of the same shape are not tried before room comes free */
#define WAIT (-2)    /* there is room, and waiting is better: the job is asked again at the next pass */

/* Sizes and settings; run.py fills them in this order. */
typedef struct {
    int64_t clusters, racks, nodes, classes, jobs, tasks, outages, holds_cores;
} sizes_t;

typedef struct {
    double rack_flow_max, lan_flow_max, knee, slope;
} constants_t;

/* Columns of columns.py; all belong to the caller. HIDDEN ones are for the physics, and for policies that are
 * called an oracle or a bound. */
typedef struct {
    const int32_t *node_cluster, *node_rack, *node_class;
    const int64_t *node_cpu, *node_memory, *node_gpu;
    const double *node_bandwidth;
    const int32_t *rack_cluster;
    const double *rack_uplink, *cluster_wan, *wan_flow_max; /* [K] [C] [C*C] */
    const int64_t *round_trip;                              /* [C*C] */
    const double *class_speed;                              /* [W*Q] */
    const int64_t *job_arrival;
    const int32_t *job_home, *job_kind, *job_work_kind, *job_template; /* the last HIDDEN */
    const int64_t *job_offset, *job_cpu, *job_memory, *job_gpu;
    const uint64_t *job_classes;
    const int32_t *job_gang;
    const int64_t *job_deadline, *job_estimate, *needs_offset, *needs;
    const int32_t *replica_rack; /* [J*REPLICAS_MAX] */
    const double *task_bytes;
    const double *task_work, *job_demand, *job_bandwidth_sensitivity, *job_cache_sensitivity, *job_pollution,
        *template_speed; /* HIDDEN */
    const int32_t *outage_node;
    const int64_t *outage_from, *outage_until;
    const int32_t *job_shape; /* [J] jobs of one shape fit on the same nodes */
    /* the outcome */
    int32_t *node;
    int64_t *start, *run, *end; /* [T] */
    int64_t *decision_ns;       /* [J] */
} columns_t;

/* Kinds of events. At one time the smaller kind goes first, then the smaller number. LOST follows its DOWN. */
enum { ENDED, ARRIVED, STAGED, UP, DOWN, LOST };

/* States of a task. WAITING: without a place; READING: has its place, reads its input; RUNNING; STAGING: without
 * a place, its input is on the way to a rack; DONE. */
enum { WAITING, STAGING, READING, RUNNING, DONE };

typedef struct {
    int64_t time;
    int64_t kind;
    int64_t number; /* task, or node for UP and DOWN */
} event_t;

/* Items with a time each, of which the least (time, tie) is wanted; an item is at most once in it. */
typedef struct {
    int64_t *time, *tie; /* [items] */
    int32_t *place;      /* [items] position in `items`; NONE: not in it */
    int32_t *items;
    int64_t size;
} heap_t;

/* A task's present attempt. */
typedef struct {
    double left;       /* RUNNING: seconds of work left at the node's settled_at */
    double rate;       /* seconds of work per second */
    double speed;      /* without neighbours */
    double demand, bandwidth_sensitivity, cache_sensitivity, pollution;
    int32_t next, previous; /* in its node's list, in order of their starts; NONE at the ends */
    int32_t node;
    int32_t state;
} attempt_t;

/* A task's transfer. */
typedef struct {
    double left, rate, flow_max; /* bytes left at settled_at, bytes per second */
    int64_t settled_at;
    int32_t links[FLOW_LINKS_MAX], place[FLOW_LINKS_MAX]; /* NONE: no such link; position in the link's list */
    int32_t kind;   /* 0 within a rack, 1 within a cluster, 2 beyond */
    int32_t target; /* rack */
} flow_t;

/* A rack's uplink (number of the rack) or a cluster's access to the others (racks + cluster). */
typedef struct {
    double capacity, share; /* share: what a flow got at the last refresh */
    int64_t counted;        /* flows at the last refresh */
    int32_t *flows;
    int64_t size, room;
} link_t;

typedef struct {
    sizes_t n;
    constants_t k;
    columns_t c;
    int64_t now;
    const char *wrong; /* a bug of ours, or out of memory; NULL if none */
    /* nodes */
    int64_t *free_cpu, *free_memory, *free_gpu;
    int64_t *bound_cpu, *bound_memory, *bound_gpu; /* of tasks that are bound to the node ahead of their start */
    int64_t *room_cpu, *room_memory, *room_gpu;    /* what a policy may use: what is free and not bound, or the
                                                      next; room_cpu is CLOSED if the node may not be chosen */
    int64_t *ahead_cpu, *ahead_memory, *ahead_gpu; /* the same with what may be bound beyond it; shown when no
                                                      node has room */
    bool swapped;        /* the latter are shown as room */
    int64_t ahead_parts; /* one part in so many of a node may be bound to tasks beyond what is free; 0: none */
    double *demand;    /* HIDDEN: sum of the demands of the tasks that run there */
    double *pollution; /* HIDDEN: sum of their pollution */
    int32_t *first, *last; /* list of attempts with a place there, READING or RUNNING; NONE */
    int32_t *outages;      /* outages that hold now */
    int64_t *settled_at;   /* time to which `left` of its attempts is computed */
    /* tasks */
    attempt_t *attempts;
    flow_t *flows;
    int32_t *job_of;      /* [T] */
    int32_t *staged_rack; /* [T] rack that staging has brought the input to; NONE */
    link_t *links;
    double flow_limit; /* no flow over a link is ever faster */
    heap_t ends;       /* by node: the earliest end there */
    heap_t arrivals;   /* by task: the end of its transfer */
    heap_t ups;        /* by outage */
    int64_t downs;     /* outages that have begun */
    int64_t lost_node;     /* a node that went down, whose attempts are still to be ended; NONE */
    /* sums */
    int64_t launches, wasted_core_us;
    double bytes[3]; /* read within racks, within clusters, beyond */
    int64_t *lost;   /* attempts that were undone, five numbers each: task, node, start, run or -1, end */
    int64_t lost_count, lost_room;
} world_t;

/* What a policy may ask. */
static inline bool fits(const world_t *w, int64_t job, int64_t node)
{
    return w->room_cpu[node] >= w->c.job_cpu[job] && w->room_memory[node] >= w->c.job_memory[job] &&
           w->room_gpu[node] >= w->c.job_gpu[job] && (w->c.job_classes[job] >> w->c.node_class[node] & 1);
}
double world_work_left(const world_t *w, int64_t task);  /* HIDDEN: seconds of work left now */
double world_bytes_left(const world_t *w, int64_t task); /* of a transfer under way */
static inline int64_t world_link_flows(const world_t *w, int64_t link) { return w->links[link].size; }

/* A central policy. Functions may be NULL, but for `choose`. `self` is its own state.
 *
 * The order of calls for a job that is tried: `begin`, then for each waiting task in order of number `choose`, and
 * after each start `on_start`. Between the two nothing changes but what the start changes. For a gang `choose` is
 * asked for all tasks before any starts; nodes that cannot take part show no room, and the room that earlier tasks
 * of the gang will take is taken off. Where cores are not held during transfers a chosen node is one that a task is
 * bound to: on_start comes when its input is there and the node has room.
 */
typedef struct policy_s {
    void *self;
    int64_t pass_us; /* 0: waiting jobs are tried whenever room comes free; else at whole multiples of this, too */
    int64_t (*key)(struct policy_s *p, const world_t *w, int64_t job, int64_t unfinished);
    /* place in the queue, smaller first, ties by job; asked when a job becomes ready, and when a task of a waiting
     * job ends; NULL: the order of the settings */
    void (*on_arrival)(struct policy_s *p, const world_t *w, int64_t job);
    void (*begin)(struct policy_s *p, const world_t *w, int64_t job);
    int64_t (*choose)(struct policy_s *p, const world_t *w, int64_t job, int64_t task); /* a node, NOWHERE, WAIT */
    void (*on_start)(struct policy_s *p, const world_t *w, int64_t task, int64_t node);
    void (*on_input)(struct policy_s *p, const world_t *w, int64_t task, int64_t node); /* it runs from now on */
    void (*on_task_end)(struct policy_s *p, const world_t *w, int64_t task, int64_t node, int64_t run_us);
    /* called while the task is still in the list of its node, with its neighbours; run_us without the transfer */
    void (*on_lost)(struct policy_s *p, const world_t *w, int64_t task, int64_t node); /* by an outage; as above */
    void (*on_job_end)(struct policy_s *p, const world_t *w, int64_t job);
    void (*close)(struct policy_s *p, const world_t *w);
} policy_t;

/* What a policy is made from; run.py fills it. */
typedef struct {
    int64_t seed;
    const double *numbers; /* a policy's own settings, in its own order */
    int64_t number_count;
    void *const *arrays; /* addresses of a policy's own columns, in its own order */
    int64_t array_count;
} settings_t;

/* A line of table.c: its name, and a function that fills `p` (which is zero) or returns false if
 * memory or settings are missing. */
typedef struct {
    const char *name;
    bool (*make)(policy_t *p, const world_t *w, const settings_t *settings);
} policy_entry_t;
extern const policy_entry_t POLICIES[];
extern const int64_t POLICY_COUNT;

/* heap.c */
bool heap_make(heap_t *h, int64_t items);
void heap_free(heap_t *h);
void heap_set(heap_t *h, int64_t item, int64_t time, int64_t tie);
void heap_remove(heap_t *h, int64_t item);
static inline int64_t heap_time(const heap_t *h) { return h->size ? h->time[h->items[0]] : NEVER; }

/* links.c */
bool links_make(world_t *w);
void links_free(world_t *w);
bool flow_start(world_t *w, int64_t task, int64_t rack);
void flow_stop(world_t *w, int64_t task);
bool has_input(const world_t *w, int64_t task, int64_t rack);
int64_t time_after(int64_t now, double left, double rate);

/* room.c */
bool world_has_place(const world_t *w, int64_t job, int64_t node); /* fits, by what is really free */
void world_bind(world_t *w, int64_t job, int64_t node, int64_t sign); /* bind a task to a node, or (-1) no more */
void world_show(world_t *w, int64_t node); /* bring the room of a node up to date */
void world_swap(world_t *w);               /* show what may be bound ahead as room, or no longer */

/* physics.c */
world_t *world_make(const sizes_t *n, const constants_t *k, const columns_t *c);
void world_free(world_t *w);
void world_start(world_t *w, int64_t task, int64_t node);
bool world_stage(world_t *w, int64_t task, int64_t rack);
void world_withdraw(world_t *w, int64_t task);
int64_t world_next(const world_t *w);
bool world_peek(const world_t *w, event_t *event);
void world_step(world_t *w, const event_t *event); /* the event that world_peek gave */
void world_fail(world_t *w, const char *why);

#endif
