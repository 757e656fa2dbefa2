/* The room of a cluster and its grants: the twin of core.warden.ledger, core.warden.claim_acceptance, core.warden.grants and
 * core.warden.demand_table. */
#include "plain.h"

#include <string.h>

/* --- taking, giving and telling ------------------------------------------------------------------------- */

/* own: an entry of Ledger.touched. */
void touch_node(warden_t *warden, int64_t node)
{
    if (!warden->is_touched[node]) {
        warden->is_touched[node] = 1;
        warden->touched[warden->touched_count++] = (int32_t)node;
    }
}

/* mirrors core/warden/ledger.py Ledger.give
 * mirrors core/warden/ledger.py Ledger.return_capacity
 * mirrors core/warden/claim_acceptance.py ClaimAcceptance._return_capacity
 * The node is to be offered before this step ends. */
void give(league_t *league, warden_t *warden, int64_t node)
{
    if (!must(league, !has_bit(warden->room, node), "room was given back twice"))
        return;
    set_bit(warden->room, node, true);
    touch_node(warden, node);
    add(league, &warden->freed, node);
}

/* mirrors core/warden/ledger.py Ledger.publish
 * mirrors core/warden/ledger.py Ledger.advertised_free_all
 * Count what has changed on offer as new versions. `older` and `newer` keep the nodes in the order of their last
 * change, as the machines' dict does. */
void publish(warden_t *warden)
{
    int64_t end = warden->nodes;
    for (int64_t each = 0; each < warden->touched_count; each++) {
        int32_t node = warden->touched[each];
        bool offered = warden->up && has_bit(warden->room, node);
        warden->is_touched[node] = 0;
        if (offered == has_bit(warden->shown, node))
            continue;
        set_bit(warden->shown, node, offered);
        if (warden->changed[node]) {
            warden->newer[warden->older[node]] = warden->newer[node];
            warden->older[warden->newer[node]] = warden->older[node];
        }
        warden->changed[node] = ++warden->version;
        warden->older[node] = warden->older[end];
        warden->newer[node] = (int32_t)end;
        warden->newer[warden->older[end]] = node;
        warden->older[end] = node;
    }
    warden->touched_count = 0;
}

/* own: how many nodes changed after version `since`, in words of a delta. */
int64_t delta_words(const warden_t *warden, int64_t since)
{
    int64_t count = 0;
    for (int32_t node = warden->older[warden->nodes]; node < warden->nodes; node = warden->older[node]) {
        if (warden->changed[node] <= since)
            break;
        count++;
    }
    return 3 + count;
}

/* mirrors core/warden/ledger.py Ledger.delta
 * Since, version, nodes, then each node and whether it is free. */
void write_delta(const warden_t *warden, int64_t since, int64_t *words)
{
    int64_t count = 0;
    for (int32_t node = warden->older[warden->nodes]; node < warden->nodes; node = warden->older[node]) {
        if (warden->changed[node] <= since)
            break;
        words[3 + count++] = (int64_t)node << 1 | has_bit(warden->shown, node);
    }
    words[0] = since;
    words[1] = warden->version;
    words[2] = count;
}

/* --- leases --------------------------------------------------------------------------------------------- */

/* own: an entry of Ledger.leases. */
static lease_t *find_lease(warden_t *warden, int64_t number)
{
    int64_t at = number - warden->lease_base;
    if (at < warden->lease_head || at >= warden->lease_size || !warden->leases[at].live)
        return NULL;
    return warden->leases + at;
}

/* mirrors core/warden/ledger.py Ledger.end_lease
 * Leases at the front that are over are forgotten. */
static void unlease(warden_t *warden, lease_t *lease)
{
    lease->live = false;
    warden->slots--;
    while (warden->lease_head < warden->lease_size && !warden->leases[warden->lease_head].live)
        warden->lease_head++;
}

/* mirrors core/warden/ledger.py Ledger.create_lease */
static bool new_lease(league_t *league, warden_t *warden, lease_t lease)
{
    if (warden->lease_head > 1024 && 2 * warden->lease_head > warden->lease_size) {
        warden->lease_size -= warden->lease_head;
        memmove(warden->leases, warden->leases + warden->lease_head,
                (size_t)warden->lease_size * sizeof lease);
        warden->lease_base += warden->lease_head;
        warden->lease_head = 0;
    }
    if (!grow(league, (void **)&warden->leases, &warden->lease_room, warden->lease_size + 1, sizeof lease))
        return false;
    warden->leases[warden->lease_size++] = lease;
    warden->slots++;
    return true;
}

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance.release_lease
 * A broker gives a lease back, or its time is up. */
void release(league_t *league, warden_t *warden, int32_t broker, int64_t number)
{
    lease_t *lease = find_lease(warden, number);
    if (lease && lease->broker == broker) {
        unlease(warden, lease);
        give(league, warden, lease->node);
    }
}

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance.expire_leases */
void expire(league_t *league, warden_t *warden, int64_t now)
{
    while (warden->lease_head < warden->lease_size && !league->wrong) {
        const lease_t *first = warden->leases + warden->lease_head;
        if (first->until > now)
            return;
        release(league, warden, first->broker, warden->lease_base + warden->lease_head);
    }
}

/* --- granting ------------------------------------------------------------------------------------------- */

/* mirrors core/warden/grants.py Grants.is_full
 * mirrors core/warden/unacked_ends.py UnackedEnds.__len__ */
bool is_full(const league_t *league, const warden_t *warden)
{
    return warden->runs + warden->unsettled >= league->rules.runs_max;
}

/* mirrors core/warden/ledger.py Ledger.compile_shape
 * mirrors core/warden/ledger.py Ledger._compile */
static int64_t open_to(const league_t *league, const warden_t *warden, int64_t shape)
{
    return league->columns.latency[shape] ? warden->nodes : warden->unreserved;
}

/* mirrors core/warden/grants.py Grants._find_rival_key
 * The best want of another broker that could use a node. */
static const want_t *rival(const league_t *league, const warden_t *warden, const want_t *want, int64_t node)
{
    for (const want_t *other = warden->wants; other < warden->wants + warden->want_count; other++)
        if (other->broker != want->broker && other->count > 0 && node < open_to(league, warden, other->shape))
            return other;
    return NULL;
}

/* mirrors core/warden/grants.py Grants._grant
 * mirrors core/warden/grants.py Grants._create_lease
 * The room of a node is kept for a want. */
static void grant(league_t *league, warden_t *warden, int64_t now, want_t *want, int64_t node)
{
    client_t *client = warden->clients + want->broker;
    set_bit(warden->room, node, false);
    touch_node(warden, node);
    want->count--;
    lease_t lease = {now + league->rules.grant_lease, want->shape, want->broker, want->line, (int32_t)node,
                     true};
    if (!new_lease(league, warden, lease) || !add_many(league, &client->offers, OFFER_WORDS))
        return;
    if (!client->has_offers) {
        client->has_offers = true;
        warden->offering[warden->offering_count++] = want->broker;
    }
    int64_t busy = warden->runs * 1000 / warden->nodes;
    int64_t *offer = client->offers.at + client->offers.size;
    client->offers.size += OFFER_WORDS;
    offer[0] = warden->lease_base + warden->lease_size - 1;
    offer[1] = want->line;
    offer[2] = node;
    offer[3] = 1000 / (1 + want->count);
    offer[4] = 1000 * 1000 / (1000 + busy);
    const want_t *other = rival(league, warden, want, node);
    offer[5] = other ? other->first : NEVER;
    offer[6] = other ? other->second : NEVER;
    league->tally[GRANTS]++; /* as MessageCounts does when the updates are sent, which is in this step */
}

/* mirrors core/warden/grants.py Grants.serve_node
 * mirrors core/warden/grants.py Grants._can_use_node
 * Room has come free on a node: offer it in the global order. It holds one task, so one grant is all. */
static void serve_node(league_t *league, warden_t *warden, int64_t now, int64_t node)
{
    if (!warden->want_count || !warden->up || is_full(league, warden) || !has_bit(warden->room, node))
        return;
    for (int64_t each = 0; each < warden->want_count; each++) {
        want_t *want = warden->wants + each;
        if (want->count <= 0 || node >= open_to(league, warden, want->shape))
            continue;
        if (warden->slots + 1 > league->rules.slots_max)
            continue;
        grant(league, warden, now, want, node);
        return;
    }
}

/* mirrors core/warden/warden.py Warden._serve
 * Offer what came free. */
void serve_freed(league_t *league, warden_t *warden, int64_t now)
{
    for (int64_t each = 0; each < warden->freed.size; each++)
        serve_node(league, warden, now, warden->freed.at[each]);
    warden->freed.size = 0;
}

/* mirrors core/warden/grants.py Grants._serve
 * mirrors core/warden/grants.py Grants._find_nodes
 * Serve a want from what is free. */
static void serve_want(league_t *league, warden_t *warden, int64_t now, want_t *want, uint64_t random)
{
    int64_t count = want->count, past = warden->up ? open_to(league, warden, want->shape) : 0;
    if (count > league->rules.grants_max)
        count = league->rules.grants_max;
    if (count > league->rules.slots_max - warden->slots)
        count = league->rules.slots_max - warden->slots;
    int64_t start = (int64_t)(random % (uint64_t)warden->nodes);
    int64_t ranges[2][2] = {{start, past}, {0, start < past ? start : past}};
    for (int part = 0; part < 2; part++) {
        int64_t node = ranges[part][0] - 1;
        while (count > 0 && !league->wrong
               && (node = next_bit(warden->room, node + 1, ranges[part][1])) != NONE) {
            grant(league, warden, now, want, node);
            count--;
        }
    }
}

/* mirrors core/warden/demand_table.py DemandEntry.rank */
static bool ranks_before(const want_t *one, const want_t *other)
{
    if (one->first != other->first)
        return one->first < other->first;
    if (one->second != other->second)
        return one->second < other->second;
    return one->broker != other->broker ? one->broker < other->broker : one->line < other->line;
}

/* mirrors core/warden/demand_table.py DemandTable.replace
 * The lines of a broker, which come best first, take the place of what it said before. */
static void replace_wants(warden_t *warden, int32_t broker, const demand_t *lines, int64_t count)
{
    want_t *merged = warden->spare_wants;
    int64_t size = 0, line = 0;
    for (int64_t each = 0; each <= warden->want_count; each++) {
        const want_t *old = each < warden->want_count ? warden->wants + each : NULL;
        if (old && old->broker == broker)
            continue;
        for (; line < count; line++) {
            want_t want = {lines[line].first, lines[line].second, lines[line].count, lines[line].shape,
                           broker, (int32_t)lines[line].line};
            if (old && ranks_before(old, &want))
                break;
            merged[size++] = want;
        }
        if (old)
            merged[size++] = *old;
    }
    warden->spare_wants = warden->wants;
    warden->wants = merged;
    warden->want_count = size;
}

/* mirrors core/warden/warden.py Warden._on_demand
 * mirrors core/warden/grants.py Grants.serve_demand
 * A broker says what it has waiting; serve it, best first, from what is free. */
void demanded(league_t *league, warden_t *warden, int64_t now, int32_t broker, const int64_t *lines,
              int64_t count)
{
    warden->clients[broker].heard = now;
    replace_wants(warden, broker, (const demand_t *)lines, count);
    serve_freed(league, warden, now); /* what it gave back goes by the order of all */
    if (!count || is_full(league, warden))
        return;
    uint64_t steps = warden->steps, random = mix(warden->seed, &steps, 1);
    for (int64_t each = 0; each < warden->want_count; each++)
        if (warden->wants[each].broker == broker)
            serve_want(league, warden, now, warden->wants + each, random);
}

/* --- accepting ------------------------------------------------------------------------------------------ */

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance._start_tasks
 * mirrors core/warden/ledger.py Ledger.begin_attempts
 * A task has a place, and its runner is told. */
static void run(league_t *league, warden_t *warden, int64_t task, int64_t node)
{
    league->place_of[task] = (int32_t)node;
    warden->runs++;
    warden->batch = true;
    add(league, &warden->starts, task);
}

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance._refuse_all
 * A whole batch is refused. A batch: lease, count, then task and node of each. */
void refuse_lot(league_t *league, const int64_t *lot, ints_t *refused)
{
    for (int64_t each = 0; each < lot[1]; each++)
        add(league, refused, lot[2 + 2 * each]);
}

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance._bind
 * The batch gets the room that was kept for it, if the line still means the same shape. */
static void bind_lease(league_t *league, warden_t *warden, const int64_t *lot, int64_t shape, int64_t node,
                       ints_t *refused)
{
    if (league->columns.shape[league->job_of[lot[2]]] == shape) {
        run(league, warden, lot[2], node);
    } else {
        refuse_lot(league, lot, refused);
        give(league, warden, node);
    }
}

/* mirrors core/warden/claim_acceptance.py ClaimAcceptance.accept_batch
 * mirrors core/warden/claim_acceptance.py ClaimAcceptance._find_nodes
 * mirrors core/warden/claim_acceptance.py ClaimAcceptance._note_changes
 * mirrors policy/kernels/numpy_kernels.py settle
 * Find room for a batch; true for a claim on the fast path, always answered. Each task gets its node if that is
 * free, else the first free one in circular order from a random start (kernel settle). */
bool place_lot(league_t *league, warden_t *warden, int32_t broker, const int64_t *lot, int64_t *substituted,
               ints_t *refused)
{
    lease_t *lease = lot[0] ? find_lease(warden, lot[0]) : NULL;
    if (lease && lease->broker == broker) {
        unlease(warden, lease);
        bind_lease(league, warden, lot, lease->shape, lease->node, refused);
        return false;
    }
    int64_t past = warden->up ? open_to(league, warden, league->columns.shape[league->job_of[lot[2]]]) : 0;
    int64_t start = (int64_t)(warden->start % (uint64_t)warden->nodes);
    for (int64_t each = 0; each < lot[1]; each++) {
        int64_t task = lot[2 + 2 * each], proposed = lot[3 + 2 * each], node = proposed;
        if (node >= past || !has_bit(warden->room, node)) {
            node = next_bit(warden->room, start, past);
            if (node == NONE)
                node = next_bit(warden->room, 0, start < past ? start : past);
        }
        if (node == NONE) {
            add(league, refused, task);
            continue;
        }
        *substituted += node != proposed;
        set_bit(warden->room, node, false);
        touch_node(warden, node);
        run(league, warden, task, node);
    }
    return true;
}
