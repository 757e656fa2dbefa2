/* The table of supervisors: those that have an attempt, those that wait for one, and children that remove
 * directories. */
#include "launcher.h"

struct supervisor supervisors[ATTEMPTS_MAX + HANDOFFS_MAX];
int supervisor_count, idle_count, handoff_count;

struct supervisor *find_supervisor(int64_t task, int64_t attempt) {
    for (int i = 0; i < supervisor_count; i++) {
        struct supervisor *one = &supervisors[i];
        if (one->task == task && one->attempt == attempt && !one->remover && !one->idle) {
            return one;
        }
    }
    return NULL;
}

struct supervisor *find_by_pid(pid_t pid) {
    for (int i = 0; i < supervisor_count; i++) {
        if (supervisors[i].pid == pid) {
            return &supervisors[i];
        }
    }
    return NULL;
}

int busy_count(void) {
    return supervisor_count - idle_count;
}

struct supervisor *add_supervisor(int64_t task, int64_t attempt, pid_t pid, int watch) {
    if (busy_count() == ATTEMPTS_MAX) {
        return NULL;
    }
    struct supervisor *supervisor = &supervisors[supervisor_count++];
    *supervisor = (struct supervisor){
        .task = task, .attempt = attempt, .pid = pid, .watch = watch, .handoff = -1};
    return supervisor;
}

static void close_handoff(struct supervisor *supervisor) {
    if (supervisor->handoff >= 0) {
        close(supervisor->handoff);
        supervisor->handoff = -1;
        handoff_count--;
    }
}

void remove_supervisor(struct supervisor *supervisor) {
    unwatch_file(supervisor->watch);
    close_handoff(supervisor);
    idle_count -= supervisor->idle;
    *supervisor = supervisors[--supervisor_count];
}

void on_attempt_end(struct supervisor *supervisor, bool stays) {
    if (stays && supervisor->handoff >= 0) {
        supervisor->idle = true;
        idle_count++;
    } else {
        supervisor->ended = true;
    }
}

/* Preferably one that has such groups, then the last one in the table. */
struct supervisor *choose_idle(uint64_t groups_digest) {
    struct supervisor *found = NULL;
    for (int i = supervisor_count - 1; i >= 0 && idle_count > 0; i--) {
        if (supervisors[i].idle && supervisors[i].groups_digest == groups_digest) {
            return &supervisors[i];
        }
        found = !found && supervisors[i].idle ? &supervisors[i] : found;
    }
    return found;
}

void release_idle(void) {
    for (int i = 0; i < supervisor_count; i++) {
        if (supervisors[i].idle) {
            supervisors[i].idle = false;
            supervisors[i].ended = true;
            idle_count--;
            close_handoff(&supervisors[i]);
        }
    }
}

bool is_own_child(pid_t pid) {
    return find_by_pid(pid) != NULL;
}

void signal_supervisor(const struct supervisor *supervisor, int64_t number) {
    union sigval grace = {.sival_ptr = (void *)(intptr_t)number};
    if (supervisor->watch < 0) {
        sigqueue(supervisor->pid, SIGRTMIN, grace); /* a child: its number stays valid until it is reaped */
        return;
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGRTMIN;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = grace;
    syscall(SYS_pidfd_send_signal, supervisor->watch, SIGRTMIN, &info, 0);
}
