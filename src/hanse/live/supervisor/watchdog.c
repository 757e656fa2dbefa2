/* The watchdog of a supervisor: a process that only ends the task at the end of its lease.
 *
 * It may wait for no disk: it opens no file of one, has all that it needs locked in memory, and allocates
 * nothing in its main loop. Only the launcher waits for it. */
#include "launcher.h"

#include <link.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

enum {
    HELD_MAX = 64,                 /* processes that a watchdog holds by descriptors at once */
    STACK_BYTES = 1 << 18,         /* of a watchdog's stack kept in memory: four times its need */
    RETRY_MS_MIN = 2,              /* until a watchdog checks that the killed are gone; then twice as long */
    CHECK_MS_MAX = 100,            /* at most; and between checks of a lease that is over or unknown */
};

/* State that a supervisor and its watchdog share, in memory without a file behind it. */
struct shared_state {
    volatile int64_t run;       /* number of the supervisor's present task, from 1 on; 0: none */
    volatile int64_t killed_at; /* time of the watchdog's last kill */
    volatile bool grouped;      /* the next two fields are valid */
    char role;
    char path[PATH_BYTES];      /* of the group with the counted processes */
};

pid_t watchdog;
static struct shared_state *shared;
static pid_t found[LISTED_MAX]; /* processes that are about to be killed */

void announce_run(void) {
    static int64_t runs;
    const struct group *group = counting_group(own_groups.group, own_groups.groups);
    shared->grouped = false;
    __sync_synchronize();
    if (group) {
        shared->role = group->role;
        memcpy(shared->path, group->path, sizeof shared->path);
    }
    __sync_synchronize();
    shared->grouped = group != NULL;
    shared->run = ++runs;
}

/* Either the watchdog sees that no task is left to
 * kill, or this process sees that it killed. */
bool was_killed_by_watchdog(const struct attempt *a) {
    shared->run = 0;
    __sync_synchronize();
    return shared->killed_at >= a->end.began;
}

/* List the processes of a task: those of its group, or without one all below `root`. */
static int list_task(const struct group *group, pid_t root) {
    return group ? list_group(group->path) : list_descendants(root, NULL);
}

static bool is_listed(pid_t pid, int count) {
    for (int i = 0; i < count; i++) {
        if (listed[i] == pid) {
            return true;
        }
    }
    return false;
}

enum { HAS_EXITED = -1, NOT_HELD = -2 }; /* instead of a descriptor; NOT_HELD: none was available */

/* Kill the processes of a run; return how many lived. A number may be reused before the kill: so a descriptor
 * holds each process first, and the kill follows if its number is listed once more, as the same process. */
static int kill_listed(int64_t run, const struct group *group, pid_t root) {
    int held[HELD_MAX], killed = 0, count = list_task(group, root);
    memcpy(found, listed, (size_t)count * sizeof found[0]);
    for (int from = 0; from < count; from += HELD_MAX) {
        int some = count - from < HELD_MAX ? count - from : HELD_MAX;
        for (int i = 0; i < some; i++) {
            held[i] = is_dead(found[from + i]) ? HAS_EXITED : open_pidfd(found[from + i]);
            held[i] = held[i] == -1 && errno != ESRCH ? NOT_HELD : held[i];
        }
        int now_listed = list_task(group, root);
        for (int i = 0; i < some; i++) {
            if (held[i] != HAS_EXITED && shared->run == run && is_listed(found[from + i], now_listed)) {
                shared->killed_at = now_us(); /* every listed process began before */
                __sync_synchronize();
                killed += (held[i] == NOT_HELD ? kill(found[from + i], SIGKILL)
                           : (int)syscall(SYS_pidfd_send_signal, held[i], SIGKILL, NULL, 0)) == 0;
            }
            close_if_open(held[i]);
        }
    }
    return killed;
}

/* Kill all of a run below `root` and return how many lived. If none did, none is left: a task is in its group,
 * and below its supervisor, before it checks the lease itself and begins. Forks are stopped from the second
 * time on: often there is none. */
static int kill_run(int64_t run, pid_t root, bool again) {
    static struct group group;
    int killed = 0;
    if (shared->grouped && shared->run == run) {
        group.role = shared->role;
        memcpy(group.path, shared->path, sizeof group.path);
        if (again) {
            stop_forks(&group);
        }
        killed = kill_listed(run, &group, root);
    }
    return killed > 0 ? killed : kill_listed(run, NULL, root);
}

/* The supervisor is dead: all of its processes belong to this one now. */
static void kill_rest(void) {
    int64_t until = now_us() + KILL_MS_MAX * (int64_t)1000;
    for (bool again = false; now_us() < until; again = true) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0) {
            break;
        }
        kill_run(shared->run, getpid(), again);
        sleep_ms(1);
    }
    _exit(0); /* processes that cannot be killed fall to the launcher */
}

/* Pass on the launcher's signals to the supervisor. */
static void relay_signals(pid_t supervisor) {
    struct signalfd_siginfo received[8];
    ssize_t got = read(signals, received, sizeof received);
    for (ssize_t i = 0; i < got / (ssize_t)sizeof received[0]; i++) {
        if (received[i].ssi_signo == SIGCHLD) {
            if (waitpid(supervisor, NULL, WNOHANG) == supervisor) {
                kill_rest();
            }
        } else if (received[i].ssi_signo == (uint32_t)SIGRTMIN) {
            sigqueue(supervisor, SIGRTMIN, (union sigval){.sival_ptr = (void *)(intptr_t)received[i].ssi_ptr});
        } else {
            kill(supervisor, (int)received[i].ssi_signo);
        }
    }
}

static void touch_pages(uintptr_t at, size_t size, bool written) {
    for (uintptr_t page = at & ~(uintptr_t)(GUARD_BYTES - 1); page < at + size; page += GUARD_BYTES) {
        volatile char *byte = (volatile char *)(page < at ? at : page);
        char seen = *byte;
        if (written) {
            *byte = seen;
        }
    }
}

/* The code and the constants of the program and of its libraries. */
static int touch_program(struct dl_phdr_info *part, size_t size, void *nothing) {
    (void)size;
    (void)nothing;
    for (int i = 0; i < part->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &part->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_R) {
            touch_pages((uintptr_t)(part->dlpi_addr + segment->p_vaddr), segment->p_filesz, false);
        }
    }
    return 0;
}

static void touch_stack(void) {
    char depth[STACK_BYTES];
    touch_pages((uintptr_t)depth, sizeof depth, true);
}

/* Load, and lock in memory, everything that a watchdog needs: it may not wait for a page on a disk, nor for one
 * that the kernel would free by a write to a disk. Pages above the user's limit are left out. */
static void lock_memory(void) {
    free_buffers();
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0); /* root only: memory without waiting for file systems */
#ifdef MCL_ONFAULT
    mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
#endif
    dl_iterate_phdr(touch_program, NULL);
    touch_stack();
    touch_pages((uintptr_t)listed, sizeof listed, true);
    touch_pages((uintptr_t)found, sizeof found, true);
    touch_pages((uintptr_t)proc_entries, sizeof proc_entries, true);
    uintptr_t page = (uintptr_t)guard & ~(uintptr_t)(GUARD_BYTES - 1);
    mlock((const void *)page, GUARD_BYTES);
}

/* Main loop of a watchdog: until its supervisor is gone. */
static void watch_lease(pid_t supervisor) {
    int64_t run, tried = 0, clean = 0, clean_until = 0, pause = 0;
    int clock = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    prctl(PR_SET_NAME, "_watchdog");
    lock_memory();
    while (clock >= 0) {
        int64_t until = *guard, now = now_us();
        bool past = until == 0 || now >= until;
        int64_t next = past ? now + CHECK_MS_MAX * 1000 : until;
        run = shared->run;
        bool looked = run == clean && until == clean_until; /* a renewed lease ends again */
        if (run != 0 && ((past && until != 0 && !looked) || run == tried)) {
            bool again = run == tried;
            pause = !again ? RETRY_MS_MIN * 1000
                : pause < CHECK_MS_MAX * 500 ? pause * 2 : CHECK_MS_MAX * 1000;
            tried = run;
            shared->killed_at = now; /* before the check: see was_killed_by_watchdog */
            __sync_synchronize();
            if (kill_run(run, supervisor, again) == 0) {
                clean = run;
                clean_until = until;
                tried = 0;
            }
            next = now + pause;
        }
        struct itimerspec when = {.it_value = {next / 1000000, next % 1000000 * 1000 + 1}};
        timerfd_settime(clock, TFD_TIMER_ABSTIME, &when, NULL);
        struct pollfd poll_for[2] = {{.fd = signals, .events = POLLIN}, {.fd = clock, .events = POLLIN}};
        if (poll(poll_for, 2, -1) > 0 && poll_for[0].revents) {
            relay_signals(supervisor);
        }
    }
    _exit(1); /* which ends the supervisor, and its task */
}

void add_watchdog(struct attempt *a) {
    watchdog = getpid();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t pid = shared == MAP_FAILED ? -1 : fork();
    if (pid < 0) {
        fail_attempt(a, LOST, 0, "cannot make a watchdog", "");
    }
    if (pid > 0) {
        const int files[] = {a->record, handoff, news_out};
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            close_if_open(files[i]);
        }
        watch_lease(pid);
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* not SIGKILL: processes outside of the session would survive */
    if (getppid() != watchdog) {
        _exit(1); /* it died before the line above */
    }
}
