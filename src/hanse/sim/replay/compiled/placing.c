/* How a broker finds room for what waits: the twin of core.broker.cluster_view and core.broker.placement. */
#include "post.h"

#include <stdlib.h>
#include <string.h>

/* --- a broker's view of a cluster ----------------------------------------------------------------------- */

/* mirrors core/broker/cluster_view.py ClusterView._refresh
 * Usable is what was confirmed and is not pending. */
static void reckon(view_t *view, int64_t node)
{
    bool usable = has_bit(view->free, node) && !has_bit(view->pending, node);
    if (usable == has_bit(view->usable, node))
        return;
    set_bit(view->usable, node, usable);
    view->roomy[1] += usable ? 1 : -1;
    if (node < view->unreserved)
        view->roomy[0] += usable ? 1 : -1;
}

/* mirrors core/broker/cluster_view.py ClusterView._confirm */
void believe(view_t *view, int64_t node, bool free)
{
    set_bit(view->free, node, free);
    reckon(view, node);
}

/* mirrors core/broker/cluster_view.py ClusterView._debit
 * mirrors core/broker/cluster_view.py ClusterView._add_all
 * A claim on a node is on its way, or no longer. */
void pend(view_t *view, int64_t node, bool pending)
{
    set_bit(view->pending, node, pending);
    reckon(view, node);
}

/* own: ClusterView.state.claims has one. */
bool has_claims(const view_t *view)
{
    return view->claims_head < view->claims.size;
}

/* own: an entry of ClusterView.state.exhausted, which has all lines here. */
void exhaust(view_t *view, int64_t line)
{
    view->exhausted_lines += !view->exhausted[line];
    view->exhausted[line] = 1;
}

/* own: there is news: whatever was not found or given before may be there now. */
void refresh(view_t *view, const league_t *league)
{
    if (view->exhausted_lines)
        memset(view->exhausted, 0, (size_t)league->rules.shapes);
    view->exhausted_lines = 0;
}

/* --- the fast path -------------------------------------------------------------------------------------- */

/* mirrors core/broker/placement.py BrokerPlacement.can_claim */
bool can_claim(const league_t *league, const broker_t *broker, int64_t cluster)
{
    const view_t *view = broker->views + cluster;
    return view->round > 0 && view->known && !crowded(league, &broker->post, cluster);
}

/* mirrors policy/kernels/numpy_kernels.py pick
 * mirrors policy/kernels/numpy_kernels.py _candidates
 * Mode FIRST: usable nodes of [first, past) in circular order from `start`, pending from now on. */
static int64_t pick(view_t *view, int64_t first, int64_t past, int64_t start, int64_t count, int64_t *nodes)
{
    int64_t found = 0, ranges[2][2] = {{start > first ? start : first, past},
                                       {first, start < past ? start : past}};
    for (int part = 0; part < 2; part++) {
        int64_t node = ranges[part][0] - 1;
        while (found < count && (node = next_bit(view->usable, node + 1, ranges[part][1])) != NONE) {
            pend(view, node, true);
            nodes[found++] = node;
        }
    }
    return found;
}

/* mirrors core/broker/placement.py BrokerPlacement._claim
 * mirrors core/broker/placement.py BrokerPlacement.add_batch
 * mirrors core/broker/cluster_view.py ClusterView.reserve
 * The next tasks of a job go to these nodes. */
static void claim(league_t *league, broker_t *broker, view_t *view, int32_t job, const int64_t *nodes,
                  int64_t count)
{
    int64_t most = league->rules.lot_tasks_max;
    for (int64_t at = 0; at < count; at += most) {
        int64_t size = count - at < most ? count - at : most;
        ints_t *lots = &view->lots;
        if (!add_many(league, lots, 2 + 2 * size))
            return;
        lots->at[lots->size++] = 0;
        lots->at[lots->size++] = size;
        for (int64_t each = at; each < at + size; each++) {
            int32_t task = take_last(league, broker, job);
            league->state_of[task] = CLAIMED;
            league->attempt_of[task]++;
            lots->at[lots->size++] = task;
            lots->at[lots->size++] = nodes[each];
        }
    }
}

/* own: the start in place_in. */
static int64_t where_to_begin(const broker_t *broker, int64_t cluster, const view_t *view)
{
    uint64_t values[2] = {broker->steps, (uint64_t)cluster};
    return (int64_t)(mix(broker->seed, values, 2) % (uint64_t)(view->nodes > 1 ? view->nodes : 1));
}

/* own: how much of the room that is left of a cluster is looked at. */
static int64_t seen(const view_t *view, bool latency, int64_t most)
{
    return view->roomy[latency] < most ? view->roomy[latency] : most;
}

/* mirrors core/broker/placement.py BrokerPlacement._place_own
 * mirrors core/broker/placement.py BrokerPlacement._place_in
 * With `all`, all of the cluster may be used. Return how many of at most so many tasks got room. */
static int64_t place_in(league_t *league, broker_t *broker, int64_t cluster, int32_t job, bool latency,
                        bool all, int64_t most)
{
    view_t *view = broker->views + cluster;
    if (!view->roomy[latency])
        return 0;
    int64_t past = latency ? view->nodes : view->unreserved, start = where_to_begin(broker, cluster, view);
    int64_t own_past = view->own_past < past ? view->own_past : past;
    int64_t count = league->jobs[job].waiting, *nodes = league->scratch;
    if (count > most)
        count = most;
    int64_t found = pick(view, view->own_first, own_past, start, count, nodes);
    if (all && found < count)
        found += pick(view, 0, past, start, count - found, nodes + found);
    if (found)
        claim(league, broker, view, job, nodes, found);
    return found;
}

/* mirrors core/broker/placement.py BrokerPlacement._place_group
 * mirrors core/broker/view_ranking.py rank_views
 * Claim for as many waiting tasks of a job as there is room; true if that was all. */
static bool place_job(league_t *league, broker_t *broker, int64_t line, int32_t job, const int32_t *views,
                      int64_t count)
{
    bool latency = league->columns.latency[broker->lines[line].shape];
    const job_t *record = league->jobs + job;
    int64_t placed = 0, turn = 0, room = 0, enough = 0;
    if (count > 1) {
        int64_t brokers = league->rules.brokers;
        uint64_t id = (uint64_t)(job % brokers + 1) << 32 | (uint64_t)(job / brokers);
        uint64_t values[2] = {broker->steps, id};
        turn = (int64_t)(mix(broker->seed, values, 2) % (uint64_t)count);
        for (int64_t each = 0; each < count && record->waiting; each++)
            placed += place_in(league, broker, views[(turn + each) % count], job, latency, false, NEVER);
        bool wary = false;
        for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
            wary = wary || broker->now < broker->views[cluster].wary_until;
        enough = (wary ? league->rules.borrow_room : 1) * record->waiting;
        for (int64_t each = 0; each < count; each++)
            room += seen(broker->views + views[each], latency, enough);
        if (room < enough) {
            for (int64_t each = 0; each < count; each++)
                exhaust(broker->views + views[each], line);
            count = 0;
        }
    }
    int64_t most = record->waiting;
    for (int64_t each = 0; each < count && record->waiting; each++) {
        int32_t cluster = views[(turn + each) % count];
        int64_t part = room ? (most * seen(broker->views + cluster, latency, enough) + room - 1) / room : most;
        int64_t got = place_in(league, broker, cluster, job, latency, true, part);
        if (!got)
            exhaust(broker->views + cluster, line);
        placed += got;
    }
    if (placed)
        touch(broker, line);
    return !record->waiting;
}

/* own: the clusters that would take a claim; `views` has room for all. */
static int64_t open_views(const league_t *league, const broker_t *broker, int32_t *views)
{
    int64_t count = 0;
    for (int32_t cluster = 0; cluster < league->rules.clusters; cluster++)
        if (can_claim(league, broker, cluster))
            views[count++] = cluster;
    return count;
}

/* mirrors core/broker/placement.py BrokerPlacement._place_from
 * The `open` clusters stand at the beginning of some_views. */
static void place_from(league_t *league, broker_t *broker, int64_t line, int64_t open)
{
    int32_t *views = league->some_views + league->rules.clusters, job;
    while (!league->wrong && (job = head_of(broker, line)) != NONE) {
        int64_t count = 0;
        for (int64_t each = 0; each < open; each++)
            if (!broker->views[league->some_views[each]].exhausted[line])
                views[count++] = league->some_views[each];
        if (!count || !place_job(league, broker, line, job, views, count))
            return;
    }
}

/* mirrors core/broker/placement.py BrokerPlacement.place_line */
void place_line(league_t *league, broker_t *broker, int64_t line)
{
    if (head_of(broker, line) != NONE)
        place_from(league, broker, line, open_views(league, broker, league->some_views));
}

/* mirrors core/broker/placement.py BrokerPlacement.place_all
 * Good news has come: try every line again, best key first. */
void place_all(league_t *league, broker_t *broker)
{
    demand_t *heads = league->some_lines;
    int64_t count = heads_of(league, broker, heads);
    int64_t open = count ? open_views(league, broker, league->some_views) : 0;
    for (int64_t each = 0; each < count; each++)
        place_from(league, broker, heads[each].line, open);
}

/* mirrors core/broker/attempt_withdrawal.py AttemptWithdrawal.expect_start
 * A warden has taken these: they ought to start before the deadline. Where starts are not reported the deadline
 * never comes, so nothing but their number is of interest. */
void expect(league_t *league, broker_t *broker, const int64_t *lot, int64_t count)
{
    broker->expected_count++;
    must(league, broker->expected_count <= league->rules.expected_max, "a broker expects too many starts");
    if (!league->rules.starts)
        return;
    ints_t *expected = &broker->expected;
    if (broker->expected_head > 4096 && 2 * broker->expected_head > expected->size) {
        expected->size -= broker->expected_head;
        memmove(expected->at, expected->at + broker->expected_head,
                (size_t)expected->size * sizeof *expected->at);
        broker->expected_head = 0;
    }
    if (!add_many(league, expected, 2 + 2 * count))
        return;
    expected->at[expected->size++] = broker->now + league->rules.start_deadline;
    expected->at[expected->size++] = count;
    for (int64_t each = 0; each < count; each++) {
        expected->at[expected->size++] = lot[2 * each];
        expected->at[expected->size++] = league->attempt_of[lot[2 * each]];
    }
}

/* --- grants --------------------------------------------------------------------------------------------- */

/* mirrors core/broker/grant_binding.py GrantBinding._bind
 * The best task of the line, at this moment, gets what was granted. */
static bool bind_offer(league_t *league, broker_t *broker, const offer_t *offer)
{
    view_t *view = broker->views + offer->cluster;
    if (!broker->lines[offer->line].live)
        return false;
    int32_t job = head_of(broker, offer->line);
    if (job == NONE || !can_claim(league, broker, offer->cluster) || !add_many(league, &view->lots, 4))
        return false;
    int32_t task = take_last(league, broker, job);
    int64_t lot[4] = {offer->lease, 1, task, offer->node};
    league->state_of[task] = PLACED;
    league->attempt_of[task]++;
    memcpy(view->lots.at + view->lots.size, lot, sizeof lot);
    view->lots.size += 4;
    expect(league, broker, lot + 2, 1);
    return true;
}

/* mirrors core/broker/grant_binding.py GrantBinding._is_outbid
 * Somebody else's best task goes before ours by now. */
static bool outbid(const league_t *league, const broker_t *broker, const offer_t *offer)
{
    int32_t job = broker->lines[offer->line].live ? head_of(broker, offer->line) : NONE;
    if (job == NONE || offer->rival_first == NEVER)
        return false;
    const job_t *head = league->jobs + job;
    if (head->first != offer->rival_first)
        return head->first > offer->rival_first;
    return head->second > offer->rival_second;
}

/* mirrors core/broker/grant_binding.py GrantBinding._give_back */
static void give_back(league_t *league, broker_t *broker, const offer_t *offer)
{
    view_t *view = broker->views + offer->cluster;
    add(league, &view->releases, offer->lease);
    view->stale = view->stale || (broker->lines[offer->line].live && broker->lines[offer->line].count);
    touch(broker, offer->line);
}

/* own: those with the largest score times prior first. */
static int by_score(const void *one, const void *other)
{
    const offer_t *a = one, *b = other;
    int64_t first = a->score * a->prior, second = b->score * b->prior;
    if (first != second)
        return first > second ? -1 : 1;
    return a->lease < b->lease ? -1 : a->lease > b->lease;
}

/* mirrors core/broker/grant_binding.py GrantBinding.bind_offers */
void bind_offers(league_t *league, broker_t *broker, offer_t *offers, int64_t count)
{
    if (count > 1)
        qsort(offers, (size_t)count, sizeof *offers, by_score);
    for (int64_t each = 0; each < count; each++) {
        offer_t offer = offers[each];
        if (outbid(league, broker, &offer)) {
            add(league, &broker->views[offer.cluster].releases, offer.lease);
            broker->views[offer.cluster].stale = false;
            broker->lines[offer.line].best_job = NONE;
        } else if (!bind_offer(league, broker, &offer)) {
            if (has_claims(broker->views + offer.cluster)) {
                offer.until = broker->now + league->rules.grant_lease / 2;
                if (!grow(league, (void **)&broker->spare, &broker->spare_room, broker->spare_count + 1,
                          sizeof offer))
                    return;
                broker->spare[broker->spare_count++] = offer;
            } else {
                give_back(league, broker, &offer);
            }
        }
        touch(broker, offer.line);
    }
}

/* mirrors core/broker/grant_binding.py GrantBinding.use_spare_offers
 * Claims to a cluster were answered, or (NONE) time has passed: use the grants kept for this case, or give them
 * back. */
void use_spare(league_t *league, broker_t *broker, int64_t answered)
{
    int64_t kept = 0;
    for (int64_t each = 0; each < broker->spare_count; each++) {
        offer_t offer = broker->spare[each];
        if (offer.cluster == answered && bind_offer(league, broker, &offer))
            touch(broker, offer.line);
        else if (broker->now < offer.until && has_claims(broker->views + offer.cluster))
            broker->spare[kept++] = offer;
        else
            give_back(league, broker, &offer);
    }
    broker->spare_count = kept;
}
