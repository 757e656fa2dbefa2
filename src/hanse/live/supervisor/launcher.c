/* The launcher: a loop over the daemon, the supervisors' news, signals, and supervisors of earlier launchers. */
#include "launcher.h"

enum {
    DAEMON_WAIT_MS = 10000,        /* for the daemon that started this launcher to connect */
    IDLE_MS_MAX = 10000,           /* after which idle supervisors exit, if there is no other work */
};

int listener = -1, news_in = -1, loop = -1;

void watch_file(int file) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    epoll_ctl(loop, EPOLL_CTL_ADD, file, &event);
}

/* Closing alone is not enough: a child that was forked in between may still
 * have it, and then it stays reported, under a number that belongs to no file. */
void unwatch_file(int file) {
    if (file >= 0) {
        epoll_ctl(loop, EPOLL_CTL_DEL, file, NULL);
        close(file);
    }
}

/* An event came for an unknown file: it cannot be removed by its number, so watch all others anew. */
static void rebuild_epoll(void) {
    int fresh = epoll_create1(EPOLL_CLOEXEC);
    if (fresh < 0) {
        return; /* it is reported again */
    }
    close(loop);
    loop = fresh;
    watch_file(listener);
    watch_file(news_in);
    watch_file(signals);
    if (daemon_socket >= 0) {
        watch_file(daemon_socket);
        outbox_polled = false;
    }
    for (int i = 0; i < supervisor_count; i++) {
        if (supervisors[i].watch >= 0) {
            watch_file(supervisors[i].watch);
        }
    }
}

void serve(void) {
    bool more = false, called = false;
    while (daemon_socket >= 0 || busy_count() > 0 || !called) {
        struct epoll_event events[64];
        bool held = is_batching(), unknown = false;
        if (!held) {
            send_reports();
        }
        write_silent();
        int quiet = !called ? DAEMON_WAIT_MS : idle_count > 0 ? IDLE_MS_MAX : -1;
        int count = epoll_wait(loop, events, 64, more ? 0 : held ? BATCH_MS : quiet);
        if (count == 0 && !more && !held) {
            called = true; /* no daemon came: stay only while an attempt runs */
            release_idle();
            remove_spares();
        }
        for (int i = 0; i < count; i++) {
            int file = events[i].data.fd;
            if (file == listener) {
                accept_daemon();
                called = true;
            } else if (file == daemon_socket) {
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                    receive_requests();
                }
            } else if (file == news_in) {
                receive_news();
            } else if (file == signals) {
                receive_signals();
            } else if (!on_adopted_exit(file)) {
                unknown = true;
            }
        }
        if (unknown) {
            rebuild_epoll();
        }
        more = dispatch_requests();
    }
}

/* This launcher has no user any more. Its supervisors remove their groups. */
void close_launcher(void) {
    unlink("launcher");
    close(listener);
    release_idle();
    remove_spares();
    int64_t until = now_us() + KILL_MS_MAX * (int64_t)1000;
    for (int i = 0; i < supervisor_count && now_us() < until; i++) {
        await_exit(supervisors[i].pid, until);
    }
    for (int i = 0; i < group_base_count; i++) {
        rmdir(group_base[i]);
    }
}
