/* A supervisor: its attempts one after the other, each from its request to its end. */
#include "supervisor.h"

#include <sys/timerfd.h>

int handoff = -1, timer = -1, null_file = -1;

const char *parse_start(struct attempt *a, const struct start *start) {
    const char *at = (const char *)(start + 1);
    memset(a, 0, sizeof *a);
    a->start = start;
    a->sandbox_report = -1;
    a->gids = (const uint32_t *)at;
    a->meta = at + (size_t)start->gids * 4;
    format_key(a->key, sizeof a->key, start->head.task, start->head.attempt);
    return a->meta + start->meta;
}

static char **read_texts(const char **at, const char *end, uint32_t count) {
    char **list = calloc((size_t)count + 1, sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) {
        list[i] = (char *)next_text(at, end);
        if (!list[i]) {
            return NULL;
        }
    }
    return list;
}

static void run_until_end(struct attempt *a) {
    if (early_grace >= 0) {
        stop_within(a, early_grace);
        early_grace = -1;
    }
    arm_timer(a);
    while (a->end.kind == NOT_ENDED && !has_ended_itself(a)) {
        struct pollfd poll_for[5] = {
            {.fd = signals, .events = POLLIN},
            {.fd = timer, .events = POLLIN},
            {.fd = a->stream[0].pipe, .events = POLLIN},
            {.fd = a->stream[1].pipe, .events = POLLIN},
            {.fd = a->start_unreported ? news_out : -1, .events = POLLOUT},
        };
        if (poll(poll_for, 5, -1) < 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (poll_for[2 + i].revents) {
                copy_output(a, &a->stream[i]);
            }
        }
        if (poll_for[0].revents) {
            handle_signals(a);
            arm_timer(a);
        }
        if (poll_for[1].revents) {
            uint64_t expiries;
            ssize_t got = read(timer, &expiries, sizeof expiries);
            (void)got;
            int64_t now = now_us();
            if (*guard != 0 && now >= *guard) {
                a->end.kind = LEASE_OVER;
            } else if (a->stopping && now >= a->stop_at) {
                a->end.kind = STOPPED;
            }
            arm_timer(a);
        }
        if (poll_for[4].revents) {
            a->start_unreported = !send_news(STARTED, a, false);
        }
    }
}

static void conclude_attempt(struct attempt *a) {
    kill_attempt(a);
    if (was_killed_by_watchdog(a)) {
        own_groups.changed = true;
        a->end.kind = a->end.kind == NOT_ENDED ? LEASE_OVER : a->end.kind;
    }
    for (int i = 0; i < 2; i++) {
        while (copy_output(a, &a->stream[i])) {
        }
        a->end.flags |= a->stream[i].cut ? (i ? STDERR_CUT : STDOUT_CUT) : 0;
    }
    a->end.bytes_out = a->stream[0].written;
    a->end.bytes_err = a->stream[1].written;
    a->end.code = WIFSIGNALED(a->status) ? -WTERMSIG(a->status) : WEXITSTATUS(a->status);
    if (a->end.kind == NOT_ENDED) {
        a->end.kind = a->stopping ? STOPPED : EXITED;
    }
    explain_sandbox_failure(a);
    measure_usage(a);
    bool stays = handoff >= 0 && a->end.kind != LOST;
    if (!stays || !reset_measurements()) {
        leave_groups();
    }
    if (a->start_unreported) {
        send_news(STARTED, a, false);
    }
    for (int i = 0; i < 2; i++) {
        close_if_open(a->stream[i].pipe);
        close_if_open(a->stream[i].file);
    }
    finish_attempt(a, stays);
    free(a->argv);
    free(a->env);
    if (!stays) {
        _exit(0);
    }
}

static void make_directories(struct attempt *a) {
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &a->stream[i];
        stream->file = stream->pipe = -1;
        snprintf(stream->path, sizeof stream->path, "output/%s.%s", a->key, i ? "stderr" : "stdout");
    }
    if (a->start->flags & FRESH_DIRECTORY) {
        snprintf(a->work, sizeof a->work, "work/%s", a->key);
        if (!(a->start->flags & DIRECTORY_MADE)
            && (mkdir(a->work, 0700)
                || (a->start->uid >= 0 && chown(a->work, (uid_t)a->start->uid, (gid_t)a->start->gid)))) {
            fail_attempt(a, kind_of_failed_start(errno), 0, "cannot make the working directory ", a->work);
        }
        a->workdir = a->work;
    }
}

/* One attempt, from its request to its end. */
static void run_attempt(struct attempt *a, const char *at, const char *end) {
    int32_t self = getpid();
    if (pwrite(a->record, &self, sizeof self, offsetof(struct record, supervisor)) < 0) {
        fail_attempt(a, kind_of_failed_start(errno), 0, "cannot write the record", "");
    }
    if (is_lease_over(a->start)) {
        end_without_lease(a);
    }
    a->workdir = next_text(&at, end);
    take_groups(a, &at, end);
    a->argv = read_texts(&at, end, a->start->argc);
    a->env = read_texts(&at, end, a->start->envc);
    a->secret = a->start->flags & HAS_KEY ? next_text(&at, end) : NULL;
    errno = EINVAL;
    if (!a->argv || !a->env || (a->start->flags & HAS_KEY && !a->secret) || a->start->argc == 0) {
        fail_attempt(a, LOST, 0, "not a request of this version", "");
    }
    make_directories(a);
    start_program(a);
    run_until_end(a);
    conclude_attempt(a);
}

/* Return the next request and its record, from the launcher. Does not return when there will be none. */
static const struct start *next_request(int *record) {
    static int64_t request[HANDOFF_BYTES_MAX / sizeof(int64_t)];
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } passed;
    for (;;) {
        struct iovec part = {request, sizeof request};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
        ssize_t got = recvmsg(handoff, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        const struct cmsghdr *with = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
        if (with && with->cmsg_type == SCM_RIGHTS) {
            memcpy(record, CMSG_DATA(with), sizeof *record);
            return (const struct start *)request;
        }
        struct pollfd poll_for[2] = {{.fd = handoff, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)
            || (poll(poll_for, 2, -1) > 0 && poll_for[1].revents && drain_signals(next_turn(turn)))) {
            leave_groups();
            _exit(0);
        }
    }
}

void run_attempts(struct attempt *a, const char *at) {
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    null_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (timer < 0 || null_file < 0) {
        fail_attempt(a, LOST, 0, "cannot make a timer", "");
    }
    for (;;) {
        run_attempt(a, at, (const char *)a->start + a->start->head.size);
        int record;
        const struct start *start = next_request(&record);
        at = parse_start(a, start);
        a->record = record;
        turn = next_turn(turn);
        if (drain_signals(turn)) {
            set_note(&a->end, "its supervisor was told to end");
            a->end.kind = LOST;
            leave_groups();
            finish_attempt(a, false);
            _exit(0);
        }
    }
}
