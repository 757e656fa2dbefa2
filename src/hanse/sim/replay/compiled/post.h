/* Links between machines: the twin of core.messaging.link.
 *
 * Nothing is lost, doubled or reordered here, so numbers and acknowledgements are all that is left of a link.
 * But when a machine acknowledges, and when it looks whether to repeat itself, decides how many events it
 * takes, and with them what its random numbers are. So both are followed to the microsecond.
 */
#ifndef HANSE_PLAIN_POST_H
#define HANSE_PLAIN_POST_H

#include "plain.h"

/* mirrors core/messaging/link.py Link.is_crowded
 * mirrors core/messaging/link.py LinkSet.is_crowded */
static inline bool crowded(const league_t *league, const post_t *post, int64_t to)
{
    return (post->links[to].sent - post->links[to].acked) * 2 > league->rules.window_max;
}

/* own: the message that the next command sends; null when memory is out. `seq` as in Envelope. */
static inline message_t *write_message(league_t *league, post_t *post, int64_t to, int kind, int64_t seq)
{
    command_t *command = new_command(league, SEND);
    if (!command)
        return NULL;
    command->message = (message_t){.seq = seq, .ack = post->links[to].received, .source = post->self,
                                   .target = post->peers[to], .kind = kind};
    return &command->message;
}

/* mirrors core/messaging/link.py LinkSet.send
 * Send a message that must arrive. */
static inline message_t *post_send(league_t *league, post_t *post, int64_t now, int64_t to, int kind)
{
    link_t *link = post->links + to;
    if (!must(league, link->sent - link->acked < league->rules.window_max, "a peer does not acknowledge"))
        return NULL;
    link->sent++;
    if (link->resend_at == NEVER) {
        link->resend_at = now + league->rules.resend_after;
        if (link->resend_at < post->due)
            post->due = link->resend_at;
    }
    link->ack_at = NEVER;
    return write_message(league, post, to, kind, link->sent);
}

/* mirrors core/messaging/link.py LinkSet.send_soft
 * Send a message that may be lost. */
static inline message_t *post_soft(league_t *league, post_t *post, int64_t to, int kind)
{
    post->links[to].ack_at = NEVER;
    return write_message(league, post, to, kind, -post->links[to].sent);
}

/* mirrors core/messaging/link.py LinkSet.receive
 * mirrors core/messaging/link.py LinkSet._on_ack
 * mirrors core/messaging/link.py LinkSet._take_in_order
 * Take the envelope's numbers; false if its body may not be taken now, which never happens here. */
static inline bool post_receive(league_t *league, post_t *post, int64_t now, int64_t from,
                                const message_t *message)
{
    link_t *link = post->links + from;
    if (message->ack > link->acked && message->ack <= link->sent) {
        link->acked = message->ack;
        link->resend_at = link->sent > link->acked ? now + league->rules.resend_after : NEVER;
    }
    if (message->seq <= 0) {
        if (message->ack > link->firm && -message->seq <= link->received) {
            link->firm = message->ack < link->sent ? message->ack : link->sent;
            post->firmed = true;
        }
        return true;
    }
    if (link->ack_at == NEVER)
        link->ack_at = now + league->rules.ack_delay;
    if (link->ack_at < post->due)
        post->due = link->ack_at;
    if (link->resend_at < post->due)
        post->due = link->resend_at;
    if (!must(league, message->seq == link->received + 1, "a message came out of turn"))
        return false;
    link->received = message->seq;
    return true;
}

/* mirrors core/messaging/link.py LinkSet.tick
 * mirrors core/messaging/link.py LinkSet._catch_up
 * Acknowledge what nothing else carried. */
static inline void post_tick(league_t *league, post_t *post, int64_t now)
{
    int64_t due = NEVER;
    for (int64_t to = 0; to < post->count; to++) {
        link_t *link = post->links + to;
        int64_t at = link->ack_at < link->resend_at ? link->ack_at : link->resend_at;
        if (at <= now) {
            if (!must(league, link->resend_at > now, "a message would have to be repeated"))
                return;
            link->ack_at = NEVER;
            write_message(league, post, to, ACK, -link->sent);
            at = link->resend_at;
        }
        if (at < due)
            due = at;
    }
    post->due = due;
}

#endif
