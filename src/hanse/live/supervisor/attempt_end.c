/* The end of an attempt: its processes are killed, its end is written and reported. */
#include "supervisor.h"

#include <sys/resource.h>

bool reap_children(struct attempt *a) {
    int status;
    struct rusage used;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
        a->cpu += ((int64_t)used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec
            + used.ru_stime.tv_usec;
        a->memory = (int64_t)used.ru_maxrss * 1024 > a->memory ? (int64_t)used.ru_maxrss * 1024 : a->memory;
        if (pid == a->child) {
            a->child_over = true;
            a->status = status;
        }
    }
    return pid == 0;
}

/* All of it is below this process: as the
 * subreaper it becomes the parent of every orphan, so without a child nothing is left. */
void kill_attempt(struct attempt *a) {
    const struct group *group = counting_group(own_groups.group, own_groups.groups);
    for (bool forks_stopped = false; reap_children(a); forks_stopped = true) {
        if (!forks_stopped) {
            stop_forks(group);
            own_groups.changed = true;
        }
        int count = group ? list_group(group->path) : 0;
        if (count == 0) {
            count = list_descendants(getpid(), NULL);
        }
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        siginfo_t gone;
        waitid(P_ALL, 0, &gone, WEXITED | WNOWAIT); /* until one of them is */
    }
}

bool send_news(uint32_t kind, const struct attempt *a, bool stays) {
    struct news news = {.kind = kind, .task = a->start->head.task, .attempt = a->start->head.attempt,
                        .supervisor = getpid(), .stays = stays, .end = a->end};
    while (write(news_out, &news, sizeof news) < 0) {
        if (errno == EAGAIN) {
            return false;
        }
        if (errno != EINTR) {
            break; /* no launcher: the next one reads the record */
        }
    }
    return true;
}

void finish_attempt(struct attempt *a, bool stays) {
    a->end.ended = now_us();
    write_end(a->record, &a->end);
    while (!send_news(ENDED, a, stays)) {
        struct pollfd room = {.fd = news_out, .events = POLLOUT};
        poll(&room, 1, -1);
    }
    close(a->record);
}

/* A full disk is no loss of the task: like one
 * without a lease it never ran, and may be tried again any number of times. */
uint32_t kind_of_failed_start(int error) {
    return error == ENOSPC || error == EDQUOT ? NO_LEASE : LOST;
}

void fail_attempt(struct attempt *a, uint32_t kind, int code, const char *what, const char *which) {
    int error = errno;
    a->end.kind = kind;
    a->end.code = code;
    set_note(&a->end, "%s%.90s: %s", what, which, strerror(error));
    kill_attempt(a);
    leave_groups();
    finish_attempt(a, false);
    _exit(0);
}

void end_without_lease(struct attempt *a) {
    a->end.kind = NO_LEASE;
    kill_attempt(a);
    leave_groups();
    finish_attempt(a, false);
    _exit(0);
}
