/* News and exits of supervisors. Where one was killed, the launcher kills what is left and writes the end. */
#include "launcher.h"

#include <sys/file.h>

/* Kill the remains of dead supervisors: every child but this process's own forks, and all below it. One of them
 * may be a killed supervisor that cannot exit yet, because it hangs in a write to a disk. False: some are left. */
static bool kill_orphans(void) {
    int64_t until = now_us() + KILL_MS_MAX * (int64_t)1000;
    for (int count; (count = list_descendants(getpid(), is_own_child)) > 0;) {
        if (now_us() >= until) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        for (int i = 0; i < count; i++) {
            await_exit(listed[i], until);
            waitpid(listed[i], NULL, WNOHANG);
        }
    }
    return true;
}

void record_loss(int file, struct record *record) {
    static struct group group[GROUPS_MAX];
    static char paths[GROUPS_MAX * PATH_BYTES];
    int groups = 0;
    bool gone = kill_orphans();
    if (record->groups > 0 && record->groups <= sizeof paths
        && pread(file, paths, record->groups, (off_t)(sizeof *record + record->meta)) == record->groups) {
        const char *at = paths, *end = paths + record->groups;
        for (const char *path; groups < GROUPS_MAX && (path = next_text(&at, end)); groups++) {
            group[groups].role = path[0];
            snprintf(group[groups].path, PATH_BYTES, "%s", path + 1);
        }
        const struct group *all = counting_group(group, groups);
        gone = all ? kill_group(all) : gone;
        remove_groups(group, groups);
    }
    memset(&record->end, 0, sizeof record->end);
    record->end.kind = LOST;
    record->end.ended = now_us();
    record->end.flags = gone ? 0 : STILL_ALIVE;
    set_note(&record->end, !gone ? "its supervisor died, and some of it cannot be killed"
         : record->supervisor ? "its supervisor died" : "its launcher died before it started");
    write_end(file, &record->end);
}

/* Remove the control groups of a supervisor that had no attempt. */
static void remove_slot_groups(int64_t slot) {
    char path[PATH_BYTES + 32];
    for (int i = 0; i < group_base_count; i++) {
        snprintf(path, sizeof path, "%s/%lld", group_base[i], (long long)slot);
        rmdir(path);
    }
}

/* A supervisor is gone. Its end is on record, or it was killed. */
static void on_supervisor_exit(struct supervisor *supervisor) {
    struct record record = {0};
    int64_t task = supervisor->task, attempt = supervisor->attempt;
    bool told = supervisor->ended || supervisor->remover || supervisor->idle;
    if (supervisor->idle) {
        remove_slot_groups(supervisor->slot); /* it was killed while it waited */
    }
    remove_supervisor(supervisor);
    if (told) {
        return;
    }
    int file = open_record(task, attempt, &record);
    if (file < 0) {
        return; /* forgotten meanwhile */
    }
    if (!is_valid_end(&record.end)) {
        record_loss(file, &record);
    }
    close(file);
    queue_end(task, attempt, &record.end);
}

bool on_adopted_exit(int file) {
    receive_news();
    for (int i = 0; i < supervisor_count; i++) {
        if (supervisors[i].watch == file) {
            on_supervisor_exit(&supervisors[i]);
            return true;
        }
    }
    return false;
}

bool adopt_supervisor(int64_t task, int64_t attempt, pid_t pid, int record) {
    int watch = open_pidfd(pid);
    if (watch < 0) {
        return false;
    }
    if (record >= 0 && flock(record, LOCK_EX | LOCK_NB) == 0) {
        close(watch); /* the number may be reused by now: only the lock is proof */
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = watch};
    if (!add_supervisor(task, attempt, pid, watch)) {
        log_line("more than %d attempts: %lld.%lld is not watched", ATTEMPTS_MAX, (long long)task,
            (long long)attempt);
        close(watch);
        return true;
    }
    epoll_ctl(loop, EPOLL_CTL_ADD, watch, &event);
    return true;
}

void receive_news(void) {
    static struct news received[COPY_BYTES / sizeof(struct news)];
    for (;;) {
        ssize_t got = read(news_in, received, sizeof received);
        if (got <= 0) {
            return;
        }
        for (size_t i = 0; i < (size_t)got / sizeof received[0]; i++) {
            struct news *news = &received[i];
            struct supervisor *supervisor = find_supervisor(news->task, news->attempt);
            if (!supervisor && news->kind == STARTED) {
                adopt_supervisor(news->task, news->attempt, news->supervisor, -1);
            } else if (supervisor && news->kind == ENDED) {
                on_attempt_end(supervisor, news->stays);
            }
            queue_report(news, NULL);
        }
    }
}

void receive_signals(void) {
    struct signalfd_siginfo received[16];
    ssize_t got;
    while ((got = read(signals, received, sizeof received)) > 0) {
        for (size_t i = 0; i < (size_t)got / sizeof received[0]; i++) {
            if (received[i].ssi_signo == SIGTERM) {
                exit(0); /* supervisors need no launcher */
            }
        }
    }
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
        receive_news(); /* its last news */
        struct supervisor *supervisor = find_by_pid(pid);
        if (supervisor) {
            on_supervisor_exit(supervisor);
        }
    }
}
