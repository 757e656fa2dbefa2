/* A broker's demand at the wardens: the twin of core.broker.demand_publisher and core.broker.end_acks. */
#include "post.h"

#include <stdlib.h>
#include <string.h>

/* own: the order of heads_of. */
static int by_rank(const void *one, const void *other)
{
    const demand_t *a = one, *b = other;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* mirrors core/broker/queue.py BrokerQueue.heads
 * mirrors core/broker/queue.py BrokerQueue._find_heads
 * Fill `heads` as demand lines; return how many there are. */
int64_t heads_of(league_t *league, broker_t *broker, demand_t *heads)
{
    int64_t count = 0, lines = broker->line_count + broker->unused_count;
    for (int64_t number = 0; number < lines; number++) {
        const line_t *line = broker->lines + number;
        if (!line->live || !line->size)
            continue;
        const job_t *best = league->jobs + line->heap[0];
        heads[count++] = (demand_t){number, line->shape, best->first, best->second, line->count};
    }
    if (count > 1)
        qsort(heads, (size_t)count, sizeof *heads, by_rank);
    return count;
}

/* mirrors core/broker/queue.py BrokerQueue.has_waiting */
bool any_waiting(const broker_t *broker)
{
    for (int64_t number = 0; number < broker->line_count + broker->unused_count; number++)
        if (broker->lines[number].live && broker->lines[number].count)
            return true;
    return false;
}

/* mirrors core/broker/demand_publisher.py DemandPublisher.is_outdated
 * Whether some warden was told of work that waits. */
bool outdated(const league_t *league, const broker_t *broker)
{
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
        if (broker->views[cluster].told_lines)
            return true;
    return false;
}

/* mirrors core/broker/demand_publisher.py DemandPublisher.on_grant
 * A grant lowers the warden's count, so what it was told is one less now. */
void granted(view_t *view, int64_t line)
{
    for (int64_t each = 0; each < view->told_lines; each++)
        if (view->told[each].line == line)
            view->told[each].count--;
}

/* mirrors core/broker/demand_publisher.py DemandPublisher.has_improved
 * Whether a line has appeared, emptied or got a better job at its head; nothing is touched afterwards. */
static bool improved(league_t *league, broker_t *broker)
{
    bool better = broker->force;
    for (int64_t each = 0; each < broker->touched_count; each++) {
        line_t *line = broker->lines + broker->touched[each];
        line->touched = false;
        if (!line->live || !line->size) {
            better = better || line->best_job != NONE;
            line->best_job = NONE;
            continue;
        }
        int64_t job = line->heap[0], first = league->jobs[job].first, second = league->jobs[job].second;
        bool smaller =
            first < line->best_first || (first == line->best_first && second < line->best_second);
        better = better || line->best_job == NONE || (smaller && job != line->best_job);
        line->best_first = first;
        line->best_second = second;
        line->best_job = job;
    }
    broker->touched_count = 0;
    return better;
}

/* own: a comparison of send_demand and send_claims. */
static bool same_demand(const view_t *view, const demand_t *lines, int64_t count)
{
    return view->told_lines == count && !memcmp(view->told, lines, (size_t)count * sizeof *lines);
}

/* own: the copy that send_demand and send_claims keep. */
static void tell_demand(view_t *view, const demand_t *lines, int64_t count)
{
    memcpy(view->told, lines, (size_t)count * sizeof *lines);
    view->told_lines = count;
}

/* mirrors core/broker/demand_publisher.py DemandPublisher._send_demand
 * mirrors core/broker/demand_publisher.py DemandPublisher.demand_for
 * mirrors core/broker/demand_publisher.py DemandPublisher.waiting_lines
 * A demand has a = lines, and as body the lines. */
static void send_demand(league_t *league, broker_t *broker, int64_t cluster, const demand_t *lines,
                        int64_t count, bool force)
{
    view_t *view = broker->views + cluster;
    if (crowded(league, &broker->post, cluster)) {
        view->stale = true;
        return;
    }
    if (!force && same_demand(view, lines, count))
        return;
    tell_demand(view, lines, count);
    view->stale = false;
    message_t *message = post_send(league, &broker->post, broker->now, cluster, DEMAND);
    if (!message)
        return;
    message->a = count;
    int64_t *body = message->body = take_body(league, 5 * count);
    if (body)
        memcpy(body, lines, (size_t)count * sizeof *lines);
}

/* mirrors core/broker/demand_publisher.py DemandPublisher.repeat_stale
 * With every beat: repeat the demand where the warden's idea of it is out of date. */
void remind(league_t *league, broker_t *broker)
{
    demand_t *heads = league->some_lines;
    int64_t count = heads_of(league, broker, heads);
    if (!count)
        for (int64_t number = 0; number < league->rules.shapes; number++)
            broker->lines[number].best_job = NONE;
    if (count > league->rules.lines_max)
        count = league->rules.lines_max;
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
        send_demand(league, broker, cluster, heads, count, broker->views[cluster].stale);
}

/* mirrors core/broker/end_acks.py EndAcks.take
 * How many ends a claim to this cluster carries. */
static int64_t settling_take(league_t *league, broker_t *broker, int64_t cluster)
{
    view_t *view = broker->views + cluster;
    int64_t waiting = view->settling, most = league->rules.settle_max, place = 0;
    if (!waiting)
        return 0;
    while (broker->settling_order[place] != cluster)
        place++;
    broker->settling_count--;
    memmove(broker->settling_order + place, broker->settling_order + place + 1,
            (size_t)(broker->settling_count - place) * sizeof *broker->settling_order);
    view->settling = 0;
    if (waiting > most) {
        view->settling = waiting - most;
        broker->settling_order[broker->settling_count++] = (int32_t)cluster;
        return most;
    }
    if (!broker->settling_count)
        broker->settling_due = NEVER;
    return waiting;
}

/* own: a claim has a = number, b = echo, c = round (0 when it has no batches), and as body: batches, releases,
 * demand lines or NONE, ends to forget; then the batches, the releases and the lines. */
static void send_claim(league_t *league, broker_t *broker, int64_t cluster, const int64_t *lots,
                       int64_t words, int64_t count, bool last, const demand_t *lines, int64_t demand)
{
    view_t *view = broker->views + cluster;
    int64_t number = view->next_claim++, releases = last ? view->releases.size : 0;
    int64_t told = last ? demand : NONE, settled = settling_take(league, broker, cluster);
    message_t *message = post_send(league, &broker->post, broker->now, cluster, CLAIM);
    if (!message)
        return;
    int64_t *body = take_body(league, 4 + words + releases + (told > 0 ? 5 * told : 0));
    message->a = number;
    message->b = view->echo;
    message->c = count ? view->round : 0;
    message->body = body;
    if (!body)
        return;
    body[0] = count;
    body[1] = releases;
    body[2] = told;
    body[3] = settled;
    if (words)
        memcpy(body + 4, lots, (size_t)words * sizeof *lots);
    if (releases)
        memcpy(body + 4 + words, view->releases.at, (size_t)releases * sizeof *lots);
    if (told > 0)
        memcpy(body + 4 + words + releases, lines, (size_t)told * sizeof *lines);
    league->tally[RELEASES] += releases;
}

/* mirrors core/broker/cluster_view.py ClusterView.propose
 * The fast batches of a claim are in transit; bindings are answered only when they fail. */
static void propose(league_t *league, view_t *view, const int64_t *lots, int64_t count)
{
    ints_t *claims = &view->claims;
    int64_t fast = 0, place;
    if (view->claims_head > 64 && 2 * view->claims_head > claims->size) {
        claims->size -= view->claims_head;
        memmove(claims->at, claims->at + view->claims_head, (size_t)claims->size * sizeof *claims->at);
        view->claims_head = 0;
    }
    place = claims->size;
    if (!add(league, claims, view->next_claim) || !add(league, claims, 0))
        return;
    for (int64_t each = 0; each < count; each++, lots += 2 + 2 * lots[1]) {
        if (lots[0])
            continue;
        fast++;
        if (!add_many(league, claims, 1 + 2 * lots[1]))
            return;
        memcpy(claims->at + claims->size, lots + 1, (size_t)(1 + 2 * lots[1]) * sizeof *lots);
        claims->size += 1 + 2 * lots[1];
    }
    if (fast)
        claims->at[place + 1] = fast;
    else
        claims->size = place;
}

/* mirrors core/broker/demand_publisher.py DemandPublisher._send_claims */
static void send_claims(league_t *league, broker_t *broker, int64_t cluster, const demand_t *lines,
                        int64_t demand)
{
    view_t *view = broker->views + cluster;
    if (same_demand(view, lines, demand) || (demand && view->stale))
        demand = NONE;
    else
        tell_demand(view, lines, demand);
    int64_t at = 0;
    do {
        int64_t first = at, count = 0, size = 0;
        const int64_t *lots = view->lots.at + first;
        while (at < view->lots.size) {
            int64_t tasks = view->lots.at[at + 1];
            if (size && size + tasks > league->rules.claim_tasks_max)
                break;
            size += tasks;
            count++;
            at += 2 + 2 * tasks;
        }
        propose(league, view, lots, count);
        send_claim(league, broker, cluster, lots, at - first, count, at == view->lots.size, lines, demand);
    } while (at < view->lots.size && !league->wrong);
    view->lots.size = view->releases.size = 0;
}

/* mirrors core/broker/placement.py BrokerPlacement.flush
 * mirrors core/broker/demand_publisher.py DemandPublisher.send */
void flush(league_t *league, broker_t *broker)
{
    bool changed = improved(league, broker), said = false;
    for (int64_t cluster = 0; cluster < league->rules.clusters && !said; cluster++)
        said = broker->views[cluster].lots.size || broker->views[cluster].releases.size;
    if (!changed && !said)
        return;
    demand_t *heads = league->some_lines;
    int64_t count = heads_of(league, broker, heads);
    if (count > league->rules.lines_max)
        count = league->rules.lines_max;
    for (int64_t cluster = 0; cluster < league->rules.clusters && !league->wrong; cluster++) {
        const view_t *view = broker->views + cluster;
        if (view->lots.size || view->releases.size)
            send_claims(league, broker, cluster, heads, count);
        else if (changed)
            send_demand(league, broker, cluster, heads, count, broker->force);
    }
}

/* --- ends that wardens may forget ----------------------------------------------------------------------- */

/* mirrors core/broker/end_acks.py EndAcks.add
 * Add the ends of this step. */
void settling_add(league_t *league, broker_t *broker)
{
    view_t *view = broker->views + broker->ended_view;
    if (!view->settling)
        broker->settling_order[broker->settling_count++] = (int32_t)broker->ended_view;
    view->settling += broker->ended;
    broker->ended = 0;
    if (broker->now + league->rules.settle_linger < broker->settling_due)
        broker->settling_due = broker->now + league->rules.settle_linger;
}

/* mirrors core/broker/end_acks.py EndAcks.tick
 * A settle has a = ends. */
void settling_tick(league_t *league, broker_t *broker)
{
    int64_t count = broker->settling_count, most = league->rules.settle_max;
    broker->settling_due = NEVER;
    broker->settling_count = 0;
    for (int64_t each = 0; each < count; each++) {
        int32_t cluster = broker->settling_order[each];
        view_t *view = broker->views + cluster;
        if (crowded(league, &broker->post, cluster)) {
            broker->settling_order[broker->settling_count++] = cluster;
            broker->settling_due = broker->now + league->rules.settle_linger;
            continue;
        }
        for (; view->settling > 0; view->settling -= most) {
            message_t *message = post_send(league, &broker->post, broker->now, cluster, SETTLE);
            if (!message)
                return;
            message->a = view->settling < most ? view->settling : most;
        }
        view->settling = 0;
    }
}
