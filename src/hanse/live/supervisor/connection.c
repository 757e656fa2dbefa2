/* The launcher's connection to its daemon: requests in, reports out. */
#include "launcher.h"

enum {
    EVENTS_BYTES_MAX = 64 << 20,   /* queued for a daemon that does not read; above this it must reconnect */
    BATCH_ATTEMPTS_MIN = 8,        /* attempts under way from which on news go out together */
};

int daemon_socket = -1;
bool hello_done;
char *inbox;
size_t inbox_used, outbox_used;
bool outbox_polled;
static char *outbox;
static size_t outbox_size;

void disconnect_daemon(void) {
    unwatch_file(daemon_socket);
    daemon_socket = -1;
    inbox_used = outbox_used = 0;
    outbox_polled = hello_done = false;
}

void free_buffers(void) {
    free(inbox);
    free(outbox);
}

void send_reports(void) {
    size_t sent = 0;
    while (daemon_socket >= 0 && sent < outbox_used) {
        ssize_t done = send(daemon_socket, outbox + sent, outbox_used - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) {
            break;
        }
        if (done < 0 && errno != EINTR) {
            disconnect_daemon();
            return;
        }
        sent += done > 0 ? (size_t)done : 0;
    }
    memmove(outbox, outbox + sent, outbox_used - sent);
    outbox_used -= sent;
    bool wanted = outbox_used > 0;
    if (daemon_socket >= 0 && wanted != outbox_polled) {
        struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = daemon_socket};
        epoll_ctl(loop, EPOLL_CTL_MOD, daemon_socket, &event);
        outbox_polled = wanted;
    }
}

void queue_report(const struct news *news, const char *extra) {
    size_t size = sizeof *news + news->extra;
    if (daemon_socket < 0 || !hello_done) {
        return; /* it is on record */
    }
    if (outbox_used + size > outbox_size) {
        size_t larger = outbox_size ? outbox_size * 2 : COPY_BYTES;
        char *moved = larger <= EVENTS_BYTES_MAX ? realloc(outbox, larger) : NULL;
        if (!moved) {
            log_line("the daemon does not read: it must connect again");
            disconnect_daemon();
            return;
        }
        outbox = moved;
        outbox_size = larger;
    }
    memcpy(outbox + outbox_used, news, sizeof *news);
    if (news->extra) {
        memcpy(outbox + outbox_used + sizeof *news, extra, news->extra);
    }
    outbox_used += size;
}

void queue_end(int64_t task, int64_t attempt, const struct end *end) {
    struct news news = {.kind = ENDED, .task = task, .attempt = attempt, .end = *end};
    queue_report(&news, NULL);
}

/* Requests of a dead daemon are obeyed too, in order. */
bool receive_requests(void) {
    if (daemon_socket < 0) {
        return false;
    }
    size_t room = FRAME_BYTES_MAX + COPY_BYTES - inbox_used;
    ssize_t got = recv(daemon_socket, inbox + inbox_used, room, MSG_DONTWAIT);
    if (got > 0) {
        inbox_used += (size_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        while (dispatch_requests()) {
        }
        disconnect_daemon();
    }
    return false;
}

/* Requests of an earlier daemon come first: the new one then gets all records. */
void accept_daemon(void) {
    int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (caller < 0) {
        return;
    }
    while (receive_requests()) {
        while (dispatch_requests()) {
        }
    }
    disconnect_daemon();
    daemon_socket = caller;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = daemon_socket};
    epoll_ctl(loop, EPOLL_CTL_ADD, daemon_socket, &event);
}

/* True while many attempts run, and some news just left. */
bool is_batching(void) {
    static int64_t sent_at;
    int64_t now = now_us();
    if (outbox_used > 0 && hello_done && busy_count() >= BATCH_ATTEMPTS_MIN
        && now - sent_at < BATCH_MS * 1000) {
        return true;
    }
    sent_at = outbox_used > 0 ? now : sent_at;
    return false;
}
