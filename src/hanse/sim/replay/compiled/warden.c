/* The warden: the twin of core.warden.warden, core.warden.runner_sessions and core.warden.ownership. */
#include "post.h"

#include <string.h>

/* --- leases of shards and of the runner ----------------------------------------------------------------- */

/* mirrors core/warden/ownership.py Ownership.all_rounds
 * mirrors core/warden/ownership.py Ownership._propose
 * For one broker: the round of its shard, 0 if it has none here. */
static int64_t round_of(league_t *league, warden_t *warden, int64_t broker, int64_t now)
{
    tenure_t *tenure = warden->tenures + broker;
    if (!tenure->known)
        return 0;
    if (tenure->lapsed && tenure->proposed_at < 0)
        tenure->proposed_at = now;
    must(league, !tenure->lapsed || now - tenure->proposed_at < league->rules.cluster_lease,
         "a lease round never began");
    return tenure->round;
}

/* mirrors core/warden/ownership.py Ownership.renew
 * The owner has answered the beat sent at `echo`. */
static void renew(league_t *league, warden_t *warden, int64_t broker, int64_t now, int64_t echo)
{
    tenure_t *tenure = warden->tenures + broker;
    int64_t until = echo + league->rules.cluster_lease;
    if (until <= now || !tenure->known || until <= tenure->until)
        return;
    if (tenure->lapsed && !(0 <= tenure->proposed_at && tenure->proposed_at <= echo))
        return; /* it answers a beat of an earlier round */
    tenure->lapsed = false;
    tenure->proposed_at = NONE;
    tenure->until = until;
    warden->tenure_due = NEVER;
    for (int64_t each = 0; each < league->rules.brokers; each++)
        if (warden->tenures[each].until < warden->tenure_due && !warden->tenures[each].lapsed)
            warden->tenure_due = warden->tenures[each].until;
}

/* mirrors core/warden/warden.py Warden._on_runner_heartbeat
 * mirrors core/warden/runner_sessions.py RunnerSessions.on_runner_heartbeat
 * A runner's beat has a = when it was sent; the lease repeats it. */
static void renew_runner(league_t *league, warden_t *warden, int64_t now, const message_t *message)
{
    int64_t span = league->rules.runner_span;
    if (!must(league, warden->joined, "a runner beats before it has said hello"))
        return;
    bool oldest = warden->leased_at + span <= warden->roster_due;
    warden->leased_at = now;
    if (message->a > warden->runner_echo)
        warden->runner_echo = message->a;
    if (oldest)
        warden->roster_due = now + span;
    message_t *lease = post_soft(league, &warden->post, league->rules.brokers, RUNNER_LEASE);
    if (lease)
        lease->a = message->a;
}

/* --- telling brokers ------------------------------------------------------------------------------------ */

/* mirrors core/warden/state_publisher.py StatePublisher.send_heartbeat
 * See take_beat for what is in it. */
static void beat_to(league_t *league, warden_t *warden, int64_t now, int64_t broker)
{
    int64_t round = round_of(league, warden, broker, now);
    message_t *message = post_soft(league, &warden->post, broker, BEAT);
    if (!message)
        return;
    message->a = now;
    message->b = warden->version;
    message->c = round;
}

/* mirrors core/warden/warden.py Warden._beat */
static void beat(league_t *league, warden_t *warden, int64_t now)
{
    warden->beat_at = now + league->rules.beat;
    for (int64_t broker = 0; broker < league->rules.brokers; broker++) {
        int64_t silence = now - warden->clients[broker].heard;
        must(league, silence <= league->rules.suspect_after, "a broker is silent");
        beat_to(league, warden, now, broker);
    }
}

/* mirrors core/warden/state_publisher.py StatePublisher.send_snapshot
 * See take_snapshot for what is in it. */
static void snapshot(league_t *league, warden_t *warden, int64_t broker)
{
    publish(warden);
    warden->clients[broker].told = warden->version;
    message_t *message = post_soft(league, &warden->post, broker, SNAPSHOT);
    if (!message)
        return;
    message->a = warden->version;
    message->body = take_body(league, words_of(warden->nodes));
    if (message->body)
        memcpy(message->body, warden->shown, (size_t)words_of(warden->nodes) * sizeof(uint64_t));
}

/* mirrors core/warden/state_publisher.py StatePublisher.send_deltas
 * Tell every broker what has changed since it was last told. */
static void tell_changes(league_t *league, warden_t *warden)
{
    for (int64_t broker = 0; broker < league->rules.brokers; broker++) {
        int64_t since = warden->clients[broker].told;
        if (since <= 0 || since >= warden->version)
            continue;
        warden->clients[broker].told = warden->version;
        message_t *message = post_soft(league, &warden->post, broker, CHANGE);
        if (!message)
            return;
        message->body = take_body(league, delta_words(warden, since));
        if (!message->body)
            return;
        write_delta(warden, since, message->body);
    }
}

/* mirrors core/warden/runner_sessions.py RunnerSessions.send_orders
 * Orders have a = the runner's latest beat, b = starts, c = ends to forget; as body the tasks to start. */
static void send_orders(league_t *league, warden_t *warden, int64_t now)
{
    const ints_t *starts = &warden->starts;
    if (!must(league, starts->size <= league->rules.starts_max, "too many starts for one message"))
        return;
    message_t *message = post_send(league, &warden->post, now, league->rules.brokers, ORDERS);
    if (!message)
        return;
    message->a = warden->runner_echo;
    message->b = starts->size;
    message->c = warden->forget;
    message->body = take_body(league, starts->size);
    if (message->body && starts->size)
        memcpy(message->body, starts->at, (size_t)starts->size * sizeof *starts->at);
    warden->starts.size = 0;
    warden->batch = false;
    warden->forget = 0;
    warden->forget_at = NEVER;
}

/* --- what others say ------------------------------------------------------------------------------------ */

/* mirrors core/warden/ownership.py Ownership.find_refusal
 * Nothing speaks against a claim here. */
static bool may_claim(league_t *league, const warden_t *warden, int32_t broker, int64_t now, int64_t round)
{
    const tenure_t *tenure = warden->tenures + broker;
    bool valid = tenure->known && !tenure->lapsed && round == tenure->round && now < tenure->until;
    return must(league, valid, "a claim without a lease");
}

/* mirrors core/warden/state_publisher.py StatePublisher.take_delta
 * See take_answer for what is in it. */
static void send_answer(league_t *league, warden_t *warden, int64_t now, int32_t broker, int64_t number,
                        const ints_t *refused)
{
    client_t *client = warden->clients + broker;
    publish(warden);
    int64_t since = client->told;
    bool changed = since && since < warden->version;
    if (changed)
        client->told = warden->version;
    message_t *message = post_send(league, &warden->post, now, broker, ANSWER);
    if (!message)
        return;
    message->a = number;
    message->b = refused->size;
    message->c = changed;
    int64_t *body = message->body =
        take_body(league, refused->size + (changed ? delta_words(warden, since) : 0));
    if (!body)
        return;
    if (refused->size)
        memcpy(body, refused->at, (size_t)refused->size * sizeof *body);
    if (changed)
        write_delta(warden, since, body + refused->size);
}

/* mirrors core/warden/warden.py Warden._on_claim
 * mirrors core/warden/ownership.py Ownership.find_renewable
 * See send_claim for what is in it. */
static void claimed(league_t *league, warden_t *warden, int64_t now, int32_t broker, const message_t *message)
{
    const int64_t *body = message->body, *lot = body + 4;
    int64_t substituted = 0;
    uint64_t steps = warden->steps;
    bool fast = false;
    ints_t *refused = &league->report;
    refused->size = 0;
    warden->clients[broker].heard = now;
    warden->start = mix(warden->seed, &steps, 1);
    if (body[0])
        renew(league, warden, broker, now, message->b);
    if (body[3])
        acked_ends(league, warden, body[3]);
    const int64_t *releases = lot;
    for (int64_t each = 0; each < body[0]; each++)
        releases += 2 + 2 * releases[1];
    for (int64_t each = 0; each < body[1]; each++)
        release(league, warden, broker, releases[each]);
    for (int64_t each = 0; each < body[0]; each++, lot += 2 + 2 * lot[1]) {
        if (!may_claim(league, warden, broker, now, message->c))
            return;
        if (warden->runs + warden->unsettled + lot[1] > league->rules.runs_max) {
            refuse_lot(league, lot, refused);
            release(league, warden, broker, lot[0]);
            continue;
        }
        fast = place_lot(league, warden, broker, lot, &substituted, refused) || fast;
    }
    if (body[2] != NONE)
        demanded(league, warden, now, broker, releases + body[1], body[2]);
    league->tally[REJECTS] += refused->size;
    league->tally[SUBSTITUTIONS] += substituted;
    if (fast || refused->size || substituted)
        send_answer(league, warden, now, broker, message->a, refused);
}

/* mirrors core/warden/warden.py Warden._on_register_standby
 * mirrors core/warden/ownership.py Ownership.on_register_standby
 * mirrors core/warden/ownership.py Ownership._create_shard
 * A broker registers its shard; the reply names the lease round in which it may claim. */
static void registered(league_t *league, warden_t *warden, int64_t now, int32_t broker)
{
    tenure_t *tenure = warden->tenures + broker;
    warden->clients[broker].heard = now;
    if (!must(league, !tenure->known, "an estate was registered twice"))
        return;
    *tenure = (tenure_t){.round = 1, .proposed_at = NONE, .known = true, .lapsed = true};
    post_send(league, &warden->post, now, broker, ESTATE);
    snapshot(league, warden, broker);
    beat_to(league, warden, now, broker);
}

/* mirrors core/warden/warden.py Warden._on_event
 * mirrors core/warden/warden.py Warden._handlers_by_type
 * mirrors core/warden/warden.py Warden._on_heartbeat_reply
 * mirrors core/warden/warden.py Warden._on_open_session
 * mirrors core/warden/warden.py Warden._note_alive */
static void receive(league_t *league, warden_t *warden, int64_t now, const message_t *message)
{
    int64_t brokers = league->rules.brokers;
    int32_t from = message->source < brokers ? message->source : (int32_t)brokers;
    if (!post_receive(league, &warden->post, now, from, message))
        return;
    switch (message->kind) {
    case REPORT: take_report(league, warden, now, message); break;
    case CLAIM: claimed(league, warden, now, from, message); break;
    case DEMAND: demanded(league, warden, now, from, message->body, message->a); break;
    case RUNNER_BEAT: renew_runner(league, warden, now, message); break;
    case BEAT_REPLY:
        warden->clients[from].heard = now;
        renew(league, warden, from, now, message->a);
        break;
    case SETTLE: acked_ends(league, warden, message->a); break;
    case SYNC: snapshot(league, warden, from); break;
    case HELLO: open_session(league, warden, now, message); break;
    case REGISTER: registered(league, warden, now, from); break;
    default: must(league, message->kind == ACK, "a warden got somebody else's message");
    }
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* mirrors core/warden/warden.py Warden._tick
 * mirrors core/warden/runner_sessions.py RunnerSessions.forget_now
 * mirrors core/warden/runner_sessions.py RunnerSessions.find_overdue */
static void tick(league_t *league, warden_t *warden, int64_t now)
{
    expire(league, warden, now);
    if (now >= warden->forget_at) {
        warden->forget_at = NEVER;
        warden->batch = warden->batch || warden->forget;
    }
    must(league, now < warden->roster_due, "a runner is silent");
    if (now >= warden->beat_at)
        beat(league, warden, now);
    if (now >= warden->news_at)
        flush_starts(warden);
    if (now >= warden->delta_at) {
        warden->delta_at = NEVER;
        tell_changes(league, warden);
    }
    if (now >= warden->post.due)
        post_tick(league, &warden->post, now);
}

/* mirrors core/warden/state_publisher.py StatePublisher.schedule_deltas
 * The room on offer may have changed: see whether some broker has not been told. */
static void look(league_t *league, warden_t *warden, int64_t now)
{
    publish(warden);
    if (warden->seen == warden->version || warden->delta_at < NEVER)
        return;
    warden->seen = warden->version;
    for (int64_t broker = 0; broker < league->rules.brokers; broker++) {
        int64_t told = warden->clients[broker].told;
        if (0 < told && told < warden->version) {
            warden->delta_at = now + league->rules.delta_linger;
            return;
        }
    }
}

/* mirrors core/warden/warden.py Warden._schedule_wake */
static void arm(league_t *league, warden_t *warden, int64_t now)
{
    int64_t due = warden->post.due;
    if (warden->beat_at < due)
        due = warden->beat_at;
    if (warden->delta_at < due)
        due = warden->delta_at;
    if (warden->news_at < due)
        due = warden->news_at;
    if (warden->forget_at < due)
        due = warden->forget_at;
    if (warden->lease_head < warden->lease_size && warden->leases[warden->lease_head].until < due)
        due = warden->leases[warden->lease_head].until;
    warden->unleased = due;
    if (warden->roster_due < due)
        due = warden->roster_due;
    if (warden->tenure_due < due)
        due = warden->tenure_due;
    warden->due = due;
    if (due < warden->armed || now >= warden->armed) {
        warden->armed = due;
        wake_at(league, due);
    }
}

/* own: the last condition of warden_handle. */
static bool same_due(const warden_t *warden, int64_t now)
{
    int64_t due = warden->due;
    return due == warden->unleased && now < warden->armed && warden->tenure_due >= due
           && due <= warden->roster_due;
}

/* mirrors core/warden/warden.py Warden._on_booted
 * mirrors core/warden/runner_sessions.py RunnerSessions.boot */
static void boot(league_t *league, warden_t *warden, int64_t now)
{
    warden->armed = NEVER;
    warden->due = 0;
    warden->post.due = now;
    warden->beat_at = now;
    for (int64_t broker = 0; broker < league->rules.brokers; broker++)
        warden->clients[broker].heard = now;
}

/* mirrors core/warden/warden.py Warden.handle
 * mirrors core/warden/warden.py Warden._expire_leases
 * mirrors core/warden/warden.py Warden._flush
 * mirrors core/warden/step_random.py StepRandom.position */
void warden_handle(league_t *league, warden_t *warden, int64_t now, int event, const message_t *message)
{
    bool calm = true;
    warden->steps++;
    if (!must(league, now < warden->due || now < warden->tenure_due, "the lease of an estate has run out"))
        return;
    if (event == RECEIVED) {
        receive(league, warden, now, message);
        calm = message->seq <= 0;
    } else if (event != TICK) {
        boot(league, warden, now);
        calm = false;
    }
    if (now >= warden->due && !league->wrong) {
        tick(league, warden, now);
        calm = false;
    }
    if (league->wrong)
        return;
    if (warden->freed.size)
        serve_freed(league, warden, now);
    if (warden->batch || warden->offering_count || warden->ending_count) {
        if (warden->batch)
            send_orders(league, warden, now);
        if (warden->offering_count || warden->ending_count)
            send_updates(league, warden, now);
        calm = false;
    }
    if (warden->touched_count || (warden->seen != warden->version && warden->delta_at == NEVER)) {
        look(league, warden, now);
        calm = false;
    }
    if (!(calm && same_due(warden, now)))
        arm(league, warden, now);
}
