/* The attempts of a warden, and what it tells brokers of them: the twin of core.warden.attempts. */
#include "post.h"

#include <string.h>

/* mirrors core/warden/attempts.py WardenAttempts.on_open_session
 * mirrors core/warden/attempts.py WardenAttempts.open_nodes
 * mirrors core/warden/runner_sessions.py RunnerSessions.open_session
 * The runner opens its session, and its nodes are up. */
void open_session(league_t *league, warden_t *warden, int64_t now, const message_t *message)
{
    if (!must(league, !warden->joined, "a runner says hello twice"))
        return;
    warden->joined = warden->up = true;
    warden->leased_at = now;
    warden->runner_echo = message->a;
    warden->roster_due = now + league->rules.runner_span;
    for (int64_t node = 0; node < warden->nodes; node++) {
        touch_node(warden, node);
        add(league, &warden->freed, node);
    }
    warden->unleased = NONE;
}

/* own: see take_news for what is in it. */
static void send_news(league_t *league, warden_t *warden, int64_t now, int64_t broker, const ints_t *started,
                      const int64_t *ended, int64_t ends, const ints_t *offers)
{
    message_t *message = post_send(league, &warden->post, now, broker, NEWS);
    if (!message)
        return;
    message->a = started ? started->size : 0;
    message->b = ends;
    message->c = offers ? offers->size / OFFER_WORDS : 0;
    int64_t *body = message->body = take_body(league, message->a + ends + OFFER_WORDS * message->c);
    if (!body)
        return;
    if (message->a)
        memcpy(body, started->at, (size_t)message->a * sizeof *body);
    if (ends)
        memcpy(body + message->a, ended, (size_t)ends * sizeof *body);
    if (message->c)
        memcpy(body + message->a + ends, offers->at, (size_t)offers->size * sizeof *body);
}

/* own: a broker leaves a list. */
static void forget_one(int32_t *order, int64_t *count, int32_t broker)
{
    int64_t kept = 0;
    for (int64_t each = 0; each < *count; each++)
        if (order[each] != broker)
            order[kept++] = order[each];
    *count = kept;
}

/* mirrors core/warden/attempts.py WardenAttempts.send_updates
 * For one broker that had ends or starts to be told. */
static void tell_one(league_t *league, warden_t *warden, int64_t now, int32_t broker)
{
    client_t *client = warden->clients + broker;
    int64_t at = 0, most = league->rules.news_max;
    for (; client->ended.size - at > most && !league->wrong; at += most)
        send_news(league, warden, now, broker, NULL, client->ended.at + at, most, NULL);
    send_news(league, warden, now, broker, client->has_started ? &client->started : NULL,
              client->ended.at + at, client->ended.size - at, client->has_offers ? &client->offers : NULL);
    if (client->has_started)
        forget_one(warden->starting, &warden->starting_count, broker);
    if (client->has_offers)
        forget_one(warden->offering, &warden->offering_count, broker);
    client->ended.size = client->started.size = client->offers.size = 0;
    client->has_ended = client->has_started = client->has_offers = false;
}

/* mirrors core/warden/attempts.py WardenAttempts.send_updates
 * Updates for the owners of starts and ends, and for brokers that get room. */
void send_updates(league_t *league, warden_t *warden, int64_t now)
{
    int64_t held = 0;
    for (int64_t each = 0; each < warden->ending_count && !league->wrong; each++) {
        int32_t broker = warden->ending[each];
        if (crowded(league, &warden->post, broker))
            warden->ending[held++] = broker; /* it is told when it has caught up */
        else
            tell_one(league, warden, now, broker);
    }
    warden->ending_count = held;
    for (int64_t each = 0; each < warden->offering_count && !league->wrong; each++) {
        client_t *client = warden->clients + warden->offering[each];
        send_news(league, warden, now, warden->offering[each], NULL, NULL, 0, &client->offers);
        client->offers.size = 0;
        client->has_offers = false;
    }
    warden->offering_count = 0;
}

/* own: an entry of WardenAttempts.pending_ends. */
static void note_ending(warden_t *warden, int32_t broker)
{
    if (!warden->clients[broker].has_ended) {
        warden->clients[broker].has_ended = true;
        warden->ending[warden->ending_count++] = broker;
    }
}

/* mirrors core/warden/attempts.py WardenAttempts.flush_starts
 * Starts have waited long enough. */
void flush_starts(warden_t *warden)
{
    warden->news_at = NEVER;
    for (int64_t each = 0; each < warden->starting_count; each++)
        note_ending(warden, warden->starting[each]);
}

/* mirrors core/warden/warden.py Warden._on_ack_ends
 * mirrors core/warden/attempts.py WardenAttempts.on_ends_acked
 * So many ends are safe with their broker. */
void acked_ends(league_t *league, warden_t *warden, int64_t ends)
{
    bool full = is_full(league, warden);
    warden->unsettled -= ends;
    must(league, warden->unsettled >= 0, "an end was settled twice");
    if (full && !is_full(league, warden))
        for (int64_t node = 0; node < warden->nodes; node++)
            add(league, &warden->freed, node);
}

/* mirrors core/warden/attempts.py WardenAttempts.on_runner_report
 * mirrors core/warden/attempts.py WardenAttempts._on_started
 * mirrors core/warden/attempts.py WardenAttempts._on_ended
 * mirrors core/warden/attempts.py WardenAttempts._record_ends
 * mirrors core/warden/ledger.py Ledger.finish_attempt
 * mirrors core/warden/runner_sessions.py RunnerSessions.forget_later
 * A report has a = started, b = ended; as body the tasks. */
void take_report(league_t *league, warden_t *warden, int64_t now, const message_t *message)
{
    const int64_t *task = message->body;
    int64_t brokers = league->rules.brokers;
    for (int64_t each = 0; each < message->a; each++, task++) {
        int32_t broker = (int32_t)(league->job_of[*task] % brokers);
        client_t *client = warden->clients + broker;
        if (!client->has_started) {
            client->has_started = true;
            warden->starting[warden->starting_count++] = broker;
        }
        add(league, &client->started, *task);
        if (now + league->rules.started_linger < warden->news_at)
            warden->news_at = now + league->rules.started_linger;
    }
    if (!message->b)
        return;
    warden->forget += message->b;
    if (now + league->rules.settle_linger < warden->forget_at)
        warden->forget_at = now + league->rules.settle_linger;
    for (int64_t each = 0; each < message->b && !league->wrong; each++, task++) {
        int32_t broker = (int32_t)(league->job_of[*task] % brokers);
        warden->runs--;
        warden->unsettled++;
        give(league, warden, league->place_of[*task]);
        note_ending(warden, broker);
        add(league, &warden->clients[broker].ended, *task);
    }
}
