/* Stops and signals of a supervisor, and the turns by which it knows the attempt that a stop is for. */
#include "supervisor.h"

#include <sys/timerfd.h>

int64_t turn = 1;
int64_t early_grace = -1;

void arm_timer(const struct attempt *a) {
    int64_t at = *guard;
    if (a->stopping && (at == 0 || a->stop_at < at)) {
        at = a->stop_at;
    }
    struct itimerspec when = {.it_value = {at / 1000000, at % 1000000 * 1000}};
    if (a->stopping && at <= 0) {
        when.it_value.tv_nsec = 1; /* zero would disarm */
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Ask the task to end. The first process of a sandbox is the sandbox's own, and its end would end all others:
 * there all others are asked. */
static void ask_to_end(struct attempt *a) {
    if (a->child_over) {
        return;
    }
    if (!(a->start->flags & SANDBOXED)) {
        kill(-a->child, SIGTERM);
        kill(-a->child, SIGCONT); /* a halted one must get it too */
        return;
    }
    const struct group *group = counting_group(own_groups.group, own_groups.groups);
    int count = group ? list_group(group->path) : list_descendants(getpid(), NULL);
    bool began = false; /* below the sandbox's own two processes there is another */
    for (int i = 0; i < count; i++) {
        if (listed[i] != a->child) {
            char name[16];
            snprintf(name, sizeof name, "%d", (int)listed[i]);
            began = began || parent_of(name) != a->child;
            kill(listed[i], SIGTERM);
            kill(listed[i], SIGCONT);
        }
    }
    if (!began) {
        a->stop_at = 0; /* its program would never get the signal, and has nothing to save yet */
    }
}

int64_t next_turn(int64_t last) {
    return last % (TURNS - 1) + 1;
}

void stop_within(struct attempt *a, int64_t grace) {
    int64_t at = now_us() + grace;
    a->stop_at = a->stopping && a->stop_at < at ? a->stop_at : at;
    if (!a->stopping) {
        a->stopping = true;
        ask_to_end(a);
    }
}

/* True if a signal means stop; also the turn that it is for, and the grace. */
static bool is_stop(const struct signalfd_siginfo *received, int64_t *for_turn, int64_t *grace) {
    int64_t number = (int64_t)received->ssi_ptr;
    *for_turn = number >> GRACE_BITS;
    *grace = number & GRACE_MOST;
    return received->ssi_signo == (uint32_t)SIGRTMIN && number != READ_GUARD;
}

void handle_signals(struct attempt *a) {
    struct signalfd_siginfo received[8];
    int64_t for_turn, grace;
    ssize_t got = read(signals, received, sizeof received);
    for (ssize_t i = 0; i < got / (ssize_t)sizeof received[0]; i++) {
        if (received[i].ssi_signo == SIGCHLD) {
            reap_children(a);
        } else if (is_stop(&received[i], &for_turn, &grace)) {
            if (for_turn == 0 || for_turn == turn) {
                stop_within(a, grace);
            }
        } else if (received[i].ssi_signo == SIGTERM) {
            a->end.kind = LOST;
            set_note(&a->end, getppid() == watchdog ? "its supervisor was told to end" : "its watchdog died");
        }
    }
}

/* A task that was asked to end gets its whole grace to save its work
 * in all its processes, though its first one may be a shell that ends at once. */
bool has_ended_itself(const struct attempt *a) {
    return a->child_over && !(a->stopping && kill(-a->child, 0) == 0);
}

bool drain_signals(int64_t coming) {
    struct signalfd_siginfo received[8];
    int64_t for_turn, grace;
    bool told = false;
    for (ssize_t got; (got = read(signals, received, sizeof received)) > 0;) {
        for (ssize_t i = 0; i < got / (ssize_t)sizeof received[0]; i++) {
            told = told || received[i].ssi_signo == SIGTERM;
            if (is_stop(&received[i], &for_turn, &grace) && for_turn == coming
                && (early_grace < 0 || grace < early_grace)) {
                early_grace = grace;
            }
        }
    }
    return told;
}
