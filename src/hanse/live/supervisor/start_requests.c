/* Requests to start an attempt: it goes to a supervisor that waits, or to a new one. */
#include "launcher.h"

int64_t next_slot;

static void refuse_start(const struct request *request, const char *why, int error) {
    struct end end = {.kind = kind_of_failed_start(error), .ended = now_us()};
    set_note(&end, "%s%s%s", why, error ? ": " : "", error ? strerror(error) : "");
    end.sum = end_checksum(&end);
    queue_end(request->task, request->attempt, &end);
}

/* FNV-1a over the groups of a start. */
static uint64_t digest_of_groups(const char *at, const char *end) {
    uint64_t digest = 14695981039346656037u;
    for (; at < end; at++) {
        digest = (digest ^ (unsigned char)*at) * 1099511628211u;
    }
    return digest;
}

/* Hand an attempt and its record to a waiting supervisor. */
static bool hand_over(const struct supervisor *supervisor, const struct attempt *a) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } passed;
    memset(&passed, 0, sizeof passed);
    struct iovec part = {(void *)(uintptr_t)a->start, a->start->head.size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
    passed.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&passed.head), &a->record, sizeof(int));
    return sendmsg(supervisor->handoff, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)a->start->head.size;
}

/* A supervisor does not need them, above all the handoffs of others: these must
 * be closed when the launcher is gone. */
void close_launcher_files(void) {
    const int files[] = {listener, daemon_socket, news_in, loop, lock_file, silent_file};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        close_if_open(files[i]);
    }
    for (int i = 0; i < supervisor_count; i++) {
        close_if_open(supervisors[i].handoff);
        close_if_open(supervisors[i].watch);
    }
}

/* Make a supervisor, with a handoff if there is one left. False: no more processes are possible. */
static bool fork_supervisor(struct attempt *a, int64_t slot, uint64_t groups_digest, const char *at) {
    int ends[2] = {-1, -1};
    if (handoff_count < HANDOFFS_MAX && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        ends[0] = ends[1] = -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close_launcher_files();
        close_if_open(ends[0]);
        handoff = ends[1];
        own_slot = slot;
        add_watchdog(a);
        run_attempts(a, at);
    }
    int error = errno;
    close_if_open(ends[1]);
    if (pid < 0) {
        close_if_open(ends[0]);
        errno = error;
        return false;
    }
    struct supervisor *supervisor = add_supervisor(a->start->head.task, a->start->head.attempt, pid, -1);
    supervisor->handoff = ends[0];
    supervisor->slot = slot;
    supervisor->groups_digest = groups_digest;
    supervisor->turn = 1;
    handoff_count += ends[0] >= 0;
    return true;
}

static void assign_attempt(struct attempt *a, struct supervisor *idle, uint64_t groups_digest,
                           const char *at) {
    if (idle && hand_over(idle, a)) {
        idle->idle = false;
        idle_count--;
        idle->task = a->start->head.task;
        idle->attempt = a->start->head.attempt;
        idle->groups_digest = groups_digest;
        idle->turn = next_turn(idle->turn);
        return;
    }
    int64_t slot = idle ? idle->slot : next_slot++;
    if (idle) { /* it is dead; its groups' name is on the record now, and goes to its successor */
        idle->idle = false;
        idle->ended = true;
        idle_count--;
    }
    if (!fork_supervisor(a, slot, groups_digest, at)) {
        int error = errno;
        char path[64];
        snprintf(path, sizeof path, "records/%s", a->key);
        unlink(path);
        refuse_start(&a->start->head, "cannot make a process", error);
    }
}

void on_start(struct start *start) {
    static struct attempt a;
    const char *end = (const char *)start + start->head.size;
    if (start->head.size < sizeof *start || start->gids > SUPPLEMENTARY_MAX || start->groups > GROUPS_MAX
        || start->meta > COPY_BYTES
        || (size_t)start->gids * 4 + start->meta > start->head.size - sizeof *start) {
        refuse_start(&start->head, "not a request of this version", 0);
        return;
    }
    if (busy_count() == ATTEMPTS_MAX) {
        refuse_start(&start->head, "too many attempts run already", 0);
        return;
    }
    const char *at = parse_start(&a, start), *groups = at;
    next_text(&groups, end); /* behind the working directory */
    uint64_t groups_digest = digest_of_groups(groups, skip_groups(start, groups, end));
    struct supervisor *idle = start->head.size <= HANDOFF_BYTES_MAX ? choose_idle(groups_digest) : NULL;
    a.record = make_record(&a, idle ? idle->slot : next_slot, at, end);
    if (a.record < 0) {
        if (errno != EEXIST) { /* else a repeated start: it runs or has ended */
            refuse_start(&start->head, "cannot write its record", errno);
        }
        return;
    }
    if (start->flags & FRESH_DIRECTORY && take_spare_directory(&a)) {
        start->flags |= DIRECTORY_MADE;
    }
    assign_attempt(&a, idle, groups_digest, at);
    close(a.record);
}
