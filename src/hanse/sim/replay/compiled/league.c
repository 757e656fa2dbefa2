/* Virtual time of the compiled league, and its exported functions: the twin of LeanShell in hanse_policy.py.
 *
 * C99, no Python.h: loaded by ctypes. All state is in one league, so several may be played in one process,
 * each by one thread at a time. */
#define _POSIX_C_SOURCE 199309L
#include "plain.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef HANSE_SOURCE_CRC
#define HANSE_SOURCE_CRC 0u
#endif

#if defined(__GNUC__)
#define DOOR __attribute__((visibility("default")))
#else
#define DOOR
#endif

/* Addresses travel as 64-bit integers, and bodies keep them in 64-bit words. */
typedef char addresses_have_64_bits[sizeof(void *) == 8 ? 1 : -1];

enum { BEGUN, RUNNING_NOW, ARRIVED, ENDED_JOBS, MOVED_AT, NOW, MESSAGES, HEARTBEATS };

/* --- making --------------------------------------------------------------------------------------------- */

/* own: the links of a machine. */
static void make_post(league_t *league, post_t *post, int32_t self, const int32_t *peers, int64_t count)
{
    post->self = self;
    post->peers = peers;
    post->count = count;
    post->due = NEVER;
    post->links = own(league, count, sizeof *post->links);
    for (int64_t each = 0; post->links && each < count; each++)
        post->links[each].resend_at = post->links[each].ack_at = NEVER;
}

/* own: the views of a broker. */
static void make_view(league_t *league, view_t *view, int64_t broker, int64_t cluster)
{
    const columns_t *columns = &league->columns;
    int64_t nodes = columns->first_node[cluster + 1] - columns->first_node[cluster];
    int64_t brokers = league->rules.brokers;
    view->nodes = nodes;
    view->unreserved = nodes - columns->reserve[cluster];
    view->own_first = nodes * broker / brokers;
    view->own_past = nodes * (broker + 1) / brokers;
    view->next_claim = 1;
    view->free = own(league, words_of(nodes), sizeof *view->free);
    view->pending = own(league, words_of(nodes), sizeof *view->pending);
    view->usable = own(league, words_of(nodes), sizeof *view->usable);
    view->exhausted = own(league, league->rules.shapes, 1);
    view->told = own(league, league->rules.lines_max, sizeof *view->told);
}

/* own: a broker before it boots. */
static void make_broker(league_t *league, int32_t index, const int32_t *peers)
{
    const rules_t *rules = &league->rules;
    broker_t *broker = league->brokers + index;
    broker->seed = (uint64_t)league->columns.seeds[index];
    broker->beat_at = broker->armed = broker->settling_due = NEVER;
    make_post(league, &broker->post, index, peers, rules->clusters);
    broker->views = own(league, rules->clusters, sizeof *broker->views);
    broker->lines = own(league, rules->shapes, sizeof *broker->lines);
    broker->numbers = own(league, rules->shapes, sizeof *broker->numbers);
    broker->unused = own(league, rules->shapes, sizeof *broker->unused);
    broker->touched = own(league, rules->shapes, sizeof *broker->touched);
    broker->settling_order = own(league, rules->clusters, sizeof *broker->settling_order);
    if (league->wrong)
        return;
    for (int64_t shape = 0; shape < rules->shapes; shape++) {
        broker->numbers[shape] = NONE;
        broker->lines[shape].best_job = NONE;
    }
    for (int64_t cluster = 0; cluster < rules->clusters; cluster++)
        make_view(league, broker->views + cluster, index, cluster);
}

/* own: a warden before it boots. */
static void make_warden(league_t *league, int32_t index, const int32_t *peers)
{
    const rules_t *rules = &league->rules;
    const columns_t *columns = &league->columns;
    warden_t *warden = league->wardens + index;
    int64_t nodes = columns->first_node[index + 1] - columns->first_node[index];
    warden->nodes = nodes;
    warden->unreserved = nodes - columns->reserve[index];
    warden->version = warden->lease_base = 1;
    warden->seed = (uint64_t)columns->seeds[rules->brokers + index];
    warden->beat_at = warden->delta_at = warden->news_at = warden->forget_at = NEVER;
    warden->armed = warden->tenure_due = warden->roster_due = NEVER;
    warden->unleased = NONE;
    make_post(league, &warden->post, (int32_t)rules->brokers + index, peers, rules->brokers + 1);
    warden->room = own(league, words_of(nodes), sizeof *warden->room);
    warden->shown = own(league, words_of(nodes), sizeof *warden->shown);
    warden->changed = own(league, nodes, sizeof *warden->changed);
    warden->older = own(league, nodes + 1, sizeof *warden->older);
    warden->newer = own(league, nodes + 1, sizeof *warden->newer);
    warden->touched = own(league, nodes, sizeof *warden->touched);
    warden->is_touched = own(league, nodes, 1);
    warden->wants = own(league, rules->brokers * rules->lines_max, sizeof *warden->wants);
    warden->spare_wants = own(league, rules->brokers * rules->lines_max, sizeof *warden->wants);
    warden->tenures = own(league, rules->brokers, sizeof *warden->tenures);
    warden->clients = own(league, rules->brokers, sizeof *warden->clients);
    warden->offering = own(league, rules->brokers, sizeof *warden->offering);
    warden->ending = own(league, rules->brokers, sizeof *warden->ending);
    warden->starting = own(league, rules->brokers, sizeof *warden->starting);
    if (league->wrong)
        return;
    for (int64_t node = 0; node < nodes; node++)
        set_bit(warden->room, node, true);
    for (int64_t broker = 0; broker < rules->brokers; broker++)
        warden->tenures[broker].lapsed = true;
    warden->older[nodes] = warden->newer[nodes] = (int32_t)nodes;
}

/* own: the other ends of all links: brokers know all wardens, wardens all brokers and their runner. */
static void make_machines(league_t *league)
{
    int32_t brokers = (int32_t)league->rules.brokers, clusters = (int32_t)league->rules.clusters;
    int32_t *wardens = own(league, clusters, sizeof *wardens);
    for (int32_t cluster = 0; wardens && cluster < clusters; cluster++)
        wardens[cluster] = brokers + cluster;
    for (int32_t broker = 0; broker < brokers && !league->wrong; broker++)
        make_broker(league, broker, wardens);
    for (int32_t cluster = 0; cluster < clusters && !league->wrong; cluster++) {
        int32_t *peers = own(league, brokers + 1, sizeof *peers);
        for (int32_t each = 0; peers && each <= brokers; each++)
            peers[each] = each < brokers ? each : brokers + clusters + cluster;
        if (!league->wrong)
            make_warden(league, cluster, peers);
        runner_t *runner = league->runners + cluster;
        runner->beat_at = runner->armed = NEVER;
        if (!league->wrong)
            make_post(league, &runner->post, brokers + clusters + cluster, wardens + cluster, 1);
    }
}

/* own: memory of the league. */
static void make_tables(league_t *league)
{
    const rules_t *rules = &league->rules;
    const columns_t *columns = &league->columns;
    int64_t most = 0;
    for (int64_t cluster = 0; cluster < rules->clusters; cluster++) {
        int64_t nodes = columns->first_node[cluster + 1] - columns->first_node[cluster];
        most = nodes > most ? nodes : most;
    }
    league->brokers = own(league, rules->brokers, sizeof *league->brokers);
    league->wardens = own(league, rules->clusters, sizeof *league->wardens);
    league->runners = own(league, rules->clusters, sizeof *league->runners);
    league->jobs = own(league, rules->jobs, sizeof *league->jobs);
    league->waiting = own(league, rules->tasks, sizeof *league->waiting);
    league->job_of = own(league, rules->tasks, sizeof *league->job_of);
    league->place_of = own(league, rules->tasks, sizeof *league->place_of);
    league->attempt_of = own(league, rules->tasks, sizeof *league->attempt_of);
    league->state_of = own(league, rules->tasks, 1);
    league->scratch = own(league, most, sizeof *league->scratch);
    league->some_views = own(league, 2 * rules->clusters, sizeof *league->some_views);
    league->some_lines = own(league, rules->shapes, sizeof *league->some_lines);
    league->order_of_ends = own(league, rules->clusters, sizeof *league->order_of_ends);
    league->is_ending = own(league, rules->clusters, 1);
    if (league->wrong)
        return;
    for (int32_t job = 0; job < rules->jobs; job++)
        for (int64_t task = columns->offset[job]; task < columns->offset[job + 1]; task++)
            league->job_of[task] = job;
}

/* --- playing -------------------------------------------------------------------------------------------- */

static void perform(league_t *league, int64_t now, int32_t whose, int64_t from);

/* mirrors sim/replay/hanse_policy.py LeanShell._launch */
static void launch(league_t *league, int64_t now, int32_t whose, int64_t task)
{
    const columns_t *columns = &league->columns;
    int32_t cluster = whose - (int32_t)(league->rules.brokers + league->rules.clusters);
    if (!must(league, columns->start[task] < 0, "a task starts twice"))
        return;
    columns->start[task] = now - league->rules.lead;
    columns->node[task] = columns->first_node[cluster] + league->place_of[task];
    league->begun++;
    league->running++;
    league->moved_at = now;
    push_entry(league, now + columns->duration[task], ENDS, cluster, (int32_t)task);
    if (!league->rules.starts)
        return;
    int64_t from = league->out_size;
    league->report.size = 0;
    if (add(league, &league->report, task)) {
        runner_handle(league, league->runners + cluster, now, STARTED, NULL);
        perform(league, now, whose, from);
    }
}

/* mirrors sim/replay/hanse_policy.py LeanShell._perform
 * mirrors sim/replay/league_setup.py MessageCounts.count
 * Do what a machine asks for, in order: the effects from `from` on. */
static void perform(league_t *league, int64_t now, int32_t whose, int64_t from)
{
    int64_t past = league->out_size;
    for (int64_t at = from; at < past && !league->wrong; at++) {
        command_t command = league->out[at]; /* a copy: what is asked for may grow the list */
        if (command.kind == SEND) {
            league->tally[command.message.kind]++;
            league->out[at].message.body = NULL; /* the lane's from now on */
            push_message(league, now + league->rules.delay, &command.message);
        } else if (command.kind == LAUNCH) {
            launch(league, now, whose, command.what);
        } else {
            int64_t when = command.what > now ? command.what : now;
            if (when < NEVER && wake_later(league, whose, when))
                push_entry(league, when, WAKES, whose, 0);
        }
    }
    if (!league->wrong)
        league->out_size = from;
}

/* own: let a machine take an event, and do what it asks for. */
static void handle(league_t *league, int64_t now, int32_t whose, int event, const message_t *message)
{
    int32_t brokers = (int32_t)league->rules.brokers, clusters = (int32_t)league->rules.clusters;
    int64_t from = league->out_size;
    if (whose < brokers)
        broker_handle(league, league->brokers + whose, now, event, message);
    else if (whose < brokers + clusters)
        warden_handle(league, league->wardens + (whose - brokers), now, event, message);
    else
        runner_handle(league, league->runners + (whose - brokers - clusters), now, event, message);
    perform(league, now, whose, from);
}

/* mirrors sim/replay/hanse_policy.py LeanShell._on_task_ends
 * All tasks that end now, one report per runner, in the order of their first ends. */
static void tasks_end(league_t *league, int64_t now, entry_t first)
{
    ints_t *over = &league->over;
    int64_t runners = 0;
    over->size = 0;
    for (;;) {
        if (!league->is_ending[first.whose]) {
            league->is_ending[first.whose] = 1;
            league->order_of_ends[runners++] = first.whose;
        }
        if (!add(league, over, first.whose) || !add(league, over, first.what))
            return;
        if (league->heap[0].at != now || league->heap[0].kind != ENDS)
            break;
        first = pop_entry(league);
    }
    league->moved_at = now;
    for (int64_t each = 0; each < runners && !league->wrong; each++) {
        int32_t cluster = league->order_of_ends[each];
        league->is_ending[cluster] = 0;
        league->report.size = 0;
        for (int64_t at = 0; at < over->size; at += 2)
            if (over->at[at] == cluster)
                add(league, &league->report, over->at[at + 1]);
        league->running -= league->report.size;
        handle(league, now, (int32_t)(league->rules.brokers + league->rules.clusters) + cluster, ENDED, NULL);
    }
}

/* mirrors sim/replay/hanse_policy.py LeanShell._schedule_arrival */
static void next_arrival(league_t *league)
{
    if (league->arrived < league->rules.jobs)
        push_entry(league, league->columns.arrival[league->arrived] + league->rules.lead, ARRIVES, 0,
                   (int32_t)league->arrived);
}

/* own: a clock. */
static int64_t nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* mirrors sim/replay/hanse_policy.py LeanShell._on_arrival
 * Brokers take turns. Messages are counted from the first job on. */
static void arrive(league_t *league, int64_t now, int32_t job)
{
    if (!job)
        memset(league->tally, 0, sizeof league->tally);
    league->arrived = job + 1;
    league->moved_at = now;
    next_arrival(league);
    int32_t whose = (int32_t)(job % league->rules.brokers);
    message_t submitted = {.a = job};
    int64_t from = league->out_size, began = nanoseconds();
    broker_handle(league, league->brokers + whose, now, SUBMITTED, &submitted);
    league->columns.decision_ns[job] = nanoseconds() - began;
    perform(league, now, whose, from);
}

/* own: a part of hanse_plain_play. */
static void play_message(league_t *league)
{
    underway_t first = league->lane[league->lane_head];
    league->lane_head = (league->lane_head + 1) & (league->lane_room - 1);
    league->lane_size--;
    league->now = first.at;
    handle(league, first.at, first.message.target, RECEIVED, &first.message);
    return_body(league, first.message.body);
}

/* own: a part of hanse_plain_play. */
static void play_entry(league_t *league)
{
    entry_t entry = pop_entry(league);
    league->now = entry.at;
    if (entry.kind == WAKES) {
        woken(league, entry.whose, entry.at);
        handle(league, entry.at, entry.whose, TICK, NULL);
    } else if (entry.kind == ENDS) {
        tasks_end(league, entry.at, entry);
    } else {
        arrive(league, entry.at, entry.what);
    }
}

/* --- exported functions --------------------------------------------------------------------------------- */

DOOR uint32_t hanse_source_crc(void);
DOOR league_t *hanse_plain_make(const rules_t *rules, const columns_t *columns);
DOOR int64_t hanse_plain_play(league_t *league, int64_t events);
DOOR void hanse_plain_read(const league_t *league, int64_t *figures);
DOOR const char *hanse_plain_wrong(const league_t *league);
DOOR void hanse_plain_free(league_t *league);

/* own: which sources this was built from. */
uint32_t hanse_source_crc(void)
{
    return HANSE_SOURCE_CRC;
}

/* mirrors sim/replay/hanse_policy.py LeanShell.__init__
 * A league with all machines booted and the first job on its way; null when memory is out. What is wrong with it
 * says hanse_plain_wrong. */
league_t *hanse_plain_make(const rules_t *rules, const columns_t *columns)
{
    league_t *league = calloc(1, sizeof *league);
    if (!league)
        return NULL;
    league->rules = *rules;
    league->columns = *columns;
    make_tables(league);
    if (!league->wrong)
        make_machines(league);
    int32_t machines = (int32_t)(rules->brokers + 2 * rules->clusters);
    for (int32_t whose = 0; whose < machines && !league->wrong; whose++)
        handle(league, 0, whose, BOOTED, NULL);
    if (!league->wrong)
        next_arrival(league);
    return league;
}

/* mirrors sim/replay/hanse_policy.py LeanShell._play
 * Let so many events happen, or as many as it takes to end the last job; 0, or -1 if something is wrong. */
int64_t hanse_plain_play(league_t *league, int64_t events)
{
    for (; events > 0 && !league->wrong; events--) {
        const underway_t *first = league->lane + league->lane_head;
        const entry_t *top = league->heap; /* beats never end, so it is never empty */
        bool message = league->lane_size
                       && (first->at < top->at || (first->at == top->at && first->number < top->number));
        if (message)
            play_message(league);
        else
            play_entry(league);
        if (message && league->ended == league->rules.jobs)
            break;
    }
    return league->wrong ? -1 : 0;
}

/* own: in the order of the enum above; the last five are the tally from rejects to releases. */
void hanse_plain_read(const league_t *league, int64_t *figures)
{
    figures[BEGUN] = league->begun;
    figures[RUNNING_NOW] = league->running;
    figures[ARRIVED] = league->arrived;
    figures[ENDED_JOBS] = league->ended;
    figures[MOVED_AT] = league->moved_at;
    figures[NOW] = league->now;
    figures[MESSAGES] = figures[HEARTBEATS] = 0;
    for (int kind = 0; kind < KINDS; kind++)
        figures[kind < PERIODIC ? HEARTBEATS : MESSAGES] += league->tally[kind];
    for (int which = REJECTS; which <= RELEASES; which++)
        figures[HEARTBEATS + 1 + which - REJECTS] = league->tally[which];
}

/* own: the reason why a run failed. */
const char *hanse_plain_wrong(const league_t *league)
{
    return league->wrong ? league->wrong : "";
}

/* own: memory. */
static void free_lists(league_t *league)
{
    for (int64_t each = 0; league->brokers && each < league->rules.brokers; each++) {
        broker_t *broker = league->brokers + each;
        for (int64_t line = 0; broker->lines && line < league->rules.shapes; line++)
            free(broker->lines[line].heap);
        for (int64_t cluster = 0; broker->views && cluster < league->rules.clusters; cluster++) {
            free(broker->views[cluster].claims.at);
            free(broker->views[cluster].lots.at);
            free(broker->views[cluster].releases.at);
        }
        free(broker->spare);
        free(broker->expected.at);
    }
    for (int64_t each = 0; league->wardens && each < league->rules.clusters; each++) {
        warden_t *warden = league->wardens + each;
        for (int64_t broker = 0; warden->clients && broker < league->rules.brokers; broker++) {
            free(warden->clients[broker].offers.at);
            free(warden->clients[broker].ended.at);
            free(warden->clients[broker].started.at);
        }
        free(warden->leases);
        free(warden->starts.at);
        free(warden->freed.at);
    }
}

/* own: memory. */
void hanse_plain_free(league_t *league)
{
    if (!league)
        return;
    free_lists(league);
    free_store(league);
    free(league);
}
