/* The broker: the twin of core.broker.broker, core.broker.admission, core.broker.job_lifecycle and
 * core.broker.failover.replication.
 *
 * It has no heir, so what it accepts is admitted at once and what ends is made known in the same step. */
#include "post.h"

/* --- jobs ----------------------------------------------------------------------------------------------- */

/* mirrors core/broker/admission.py Admission.on_job_submitted
 * mirrors core/broker/failover/replication.py ShardReplication.accept_job
 * mirrors core/broker/failover/replication.py ShardReplication.admit_job
 * mirrors core/broker/job_lifecycle.py JobLifecycle.begin
 * mirrors core/broker/job_lifecycle.py JobLifecycle._release
 * mirrors core/broker/job_lifecycle.py JobLifecycle._release_group
 * All tasks of a job wait. */
static void submit(league_t *league, broker_t *broker, int32_t job)
{
    const columns_t *columns = &league->columns;
    int64_t first = columns->offset[job], count = columns->offset[job + 1] - first;
    job_t *record = league->jobs + job;
    record->left = (int32_t)count;
    record->accepted = broker->now;
    record->first = columns->first[job];
    record->second = columns->second[job];
    record->line = record->place = NONE;
    record->waiting = 0;
    ints_t *tasks = &league->report;
    tasks->size = 0;
    if (!add_many(league, tasks, count))
        return;
    for (int64_t each = count - 1; each >= 0; each--) /* the lowest index is taken first */
        tasks->at[tasks->size++] = first + each;
    enqueue(league, broker, job, tasks->at, count);
    place_line(league, broker, record->line);
}

/* mirrors core/broker/job_lifecycle.py JobLifecycle.on_attempt_ended
 * mirrors core/broker/job_lifecycle.py JobLifecycle._settle
 * mirrors core/broker/job_lifecycle.py JobLifecycle._on_group_progress
 * mirrors core/broker/job_lifecycle.py JobLifecycle._finish
 * mirrors core/broker/failover/end_log.py EndLog.add_task_end
 * mirrors core/broker/failover/end_log.py EndLog.add_job_end
 * A task has ended, with success, as all do here. */
static void finished(league_t *league, broker_t *broker, int64_t task)
{
    int32_t job = league->job_of[task];
    job_t *record = league->jobs + job;
    uint8_t state = league->state_of[task];
    if (!must(league, CLAIMED <= state && state <= RUNNING, "a task ended that was not on its way"))
        return;
    league->state_of[task] = SUCCEEDED;
    broker->busy = true;
    if (--record->left) {
        if (league->rules.progress)
            rekey(league, broker, job);
        return;
    }
    leave(league, broker, job);
    league->ended++; /* JobSettled; LeanShell takes the time of the step, which is this one */
    league->columns.job_end[job] = broker->now - league->rules.lead - league->rules.delay;
}

/* mirrors core/broker/job_lifecycle.py JobLifecycle.tick
 * Forget the starts that came in time; none is ever late. */
static void look_for_late_starts(league_t *league, broker_t *broker)
{
    const ints_t *expected = &broker->expected;
    int64_t at = broker->expected_head;
    while (at < expected->size && expected->at[at] <= broker->now) {
        int64_t count = expected->at[at + 1];
        for (int64_t each = 0; each < count; each++) {
            int64_t task = expected->at[at + 2 + 2 * each], attempt = expected->at[at + 3 + 2 * each];
            bool late = league->state_of[task] == PLACED && league->attempt_of[task] == attempt;
            if (!must(league, !late, "a task that was taken has not started"))
                return;
        }
        broker->expected_count--;
        at += 2 + 2 * count;
    }
    broker->expected_head = at;
}

/* mirrors core/broker/failover/replication.py ShardReplication.release_safe
 * mirrors core/broker/failover/replication.py ShardReplication._ack_ends
 * mirrors core/broker/failover/replication.py ShardReplication._publish
 * What has ended is known now, and the wardens may forget it. */
static void release_ends(league_t *league, broker_t *broker)
{
    broker->busy = false;
    if (broker->ended)
        settling_add(league, broker);
}

/* --- messages of wardens -------------------------------------------------------------------------------- */

/* mirrors core/broker/warden_messages.py WardenMessages._apply_delta
 * mirrors core/broker/cluster_view.py ClusterView.apply_delta
 * A change of the view: since, version, nodes, then each node and whether it is free. */
static bool take_delta(league_t *league, broker_t *broker, view_t *view, const int64_t *delta)
{
    bool better = false;
    view->seen_at = broker->now;
    if (!must(league, view->known && delta[0] == view->version, "a view has a gap"))
        return false;
    view->version = delta[1];
    for (int64_t each = 0; each < delta[2]; each++) {
        int64_t node = delta[3 + each] >> 1;
        bool free = delta[3 + each] & 1;
        better = better || (free && !has_bit(view->free, node));
        believe(view, node, free);
    }
    if (better)
        refresh(view, league);
    return true;
}

/* mirrors core/broker/warden_messages.py WardenMessages.on_cluster_delta */
static void take_change(league_t *league, broker_t *broker, int64_t cluster, const message_t *message)
{
    view_t *view = broker->views + cluster;
    if (take_delta(league, broker, view, message->body) && !view->exhausted_lines)
        place_all(league, broker);
}

/* mirrors core/broker/warden_messages.py WardenMessages.on_cluster_snapshot
 * mirrors core/broker/cluster_view.py ClusterView.apply_snapshot
 * A snapshot has a = version, and as body the free nodes. */
static void take_snapshot(league_t *league, broker_t *broker, int64_t cluster, const message_t *message)
{
    view_t *view = broker->views + cluster;
    view->seen_at = broker->now;
    if (!view->known || message->a >= view->version) {
        view->known = true;
        view->version = message->a;
        refresh(view, league);
        for (int64_t node = 0; node < view->nodes; node++)
            believe(view, node, has_bit((const uint64_t *)message->body, node));
    }
    place_all(league, broker);
}

/* mirrors core/broker/cluster_view.py ClusterView.resolve_claim
 * A claim is answered: its batches are no longer in transit. Where they begin among
 * `claims`, and how many there are. */
static const int64_t *answered_lots(view_t *view, int64_t number, int64_t *lots)
{
    *lots = 0;
    if (!has_claims(view) || view->claims.at[view->claims_head] != number)
        return NULL;
    const int64_t *first = view->claims.at + view->claims_head + 2, *lot = first;
    *lots = first[-1];
    for (int64_t each = 0; each < *lots; each++, lot += 1 + 2 * lot[0])
        for (int64_t task = 0; task < lot[0]; task++)
            pend(view, lot[2 + 2 * task], false);
    view->claims_head = lot - view->claims.at;
    return first;
}

/* mirrors core/broker/warden_messages.py WardenMessages._requeue_refused
 * mirrors core/broker/job_lifecycle.py JobLifecycle.on_attempt_refused
 * What was not taken waits again; room that was granted meanwhile is used first. The rest is asked for. */
static void take_refused(league_t *league, broker_t *broker, int64_t cluster, const int64_t *tasks,
                         int64_t count)
{
    view_t *view = broker->views + cluster;
    ints_t *jobs = &league->report; /* each once, in the order of their coming */
    jobs->size = 0;
    view->wary_until = broker->now + league->rules.wary_time;
    for (int64_t each = 0; each < count; each++) {
        int32_t job = league->job_of[tasks[each]];
        uint8_t state = league->state_of[tasks[each]];
        int64_t known = jobs->size;
        while (known && jobs->at[known - 1] != job)
            known--;
        if (!known && !add(league, jobs, job))
            return;
        if (!must(league, state == CLAIMED || state == PLACED, "a task was refused that was not claimed"))
            return;
        enqueue(league, broker, job, tasks + each, 1);
    }
    if (broker->spare_count)
        use_spare(league, broker, cluster);
    for (int64_t each = 0; each < jobs->size; each++) {
        const job_t *record = league->jobs + jobs->at[each];
        for (int64_t other = 0; other < league->rules.clusters && record->line != NONE; other++)
            exhaust(broker->views + other, record->line);
    }
}

/* mirrors core/broker/warden_messages.py WardenMessages.on_claim_reply
 * An answer has a = number, b = refused, c = whether there is a delta; as body the refused and the delta. */
static void take_answer(league_t *league, broker_t *broker, int64_t cluster, const message_t *message)
{
    view_t *view = broker->views + cluster;
    int64_t lots;
    const int64_t *lot = answered_lots(view, message->a, &lots);
    if (message->c && !take_delta(league, broker, view, message->body + message->b))
        return;
    for (int64_t each = 0; each < lots; each++, lot += 1 + 2 * lot[0]) {
        for (int64_t task = 0; task < lot[0]; task++)
            if (league->state_of[lot[1 + 2 * task]] == CLAIMED)
                league->state_of[lot[1 + 2 * task]] = PLACED;
        expect(league, broker, lot + 1, lot[0]);
    }
    if (message->b)
        take_refused(league, broker, cluster, message->body, message->b);
    else if (broker->spare_count)
        use_spare(league, broker, cluster);
}

/* mirrors core/broker/warden_messages.py WardenMessages.on_task_updates
 * mirrors core/broker/job_lifecycle.py JobLifecycle.on_attempts_started
 * mirrors core/broker/failover/replication.py ShardReplication.on_attempts_ended
 * mirrors core/broker/grant_binding.py GrantBinding.on_offers
 * Task updates have a = started, b = ended, c = offers; as body the tasks, then lease, line, node, score, prior
 * and the key of its rival, of each offer. */
static void take_news(league_t *league, broker_t *broker, int64_t cluster, const message_t *message)
{
    const int64_t *body = message->body;
    for (int64_t each = 0; each < message->a; each++, body++)
        if (league->state_of[*body] == CLAIMED || league->state_of[*body] == PLACED)
            league->state_of[*body] = RUNNING;
    broker->ended_view = cluster;
    broker->ended += message->b;
    for (int64_t each = 0; each < message->b && !league->wrong; each++, body++)
        finished(league, broker, *body);
    if (!message->c || league->wrong)
        return;
    int64_t words = (int64_t)(sizeof(offer_t) / sizeof(int64_t)) * message->c;
    int64_t *copy = take_body(league, words);
    if (!copy)
        return;
    offer_t *offers = (offer_t *)copy;
    for (int64_t each = 0; each < message->c; each++, body += OFFER_WORDS) {
        offers[each] = (offer_t){body[0], body[1], body[2], body[3], body[4], body[5], body[6], cluster, 0};
        granted(broker->views + cluster, body[1]);
    }
    bind_offers(league, broker, offers, message->c);
    return_body(league, copy);
}

/* mirrors core/broker/warden_messages.py WardenMessages.on_warden_heartbeat
 * A beat has a = when it was sent, b = version, c = the round of the broker's shard (0: not known there). */
static void take_beat(league_t *league, broker_t *broker, int64_t cluster, const message_t *message)
{
    view_t *view = broker->views + cluster;
    if (message->a <= view->echo)
        return; /* an old beat, or one from before the start */
    view->echo = message->a;
    view->renewed_at = broker->now;
    bool reopened = message->c > view->round;
    if (reopened)
        view->round = message->c;
    message_t *reply = post_soft(league, &broker->post, cluster, BEAT_REPLY);
    if (reply)
        reply->a = message->a;
    if (!view->known || (message->b > view->version && broker->now - view->seen_at > league->rules.beat))
        post_soft(league, &broker->post, cluster, SYNC);
    if (reopened) {
        refresh(view, league);
        place_all(league, broker);
    }
}

/* --- events --------------------------------------------------------------------------------------------- */

/* mirrors core/broker/broker.py Broker._on_booted
 * mirrors core/broker/failover/replication.py ShardReplication.boot
 * mirrors core/broker/failover/replication.py ShardReplication.create_shard
 * mirrors core/broker/failover/replication.py ShardReplication.register_standby */
static void boot(league_t *league, broker_t *broker)
{
    int64_t clusters = league->rules.clusters;
    broker->armed = NEVER;
    broker->due = 0;
    broker->post.due = broker->now;
    for (int64_t cluster = 0; cluster < clusters; cluster++)
        post_soft(league, &broker->post, cluster, SYNC);
    for (int64_t cluster = 0; cluster < clusters; cluster++)
        post_send(league, &broker->post, broker->now, cluster, REGISTER);
    broker->beat_at = broker->now;
    broker->force = true;
}

/* mirrors core/broker/broker.py Broker._on_event
 * mirrors core/broker/broker.py Broker._handlers_by_type
 * mirrors core/broker/failover/owned_shards.py OwnedShards.on_firm_ack
 * mirrors core/broker/failover/replication.py ShardReplication.on_ownership_reply */
static void receive(league_t *league, broker_t *broker, const message_t *message)
{
    int64_t cluster = message->source - league->rules.brokers;
    if (!post_receive(league, &broker->post, broker->now, cluster, message))
        return;
    if (broker->post.firmed)
        broker->busy = true; /* OwnedShards.on_firm_ack */
    broker->post.firmed = false;
    switch (message->kind) {
    case NEWS: take_news(league, broker, cluster, message); break;
    case ANSWER: take_answer(league, broker, cluster, message); break;
    case BEAT: take_beat(league, broker, cluster, message); break;
    case CHANGE: take_change(league, broker, cluster, message); break;
    case SNAPSHOT: take_snapshot(league, broker, cluster, message); break;
    case ESTATE: release_ends(league, broker); break; /* always accepted: ShardReplication.on_ownership_reply */
    default: must(league, message->kind == ACK, "a broker got somebody else's message");
    }
}

/* mirrors core/broker/broker.py Broker._beat */
static void beat(league_t *league, broker_t *broker)
{
    broker->beat_at = broker->now + league->rules.beat;
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
        must(league, broker->now - broker->views[cluster].renewed_at <= league->rules.patience,
             "a cluster is silent");
    if (any_waiting(broker)) {
        place_all(league, broker);
        remind(league, broker);
    } else if (outdated(league, broker)) {
        remind(league, broker);
    }
}

/* own: the time of the oldest of BrokerPlacement.expected. */
static int64_t first_expected(const broker_t *broker)
{
    const ints_t *expected = &broker->expected;
    return broker->expected_head < expected->size ? expected->at[broker->expected_head] : NEVER;
}

/* mirrors core/broker/broker.py Broker._tick */
static void tick(league_t *league, broker_t *broker)
{
    int64_t now = broker->now;
    if (now >= broker->beat_at)
        beat(league, broker);
    if (now >= first_expected(broker))
        look_for_late_starts(league, broker);
    if (broker->spare_count && now >= broker->spare[0].until)
        use_spare(league, broker, NONE);
    if (now >= broker->settling_due)
        settling_tick(league, broker);
    if (now >= broker->post.due)
        post_tick(league, &broker->post, now);
}

/* mirrors core/broker/broker.py Broker._schedule_wake
 * Ask for a tick when something is next due, unless an earlier one will come anyway. */
static void arm(league_t *league, broker_t *broker)
{
    int64_t due = broker->post.due;
    if (broker->beat_at < due)
        due = broker->beat_at;
    if (first_expected(broker) < due)
        due = first_expected(broker);
    if (broker->settling_due < due)
        due = broker->settling_due;
    if (broker->spare_count && broker->spare[0].until < due)
        due = broker->spare[0].until;
    broker->due = due;
    if (due < broker->armed || broker->now >= broker->armed) {
        broker->armed = due;
        wake_at(league, due);
    }
}

/* mirrors core/broker/broker.py Broker.handle
 * mirrors core/broker/broker.py Broker._flush
 * `message` is a received one; a job that is submitted comes as its a. */
void broker_handle(league_t *league, broker_t *broker, int64_t now, int event, const message_t *message)
{
    bool calm = true;
    broker->now = now;
    broker->steps++;
    if (event == RECEIVED) {
        receive(league, broker, message);
        calm = message->seq <= 0;
    } else if (event != TICK) {
        if (event == SUBMITTED)
            submit(league, broker, (int32_t)message->a);
        else
            boot(league, broker);
        calm = false;
    }
    if (now >= broker->due && !league->wrong) {
        tick(league, broker);
        calm = false;
    }
    if (league->wrong)
        return;
    if (broker->busy || broker->touched_count || broker->force) {
        if (broker->busy)
            release_ends(league, broker);
        if (broker->touched_count || broker->force)
            flush(league, broker);
        broker->force = false;
    } else if (calm && now < broker->armed) {
        return;
    }
    arm(league, broker);
}
