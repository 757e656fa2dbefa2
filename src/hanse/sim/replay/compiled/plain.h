/* The compiled league: declarations that all files of this folder share.
 *
 * A twin of what core's machines do in a run without faults, where a node has one slot, a job one group, and
 * a broker no standby. The machines are the reference; every file here mirrors some of core's modules. What
 * cannot occur in such a league is not here; where the machines would go that way, `must` stops the run with a
 * sentence.
 *
 * Above each function stands a comment that begins with lines of the form `mirrors PATH NAME`, one for each Python
 * function that it repeats (PATH below the package, NAME with its class), or with `own:` if it repeats none.
 * `mirrors.toml` has a digest of each of those functions, as it was when somebody compared the two: when one
 * changes, tests/sim/replay/test_twin_drift.py fails until `python -m tools.twin --accept` says that the C
 * function follows it again.
 *
 * Three simplifications hold everywhere, because a node has one slot and all tasks ask for one:
 *   - Room is one bit a node. What a broker may propose on is what was confirmed and is not pending.
 *   - Where a shape fits is a range of nodes: the reserve is the end of a cluster, a broker's share a part.
 *   - Hints that only save the machines a futile search (core.search_cache) are left out: they change nothing.
 *
 * Tasks and jobs are positions in the workload. Job j is the (j / brokers)-th of broker j % brokers.
 */
#ifndef HANSE_PLAIN_H
#define HANSE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEVER (INT64_C(1) << 62)
#define NONE (-1)

/* Kinds of messages (model.messages). The periodic ones come first: they are counted apart. */
enum {
    ACK, BEAT, BEAT_REPLY, CHANGE, RUNNER_BEAT, RUNNER_LEASE, PERIODIC,
    SYNC = PERIODIC, REGISTER, DEMAND, CLAIM, SETTLE,
    SNAPSHOT, ESTATE, ANSWER, NEWS,
    ORDERS, HELLO, REPORT, KINDS
};

enum { BOOTED, RECEIVED, TICK, SUBMITTED, ENDED, STARTED }; /* events of a machine */

/* States of a task at its broker (core.broker.job_table). */
enum { BLOCKED, WAITING, CLAIMED, PLACED, RUNNING, SUCCEEDED };

/* What decides a run beside the workload; run.py fills it in this order. */
typedef struct {
    int64_t brokers, clusters, jobs, tasks, shapes;
    int64_t delay, lead;
    int64_t starts;   /* whether runners report starts */
    int64_t progress; /* whether a job's key begins with the tasks that are left of it */
    int64_t ack_delay, resend_after, beat, runner_beat, cluster_lease, runner_lease, runner_span, grant_lease;
    int64_t delta_linger, started_linger, settle_linger, suspect_after, start_deadline, patience;
    int64_t window_max, lot_tasks_max, claim_tasks_max, lines_max, settle_max, news_max, grants_max;
    int64_t slots_max, expected_max, starts_max, borrow_room, wary_time, runs_max;
} rules_t;

/* Columns of the workload and of the league, and where the outcome goes; all belong to the caller. */
typedef struct {
    const int64_t *arrival;       /* [jobs] */
    const int64_t *offset;        /* [jobs + 1] */
    const int64_t *duration;      /* [tasks] */
    const int64_t *first, *second; /* [jobs] the key of each job when it comes */
    const int64_t *shape;         /* [jobs] */
    const int64_t *latency;       /* [shapes] whether it may use the reserve */
    const int64_t *first_node;    /* [clusters + 1] */
    const int64_t *reserve;       /* [clusters] nodes kept for latency work */
    const int64_t *seeds;         /* [brokers + 2 * clusters], as unsigned words */
    int64_t *start, *node;        /* [tasks] */
    int64_t *job_end, *decision_ns; /* [jobs] */
} columns_t;

typedef struct {
    int64_t *at;
    int64_t size, room;
} ints_t; /* a list that grows */

/* One envelope. What a, b and c are is said where a kind is sent. */
typedef struct {
    int64_t seq, ack, a, b, c;
    int64_t *body;
    int32_t source, target, kind;
} message_t;

typedef struct {
    int64_t at, number;
    message_t message;
} underway_t;

/* Something in the heap: a tick of a machine, the end of a task, the arrival of a job. */
enum { WAKES, ENDS, ARRIVES };
typedef struct {
    int64_t at, number;
    int32_t kind, whose, what;
} entry_t;

enum { SEND, WAKE_AT, LAUNCH }; /* effects that the shell performs */
typedef struct {
    int64_t kind, what; /* the time of a tick, or the task */
    message_t message;
} command_t;

/* One side of a pair of machines (core.messaging.link). What is unacknowledged is never repeated here, so it is only
 * counted. */
typedef struct {
    int64_t sent, acked, firm, received, resend_at, ack_at;
} link_t;

typedef struct {
    link_t *links;
    const int32_t *peers; /* the machine at the other end of each */
    int64_t count, due;
    int32_t self;
    bool firmed; /* more of what was sent is firm with some peer */
} post_t;

typedef struct {
    int64_t line, shape, first, second, count;
} demand_t; /* a demand line, as it travels and as it was told */

/* A line of a broker (core.broker.queue), and what it last said of its head (core.broker.demand_publisher). */
typedef struct {
    int64_t shape, users, count;
    int32_t *heap; /* waiting jobs, the best on top; each knows its place */
    int64_t size, room;
    int64_t best_first, best_second, best_job; /* best_job NONE: nothing was said */
    bool live, touched;
} line_t;

/* A broker's view of a cluster (core.broker.cluster_view), with what else it keeps by cluster. */
typedef struct {
    int64_t nodes, unreserved, own_first, own_past;
    uint64_t *free, *pending, *usable;
    int64_t roomy[2]; /* usable nodes: outside the reserve, and all */
    bool known, stale;
    int64_t version, round, echo, seen_at, renewed_at, next_claim, wary_until;
    ints_t claims; /* on their way: number, lots, then each lot's tasks: count, then task and node of each */
    int64_t claims_head;
    uint8_t *exhausted; /* by line */
    int64_t exhausted_lines;
    ints_t lots; /* of this step: lease, count, then task and node of each */
    ints_t releases;
    demand_t *told; /* [lines_max] */
    int64_t told_lines;
    int64_t settling; /* ends that its warden may forget */
} view_t;

typedef struct {
    int64_t lease, line, node, score, prior;
    int64_t rival_first, rival_second; /* the best key of another broker that waits for it; NEVER: none */
    int64_t cluster, until;
} offer_t;
enum { OFFER_WORDS = 7 }; /* of it that travel: all but the last two */

typedef struct {
    post_t post;
    view_t *views;
    line_t *lines;    /* [shapes], by number */
    int32_t *numbers; /* [shapes]: the line of each shape, or NONE */
    int32_t *unused;  /* numbers of lines to be used again, the last first */
    int64_t unused_count, line_count;
    int32_t *touched; /* lines touched in this step */
    int64_t touched_count;
    uint64_t seed, steps;
    int64_t now, beat_at, armed, due, settling_due;
    int32_t *settling_order; /* clusters with something to settle, in the order of their coming */
    int64_t settling_count;
    int64_t ended, ended_view; /* ends of this step, not yet handed to settling, and from where */
    offer_t *spare;
    int64_t spare_count, spare_room;
    ints_t expected; /* due, tasks, then task and attempt of each; oldest first */
    int64_t expected_head, expected_count;
    bool busy, force;
} broker_t;

typedef struct {
    int64_t first, second, accepted;
    int32_t left, waiting, line, place;
} job_t;

typedef struct {
    int64_t until, shape;
    int32_t broker, line, node;
    bool live;
} lease_t;

typedef struct {
    int64_t first, second, count, shape;
    int32_t broker, line;
} want_t;

/* A shard at a warden (core.warden.ownership); every broker has one. */
typedef struct {
    int64_t round, until, proposed_at;
    bool known, lapsed;
} tenure_t;

/* What a warden has for one broker. */
typedef struct {
    ints_t offers, ended, started;
    int64_t told, heard;
    bool has_offers, has_ended, has_started;
} client_t;

typedef struct {
    post_t post;
    int64_t nodes, unreserved;
    uint64_t *room;  /* free nodes */
    uint64_t *shown; /* free nodes at this version */
    bool up;
    int64_t version, seen;
    int64_t *changed; /* version of each node's last change, 0: never */
    int32_t *older, *newer; /* the nodes by their last change; `nodes` stands for both ends */
    int32_t *touched;
    int64_t touched_count;
    uint8_t *is_touched;
    lease_t *leases; /* from number lease_base on */
    int64_t lease_base, lease_head, lease_size, lease_room, slots;
    want_t *wants, *spare_wants; /* in the global order; [brokers * lines_max] each */
    int64_t want_count;
    tenure_t *tenures; /* [brokers] */
    client_t *clients; /* [brokers] */
    int32_t *offering, *ending, *starting; /* brokers with something of the kind, in order of its coming */
    int64_t offering_count, ending_count, starting_count;
    int64_t tenure_due, roster_due, leased_at, runner_echo, forget, forget_at;
    bool joined, batch;
    ints_t starts; /* orders of this step */
    ints_t freed;
    int64_t runs, unsettled;
    uint64_t seed, steps, start;
    int64_t beat_at, delta_at, news_at, armed, due, unleased;
} warden_t;

typedef struct {
    post_t post;
    int64_t beat_at, armed, lease_until;
    bool confirmed;
} runner_t;

typedef struct {
    int64_t *at, *whose; /* whose NONE: empty */
    int64_t size, count;
} wakes_t;

enum { CLASSES = 40 };
enum { REJECTS = KINDS, SUBSTITUTIONS, GRANTS, RELEASES, TALLY };

typedef struct league {
    rules_t rules;
    columns_t columns;
    const char *wrong; /* why the run cannot go on, or null */
    broker_t *brokers;
    warden_t *wardens;
    runner_t *runners;
    job_t *jobs;
    int32_t *waiting;    /* [tasks] each job's stack, at its offset */
    int32_t *job_of;     /* [tasks] */
    int32_t *place_of;   /* [tasks] node in its cluster */
    int32_t *attempt_of; /* [tasks] */
    uint8_t *state_of;   /* [tasks] */
    underway_t *lane;    /* a ring */
    int64_t lane_head, lane_size, lane_room;
    entry_t *heap;
    int64_t heap_size, heap_room;
    wakes_t wakes;
    command_t *out;
    int64_t out_size, out_room;
    void *spare_bodies[CLASSES];
    int64_t *scratch;       /* [most nodes of a cluster] */
    int32_t *some_views;    /* [2 * clusters] */
    demand_t *some_lines;   /* [shapes] */
    ints_t over;            /* tasks that end at one moment: runner and task of each */
    ints_t report;          /* a temporary list */
    int32_t *order_of_ends; /* [clusters] */
    uint8_t *is_ending;     /* [clusters] */
    int64_t tally[TALLY];
    int64_t number, begun, running, arrived, ended, moved_at, now;
    void **owned; /* all that was allocated once */
    int64_t owned_count, owned_room;
} league_t;

/* store.c */
bool must(league_t *league, bool holds, const char *otherwise);
void *own(league_t *league, int64_t count, size_t size);
bool grow(league_t *league, void **at, int64_t *room, int64_t needed, size_t size);
bool add(league_t *league, ints_t *list, int64_t value);
bool add_many(league_t *league, ints_t *list, int64_t more);
int64_t *take_body(league_t *league, int64_t words);
void return_body(league_t *league, int64_t *body);
void push_entry(league_t *league, int64_t at, int32_t kind, int32_t whose, int32_t what);
entry_t pop_entry(league_t *league);
void push_message(league_t *league, int64_t at, const message_t *message);
bool wake_later(league_t *league, int32_t whose, int64_t at);
void woken(league_t *league, int32_t whose, int64_t at);
uint64_t mix(uint64_t seed, const uint64_t *values, int count);
int64_t next_bit(const uint64_t *words, int64_t from, int64_t past);
command_t *new_command(league_t *league, int64_t kind);
void free_store(league_t *league);

/* lines.c: the queue of a broker */
void touch(broker_t *broker, int64_t line);
void enqueue(league_t *league, broker_t *broker, int32_t job, const int64_t *tasks, int64_t count);
void rekey(league_t *league, broker_t *broker, int32_t job);
void leave(league_t *league, broker_t *broker, int32_t job);
int32_t head_of(const broker_t *broker, int64_t line);
int32_t take_last(league_t *league, broker_t *broker, int32_t job);

/* demand.c: the demand of a broker, and the ends that it acknowledges */
int64_t heads_of(league_t *league, broker_t *broker, demand_t *heads);
bool any_waiting(const broker_t *broker);
bool outdated(const league_t *league, const broker_t *broker);
void remind(league_t *league, broker_t *broker);
void granted(view_t *view, int64_t line);
void flush(league_t *league, broker_t *broker);
void settling_add(league_t *league, broker_t *broker);
void settling_tick(league_t *league, broker_t *broker);

/* placing.c */
void believe(view_t *view, int64_t node, bool free);
void pend(view_t *view, int64_t node, bool pending);
bool can_claim(const league_t *league, const broker_t *broker, int64_t cluster);
bool has_claims(const view_t *view);
void exhaust(view_t *view, int64_t line);
void refresh(view_t *view, const league_t *league);
void place_line(league_t *league, broker_t *broker, int64_t line);
void place_all(league_t *league, broker_t *broker);
void bind_offers(league_t *league, broker_t *broker, offer_t *offers, int64_t count);
void use_spare(league_t *league, broker_t *broker, int64_t answered);
void expect(league_t *league, broker_t *broker, const int64_t *lot, int64_t count);

/* ledger.c: the room of a cluster, and who gets it */
void release(league_t *league, warden_t *warden, int32_t broker, int64_t number);
void expire(league_t *league, warden_t *warden, int64_t now);
bool place_lot(league_t *league, warden_t *warden, int32_t broker, const int64_t *lot, int64_t *substituted,
               ints_t *refused);
void refuse_lot(league_t *league, const int64_t *lot, ints_t *refused);
void demanded(league_t *league, warden_t *warden, int64_t now, int32_t broker, const int64_t *lines,
              int64_t count);
void serve_freed(league_t *league, warden_t *warden, int64_t now);
bool is_full(const league_t *league, const warden_t *warden);
void give(league_t *league, warden_t *warden, int64_t node);
void touch_node(warden_t *warden, int64_t node);
void publish(warden_t *warden);
int64_t delta_words(const warden_t *warden, int64_t since);
void write_delta(const warden_t *warden, int64_t since, int64_t *words);

/* attempts.c: the attempts of a warden */
void open_session(league_t *league, warden_t *warden, int64_t now, const message_t *message);
void send_updates(league_t *league, warden_t *warden, int64_t now);
void flush_starts(warden_t *warden);
void acked_ends(league_t *league, warden_t *warden, int64_t ends);
void take_report(league_t *league, warden_t *warden, int64_t now, const message_t *message);

/* The machines. */
void broker_handle(league_t *league, broker_t *broker, int64_t now, int event, const message_t *message);
void warden_handle(league_t *league, warden_t *warden, int64_t now, int event, const message_t *message);
void runner_handle(league_t *league, runner_t *runner, int64_t now, int event, const message_t *message);

/* own: a bit of a set of nodes. */
static inline bool has_bit(const uint64_t *words, int64_t at)
{
    return words[at >> 6] >> (at & 63) & 1;
}

/* own: a bit of a set of nodes. */
static inline void set_bit(uint64_t *words, int64_t at, bool on)
{
    uint64_t bit = UINT64_C(1) << (at & 63);
    words[at >> 6] = on ? words[at >> 6] | bit : words[at >> 6] & ~bit;
}

/* own: the words of a set of nodes. */
static inline int64_t words_of(int64_t nodes)
{
    return (nodes + 63) / 64;
}

/* own: the effect WakeAt. */
static inline void wake_at(league_t *league, int64_t at)
{
    command_t *command = new_command(league, WAKE_AT);
    if (command)
        command->what = at;
}

#endif
