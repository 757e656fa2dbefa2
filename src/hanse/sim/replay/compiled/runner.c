/* The runner: the twin of core.runner.runner. Its lease never runs out here, so it follows every order. */
#include "post.h"

#include <string.h>

/* mirrors core/runner/runner.py Runner._report
 * Tell the warden what has started and ended: what is in `league->report`. */
static void report(league_t *league, runner_t *runner, int64_t now, bool started)
{
    const ints_t *tasks = &league->report;
    message_t *message = post_send(league, &runner->post, now, 0, REPORT);
    if (!message)
        return;
    message->a = started ? tasks->size : 0;
    message->b = started ? 0 : tasks->size;
    message->body = take_body(league, tasks->size);
    if (message->body)
        memcpy(message->body, tasks->at, (size_t)tasks->size * sizeof *tasks->at);
}

/* mirrors core/runner/runner.py Runner._renew_lease */
static void renewed(league_t *league, runner_t *runner, int64_t echo)
{
    runner->confirmed = true;
    if (echo + league->rules.runner_lease > runner->lease_until)
        runner->lease_until = echo + league->rules.runner_lease;
}

/* mirrors core/runner/runner.py Runner._on_runner_orders
 * mirrors core/runner/runner.py Runner._start */
static void obey(league_t *league, runner_t *runner, int64_t now, const message_t *orders)
{
    int64_t until = orders->a + league->rules.runner_lease;
    if (!must(league, now < until && now < runner->lease_until, "an order came without a lease"))
        return;
    for (int64_t each = 0; each < orders->b; each++) {
        command_t *command = new_command(league, LAUNCH);
        if (!command)
            return;
        command->what = orders->body[each];
    }
}

/* mirrors core/runner/runner.py Runner._on_message */
static void receive(league_t *league, runner_t *runner, int64_t now, const message_t *message)
{
    if (!post_receive(league, &runner->post, now, 0, message))
        return;
    if (message->kind == RUNNER_LEASE || message->kind == ORDERS)
        renewed(league, runner, message->a);
    else
        must(league, message->kind == ACK, "a runner got somebody else's message");
    if (message->kind == ORDERS)
        obey(league, runner, now, message);
}

/* mirrors core/runner/runner.py Runner._beat */
static void beat(league_t *league, runner_t *runner, int64_t now)
{
    static const int kinds[] = {HELLO, RUNNER_BEAT};
    runner->beat_at = now + league->rules.runner_beat;
    for (int each = runner->confirmed ? 1 : 0; each < 2; each++) {
        message_t *message = post_soft(league, &runner->post, 0, kinds[each]);
        if (message)
            message->a = now;
    }
}

/* mirrors core/runner/runner.py Runner.handle
 * mirrors core/runner/runner.py Runner._on_local_event
 * mirrors core/runner/runner.py Runner._on_booted
 * mirrors core/runner/runner.py Runner._on_backend_reported
 * The two events with which a runner begins (Booted, BackendReported) are one here: the first asks for nothing. */
void runner_handle(league_t *league, runner_t *runner, int64_t now, int event, const message_t *message)
{
    if (event == RECEIVED)
        receive(league, runner, now, message);
    else if (event == ENDED || event == STARTED)
        report(league, runner, now, event == STARTED);
    else if (event == BOOTED)
        beat(league, runner, now);
    if (now >= runner->beat_at)
        beat(league, runner, now);
    if (now >= runner->post.due)
        post_tick(league, &runner->post, now);
    int64_t due = runner->post.due < runner->beat_at ? runner->post.due : runner->beat_at;
    if (now >= runner->armed || due < runner->armed) {
        runner->armed = due;
        wake_at(league, due);
    }
}
