/* The launcher of a runner, and the supervisor of each of its attempts: tasks as processes that outlive every
 * daemon.
 *
 * C99, no Python.h, no library but libc: a supervisor costs a fork of this small process, not the start of an
 * interpreter. One process per runner is the *launcher*: it is detached, listens on a socket in the runner's
 * directory (its working directory), and gives every attempt that it starts a *supervisor*. A supervisor owns
 * all parts of one attempt: control groups, limits, output, the lease watchdog, the clean-up, the record of its
 * end. Neither needs the daemon; a supervisor does not need the launcher either.
 *
 * A supervisor has one attempt at a time. When that has ended and left nothing behind, the supervisor waits a
 * while for the launcher to hand it the next one (over its *desk*, a socket of its own), with its control groups
 * if the limits are the same: to make and remove these, and the process, would cost more than a short task does.
 * When the launcher is gone, its desks are closed, and each supervisor exits after its present attempt.
 *
 *   records/TASK.ATTEMPT    one file per attempt, written before it runs, locked (flock) by its supervisor
 *                           as proof of life: unlike a process number, a lock cannot be mistaken. The end is
 *                           written into the same file, over bytes reserved at its making (so a full disk
 *                           cannot lose it), in one write within one page, with a checksum. Nothing is
 *                           synced: records must survive the death of processes, not of the machine, after
 *                           which nothing runs and an attempt without a valid end is lost.
 *   output/TASK.ATTEMPT.*   its stdout and stderr, each made with its first byte
 *   output/silent, .old     forgotten attempts that wrote nothing, as pairs of numbers; bounded by replacing
 *                           the older file
 *   work/TASK.ATTEMPT       its working directory
 *   records, work: spare.N  records and empty directories of forgotten attempts, for the next ones: no operation
 *                           of a file system costs more than to make and remove files
 *   guard                   shared memory: the time at which all attempts end unless it is moved
 *   launcher, news          the launcher's socket, and the pipe by which supervisors report starts and ends.
 *                           The record has each of them first: a reader that opens the pipe and then reads the
 *                           records misses nothing.
 *
 * Between the launcher and each supervisor stands a *watchdog*, a process that only ends the task at the end of
 * its lease, because a supervisor may hang in a write to a disk, or be halted. It opens no file of a disk and
 * shares no memory that it could wait for, and only the launcher waits for it. The launcher takes the watchdog
 * for the supervisor: signals for the supervisor go through the watchdog.
 *
 * When a supervisor is killed, the kernel kills its task (PR_SET_PDEATHSIG) and hands the rest to the watchdog
 * (PR_SET_CHILD_SUBREAPER), which kills it and exits; then the launcher writes the end: lost. When a watchdog is
 * killed, the kernel signals its supervisor to end, which ends its task; and the launcher kills both, in case the
 * supervisor hangs. When a launcher is killed, the daemon starts another, which finds the supervisors by their
 * records and watches them by process file descriptors.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef HANSE_SOURCE_CRC
#define HANSE_SOURCE_CRC 0u
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

enum {
    RECORD_MAGIC = 0x48616e73,
    FRAME_BYTES_MAX = 8 << 20,     /* of a request; the daemon's limit is lower */
    REQUESTS_AT_ONCE = 16,         /* between two checks for ended processes */
    EVENTS_BYTES_MAX = 64 << 20,   /* queued for a daemon that does not read; above this it must reconnect */
    ATTEMPTS_MAX = 8192,           /* alive at once; more are refused */
    GROUPS_MAX = 4,
    SUPPLEMENTARY_MAX = 256,
    PATH_BYTES = 4096,
    PIPE_BYTES = 1 << 20,          /* requested size of the news pipe */
    COPY_BYTES = 1 << 16,
    LOCK_SECONDS_MAX = 10,         /* for another launcher to exit */
    LINGER_MS = 10000,             /* for the daemon that started this launcher to connect */
    BURIAL_MS_MAX = 5000,          /* for killed processes to disappear */
    RMDIR_TRIES_MAX = 200,         /* a millisecond apart: the kernel releases a group a little later */
    BIRTH_MS_MAX = 1000,           /* for a supervisor's first instruction */
    DESKS_MAX = 128,               /* supervisors that can be used again; others have one attempt and exit */
    IDLE_MS_MAX = 10000,           /* after which idle supervisors exit, if there is no other work */
    HANDED_BYTES_MAX = 1 << 15,    /* of a request that fits into a desk; a longer one gets a new supervisor */
    CROWD = 8,                     /* attempts under way from which on news go out together */
    CROWD_MS = 3,                  /* between two such batches */
    SPARES_MAX = 64,               /* records, and directories, kept for the next attempts */
    SPARE_BYTES_MAX = 4096,        /* of a directory; one that was large once stays slow */
    SILENT_MAX = 10000,            /* attempts in a file of those that wrote nothing */
    LEFT_BYTES_MAX = 1 << 20,      /* memory still charged to a group that may be used again (mostly caches) */
    LEFT_SHARE = 16,               /* and at most this part of its limit */
    GUARD_BYTES = 4096,
    GUARD_AT = 40,                 /* behind the boot id */
    HELD_MAX = 64,                 /* processes that a watchdog holds by descriptors at once */
    ENTRIES_BYTES = 1 << 15,       /* of a directory, read in one call */
    DEPTH_BYTES = 1 << 18,         /* of a watchdog's stack kept in memory: four times its need */
    AGAIN_MS = 2,                  /* until a watchdog checks that the killed are gone; then twice as long */
    LOOK_MS = 100,                 /* at most; and between checks of a lease that is over or unknown */
    EXIT_LOCKED = 75,
};

/* Requests of the daemon, and reports to it. */
enum { HELLO = 1, START = 2, STOP = 3, FORGET = 4, DROP = 5, WATCH = 6 };
enum { LOOK = -1 }; /* instead of a grace: only read the guard */
/* A signal to stop names its supervisor's attempt, because a supervisor with the next attempt may still get the
 * stop of the last: the attempt's turn, from 1 on, above so many bits of grace. 0: the present attempt; used
 * for a supervisor of another launcher, which gets no more attempts. */
enum { GRACE_BITS = 44, TURNS = 1 << 17 };
#define GRACE_MOST (((int64_t)1 << GRACE_BITS) - 1)
enum { SILENT = 1 }; /* FORGET: it wrote nothing */
enum { FOUND_RUNNING = 1, FOUND_ENDED = 2, READY = 3, STARTED = 4, ENDED = 5 };
/* How an attempt ended, and remarks on its end. */
enum { NOT_ENDED = 0, EXITED = 1, STOPPED = 2, LEASE_OVER = 3, NO_LEASE = 4, UNFIT = 5, LOST = 6 };
enum { OUT_OF_MEMORY = 1, STDOUT_CUT = 2, STDERR_CUT = 4 };
/* Flags of a start. */
enum { FRESH_DIRECTORY = 1, SANDBOXED = 2, NO_NEW_PRIVILEGES = 4, HAS_KEY = 8, ALONE = 16 };
enum { NO_GROUP = 65534 }; /* a group that owns no files */
enum { DIRECTORY_MADE = 1 << 16 }; /* set by the launcher, for a fresh directory */

struct end {
    uint32_t sum;
    uint32_t kind;
    int32_t code; /* exit code, or minus the signal */
    uint32_t flags;
    int64_t cpu;    /* microseconds */
    int64_t memory; /* peak, bytes */
    int64_t began;  /* CLOCK_BOOTTIME, microseconds; 0: it never ran */
    int64_t ended;
    int64_t bytes_out;
    int64_t bytes_err;
    char note[176];
};

struct record {
    uint32_t magic;
    uint32_t meta;   /* bytes of the daemon's metadata, behind this */
    uint32_t groups; /* bytes of the paths of its control groups, behind those */
    int32_t supervisor;
    int64_t task;
    int64_t attempt;
    struct end end;
};

struct news {
    uint32_t kind;
    uint32_t extra; /* bytes that follow */
    int64_t task;
    int64_t attempt;
    int32_t supervisor;
    uint32_t stays; /* ENDED: nonzero if it can take another attempt */
    struct end end;
};

struct request {
    uint32_t size; /* of the whole frame */
    uint32_t kind;
    int64_t task;
    int64_t attempt;
    int64_t grace; /* STOP: microseconds. HELLO: the checksum of the daemon's source, or 0. START: when the order
                    * expires, on CLOCK_BOOTTIME in microseconds; 0: never */
};

struct start {
    struct request head;
    int64_t output_max; /* bytes per stream */
    int64_t data_max;   /* RLIMIT_DATA, bytes; 0: unchanged */
    int64_t processes_max; /* RLIMIT_NPROC; 0: unchanged */
    int32_t uid;        /* -1: the launcher's */
    int32_t gid;
    uint32_t flags;
    uint32_t gids, meta, groups, argc, envc;
    /* then gids as uint32, meta, and texts: working directory, groups, argv, env, and the key for its standard
     * input, if it has one. A group is its role and directory, then `file=value` for each setting, then an
     * empty text. */
};

/* A control group of one attempt. Roles: c, a, m, p = cpu, cpuacct, memory, pids of version 1; u = version 2. */
struct group {
    char role;
    char path[PATH_BYTES];
    int join;
    int cpu, peak, kills, level;         /* files to measure by; -1: none */
    int64_t cpu_before, kills_before, level_before; /* values left by earlier attempts */
    int64_t left_max;                    /* bytes of memory that may be left for another attempt */
};

/* The control groups of a supervisor, and the request's text that made them. */
struct quarters {
    struct group group[GROUPS_MAX];
    int groups;
    bool spoilt; /* changed since their making: not for another attempt */
    uint32_t text_size;
    char text[HANDED_BYTES_MAX];
};

struct stream {
    int pipe;
    int file;
    int64_t written;
    bool cut;
    char path[64];
};

struct attempt {
    const struct start *start;
    const uint32_t *gids;
    const char *meta;
    const char *workdir;
    char work[64]; /* a directory of its own, if it asked for none */
    char **argv;
    char **env;
    const char *secret; /* the content of its standard input; NULL: none */
    char key[48];
    int record;
    struct stream stream[2];
    struct end end;
    pid_t child;
    bool child_over;
    int status;
    bool stopping;
    int64_t stop_at;
    bool untold; /* its start is not reported */
    int64_t cpu;    /* microseconds of all reaped processes */
    int64_t memory; /* peak bytes of one of them */
};

/* State that a supervisor and its watchdog share, in memory without a file behind it. */
struct between {
    volatile int64_t run;       /* number of the supervisor's present task, from 1 on; 0: none */
    volatile int64_t killed_at; /* time of the watchdog's last kill */
    volatile bool grouped;      /* the next two fields are valid */
    char role;
    char path[PATH_BYTES];      /* of the group with the counted processes */
};

/* An attempt as the launcher knows it. */
struct life {
    int64_t task;
    int64_t attempt;
    pid_t pid; /* of its watchdog, if that is a child of this launcher */
    int watch; /* process file descriptor of another launcher's fork; -1: own child */
    int desk;  /* socket for another attempt; -1: it exits after this one */
    int64_t slot;   /* the name of its control groups */
    uint64_t likes; /* a digest of their settings */
    int64_t turn;   /* of its attempt; 0: another launcher made it */
    bool idle;      /* it waits for an attempt, and has none */
    bool ended;
    bool remover; /* a child that removes a directory, no supervisor */
};

static int listener = -1, door = -1, news_in = -1, news_out = -1, signals = -1, loop = -1, lock_file = -1;
static volatile int64_t *guard;
static struct life lives[ATTEMPTS_MAX + DESKS_MAX];
static int life_count, idle_count, desk_count;
static int64_t next_slot;
static char *inbox;
static size_t inbox_used;
static char *outbox;
static size_t outbox_used, outbox_size;
static bool outbox_armed;
static bool greeted; /* the daemon has all records; before that, it would not know the attempts in news */
static char base[GROUPS_MAX][PATH_BYTES]; /* directories to remove with the launcher */
static int base_count;
static int spare_record[SPARES_MAX], spare_records, spare_place[SPARES_MAX], spare_places, spare_serial;
static uid_t spare_uid, last_uid; /* owner of the spare directories, and last user of one */
static gid_t spare_gid;
static int64_t silent[SPARES_MAX][2];
static int silent_count, silent_file = -1;
static int64_t silent_written;

/* State of a supervisor. */
static struct quarters quarters;
static int64_t own_slot;
static int desk = -1, timer = -1, null_file = -1;
static struct between *between; /* shared with its watchdog */
static pid_t watchdog;

/* Fault in the child before its program ran: it shares this memory until then. */
static volatile int trouble_step, trouble_errno;
enum { NO_TROUBLE, TROUBLE_GROUP, TROUBLE_SETUP, TROUBLE_USER, TROUBLE_WORKDIR, TROUBLE_PROGRAM, TROUBLE_LEASE, TROUBLE_ALONE };

/* --- helpers ---------------------------------------------------------------------------------------------- */

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* True if the lease is over, or the lease of the order to start: a renewed lease is not for an order that
 * waited for a disk meanwhile. */
static bool lease_over(const struct start *start) {
    int64_t until = *guard, good = start->head.grace, now = now_us();
    return (until != 0 && now >= until) || (good != 0 && now >= good);
}

static void doze_ms(int milliseconds) {
    poll(NULL, 0, milliseconds);
}

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static uint32_t checksum(const struct end *end) { /* FNV-1a over all but the sum itself */
    const unsigned char *byte = (const unsigned char *)end;
    uint32_t sum = 2166136261u;
    for (size_t i = sizeof end->sum; i < sizeof *end; i++) {
        sum = (sum ^ byte[i]) * 16777619u;
    }
    return sum;
}

static bool is_end(const struct end *end) {
    return end->kind != NOT_ENDED && end->sum == checksum(end);
}

static void key_of(char *key, size_t size, int64_t task, int64_t attempt) {
    snprintf(key, size, "%lld.%lld", (long long)task, (long long)attempt);
}

static void close_if_open(int file) {
    if (file >= 0) {
        close(file);
    }
}

static int pidfd_open_(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static ssize_t read_file(const char *directory, const char *name, char *text, size_t size) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t got = read(file, text, size - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got;
}

static int write_file(const char *directory, const char *name, size_t name_length, const char *text) {
    char path[PATH_BYTES + 128];
    snprintf(path, sizeof path, "%s/%.*s", directory, (int)name_length, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t done = write(file, text, strlen(text));
    int error = errno;
    close(file);
    errno = error;
    return done < 0 ? -1 : 0;
}

/* Return the number behind a word in a file of lines `word number`; -1 if it is missing. */
static int64_t number_after(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, word, length) == 0 && line[length] == ' ') {
            return strtoll(line + length, NULL, 10);
        }
    }
    return -1;
}

/* --- processes of an attempt ------------------------------------------------------------------------------ */

enum { LISTED_MAX = 4096 };
static pid_t listed[LISTED_MAX], found[LISTED_MAX];
static char entries[ENTRIES_BYTES];

static int list_group(const char *path) {
    char text[COPY_BYTES];
    if (read_file(path, "cgroup.procs", text, sizeof text) <= 0) {
        return 0;
    }
    int count = 0;
    for (char *at = text, *next; count < LISTED_MAX; at = next) {
        long pid = strtol(at, &next, 10);
        if (next == at) {
            break;
        }
        if (pid > 0) {
            listed[count++] = (pid_t)pid;
        }
    }
    return count;
}

static pid_t parent_of(const char *pid) {
    char directory[300], text[1024];
    snprintf(directory, sizeof directory, "/proc/%s", pid);
    if (read_file(directory, "stat", text, sizeof text) <= 0) {
        return -1;
    }
    const char *behind = strrchr(text, ')'); /* a program's name may contain any byte */
    int parent = -1;
    return behind && sscanf(behind + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static bool is_ours(pid_t pid);

/* List all processes below `root`; with `strangers` without those below the launcher's own forks. Children have
 * larger numbers than their parents until numbers wrap around, so one walk finds nearly all; callers repeat
 * until nothing is left. It allocates no memory: a watchdog may not wait for any. */
static int list_descendants(pid_t root, bool strangers) {
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    for (long got; proc >= 0 && (got = syscall(SYS_getdents64, proc, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < got && count < LISTED_MAX;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
            at += entry->d_reclen;
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9') {
                continue;
            }
            pid_t pid = (pid_t)atoi(entry->d_name), parent = parent_of(entry->d_name);
            bool below = parent == root && !(strangers && is_ours(pid));
            for (int i = 0; !below && i < count; i++) {
                below = parent == listed[i];
            }
            if (below) {
                listed[count++] = pid;
            }
        }
    }
    close_if_open(proc);
    return count;
}

/* Return the group of an attempt with the counted processes. */
static const struct group *census(const struct group *group, int groups) {
    const struct group *best = NULL; /* pids: it can also stop forks */
    for (int i = 0; i < groups; i++) {
        if (!best || group[i].role == 'p' || group[i].role == 'u') {
            best = &group[i];
        }
    }
    return best;
}

static void stop_forks(const struct group *count) {
    if (count && (count->role == 'p' || count->role == 'u')) {
        write_file(count->path, "pids.max", 8, "0");
    }
    if (count && count->role == 'u') {
        write_file(count->path, "cgroup.kill", 11, "1");
    }
}

/* Reap the ended children. False: there is no child at all. */
static bool reap(struct attempt *a) {
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

/* Kill all that is left of an attempt and wait until it is gone. All of it is below this process: as the
 * subreaper it becomes the parent of every orphan, so without a child nothing is left. */
static void kill_all(struct attempt *a) {
    const struct group *group = census(quarters.group, quarters.groups);
    for (bool forks_stopped = false; reap(a); forks_stopped = true) {
        if (!forks_stopped) {
            stop_forks(group);
            quarters.spoilt = true;
        }
        int count = group ? list_group(group->path) : 0;
        if (count == 0) {
            count = list_descendants(getpid(), false);
        }
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        siginfo_t gone;
        waitid(P_ALL, 0, &gone, WEXITED | WNOWAIT); /* until one of them is */
    }
}

/* Wait for the end of a killed process, which may be stuck in the kernel. False: it is later than `until`. */
static bool await_end(pid_t pid, int64_t until) {
    struct pollfd gone = {.fd = pidfd_open_(pid), .events = POLLIN};
    int64_t left = (until - now_us()) / 1000;
    if (gone.fd < 0) {
        doze_ms(1); /* it is about to end */
    } else {
        poll(&gone, 1, left > 0 ? (int)left : 0);
        close(gone.fd);
    }
    return left > 0;
}

/* The same for an attempt with a dead supervisor: its processes are not below this one, or were left to it. */
static bool kill_group(const struct group *group) {
    int64_t until = now_us() + BURIAL_MS_MAX * (int64_t)1000;
    stop_forks(group);
    for (int count; (count = list_group(group->path)) > 0;) {
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        if (!await_end(listed[0], until)) {
            return false;
        }
    }
    return true;
}

/* Remove the control groups of a supervisor that has exited or is exiting. */
static void remove_groups(const struct group *group, int groups) {
    for (int i = 0; i < groups; i++) {
        for (int tries = 0; rmdir(group[i].path) && errno == EBUSY && tries < RMDIR_TRIES_MAX; tries++) {
            doze_ms(1);
        }
    }
}

static void leave_groups(void) {
    for (int i = 0; i < quarters.groups; i++) {
        const struct group *group = &quarters.group[i];
        const int files[5] = {group->join, group->cpu, group->peak, group->kills, group->level};
        for (int k = 0; k < 5; k++) {
            close_if_open(files[k]);
        }
    }
    remove_groups(quarters.group, quarters.groups);
    quarters.groups = 0;
    quarters.text_size = 0;
    quarters.spoilt = false;
}

/* --- the end of an attempt -------------------------------------------------------------------------------- */

static void note(struct end *end, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(end->note, sizeof end->note, format, arguments);
    va_end(arguments);
}

static int64_t number_in(int file, const char *word) {
    char text[4096];
    ssize_t got = file >= 0 ? pread(file, text, sizeof text - 1, 0) : -1;
    if (got <= 0) {
        return -1;
    }
    text[got] = 0;
    return word ? number_after(text, word) : strtoll(text, NULL, 10);
}

/* CPU time in microseconds since the group was made, or -1. Only it counts children that were not waited for;
 * in c, if cpu and cpuacct are one hierarchy. */
static int64_t cpu_in(const struct group *group) {
    int64_t found = number_in(group->cpu, group->role == 'u' ? "usage_usec" : NULL);
    return found > 0 && group->role != 'u' ? found / 1000 : found;
}

static void measure(struct attempt *a) {
    a->end.cpu = a->cpu;
    a->end.memory = a->memory;
    for (int i = 0; i < quarters.groups; i++) {
        struct group *group = &quarters.group[i];
        int64_t cpu = cpu_in(group), peak = number_in(group->peak, NULL);
        int64_t kills = number_in(group->kills, "oom_kill");
        if (cpu >= 0) {
            a->end.cpu = cpu - group->cpu_before > a->end.cpu ? cpu - group->cpu_before : a->end.cpu;
            group->cpu_before = cpu;
        }
        if (peak >= 0) {
            a->end.memory = peak > group->level_before ? peak - group->level_before : 0;
        }
        if (kills > group->kills_before) {
            a->end.flags |= OUT_OF_MEMORY;
            group->kills_before = kills;
        }
    }
}

/* True if the groups are as good as new: measurements begin anew, and hardly any memory is left in them. The
 * rest is mostly caches, which the kernel reclaims before a limit is reached. */
static bool freshen(void) {
    for (int i = 0; i < quarters.groups && !quarters.spoilt; i++) {
        struct group *group = &quarters.group[i];
        if (group->level < 0) {
            continue;
        }
        group->level_before = number_in(group->level, NULL);
        quarters.spoilt = group->level_before < 0 || group->level_before > group->left_max
            || (group->peak >= 0 && pwrite(group->peak, "0", 1, 0) != 1); /* version 2: since Linux 6.12 */
    }
    return !quarters.spoilt;
}

static void write_end(int record, struct end *end) {
    end->sum = checksum(end);
    if (pwrite(record, end, sizeof *end, offsetof(struct record, end)) != (ssize_t)sizeof *end) {
        say("cannot write an end: %s", strerror(errno)); /* a reader of the record will call it lost */
    }
}

/* Report to the launcher, if there is one. False: its pipe is full, try again. */
static bool tell(uint32_t kind, const struct attempt *a, bool stays) {
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

static void over(struct attempt *a, bool stays) {
    a->end.ended = now_us();
    write_end(a->record, &a->end);
    while (!tell(ENDED, a, stays)) {
        struct pollfd room = {.fd = news_out, .events = POLLOUT};
        poll(&room, 1, -1);
    }
    close(a->record);
}

/* --- output ----------------------------------------------------------------------------------------------- */

static void open_output(struct stream *stream) {
    if (stream->file < 0) {
        stream->file = open(stream->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    }
}

static void keep(struct stream *stream, const char *bytes, int64_t count, int64_t max) {
    open_output(stream);
    int64_t wanted = stream->cut ? 0 : count < max - stream->written ? count : max - stream->written;
    int64_t kept = 0;
    while (kept < wanted) {
        ssize_t done = pwrite(stream->file, bytes + kept, (size_t)(wanted - kept), stream->written);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            break; /* no space: the drop is noted, and the task goes on */
        }
        kept += done;
        stream->written += done;
    }
    if (kept < count && !stream->cut) {
        char text[128];
        int length = wanted < count
            ? snprintf(text, sizeof text,
                       "\n[hanse: the output limit of %lld bytes is reached; what followed was dropped]\n",
                       (long long)max)
            : snprintf(text, sizeof text, "\n[hanse: the disk is full; what followed was dropped]\n");
        stream->cut = true;
        ssize_t done = pwrite(stream->file, text, (size_t)length, stream->written);
        stream->written += done > 0 ? done : 0;
    }
}

/* Read the present output, at most one buffer of it. False: there is none now, or the stream has ended. */
static bool pump(struct attempt *a, struct stream *stream) {
    static char buffer[COPY_BYTES];
    if (stream->pipe < 0) {
        return false;
    }
    ssize_t got = read(stream->pipe, buffer, sizeof buffer);
    if (got > 0) {
        keep(stream, buffer, got, a->start->output_max);
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->pipe);
        stream->pipe = -1;
    }
    return false;
}

/* --- the start of a task ---------------------------------------------------------------------------------- */

/* The end of an attempt that could not be started for this reason. A full disk is no loss of the task: like one
 * without a lease it never ran, and may be tried again any number of times. */
static uint32_t unstarted(int error) {
    return error == ENOSPC || error == EDQUOT ? NO_LEASE : LOST;
}

static void fail(struct attempt *a, uint32_t kind, int code, const char *what, const char *which) {
    int error = errno;
    a->end.kind = kind;
    a->end.code = code;
    note(&a->end, "%s%.90s: %s", what, which, strerror(error));
    kill_all(a);
    leave_groups();
    over(a, false);
    _exit(0);
}

static const char *next_text(const char **at, const char *end) {
    const char *text = *at;
    const char *zero = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    *at = zero ? zero + 1 : end;
    return zero ? text : NULL;
}

static char **texts(const char **at, const char *end, uint32_t count) {
    char **list = calloc((size_t)count + 1, sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) {
        list[i] = (char *)next_text(at, end);
        if (!list[i]) {
            return NULL;
        }
    }
    return list;
}

static int open_in(const struct group *group, const char *name, int how) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group->path, name);
    return open(path, how | O_CLOEXEC);
}

static int64_t left_max(const struct group *group) {
    char text[64];
    const char *name = group->role == 'm' ? "memory.limit_in_bytes" : "memory.max";
    if (read_file(group->path, name, text, sizeof text) <= 0 || text[0] == 'm') { /* "max" */
        return LEFT_BYTES_MAX;
    }
    int64_t share = strtoll(text, NULL, 10) / LEFT_SHARE;
    return share < LEFT_BYTES_MAX ? share : LEFT_BYTES_MAX;
}

/* Open the files to join and measure a group, once for all of its attempts. */
static void open_group(struct attempt *a, struct group *group) {
    bool unified = group->role == 'u';
    /* Version 1: moving a process's only thread takes no global lock, moving a process does. */
    group->join = open_in(group, unified ? "cgroup.procs" : "tasks", O_WRONLY);
    if (group->join < 0) {
        fail(a, LOST, 0, "cannot enter the control group ", group->path);
    }
    if (unified || group->role == 'm') {
        group->kills = open_in(group, unified ? "memory.events" : "memory.oom_control", O_RDONLY);
        group->level = open_in(group, unified ? "memory.current" : "memory.usage_in_bytes", O_RDONLY);
        const char *peak = unified ? "memory.peak" : "memory.max_usage_in_bytes";
        group->peak = open_in(group, peak, O_RDWR);
        group->peak = group->peak < 0 ? open_in(group, peak, O_RDONLY) : group->peak;
        group->left_max = left_max(group);
    }
    if (unified || group->role == 'c' || group->role == 'a') {
        group->cpu = open_in(group, unified ? "cpu.stat" : "cpuacct.usage", O_RDONLY);
    }
}

static void make_group(struct attempt *a, const char **at, const char *end) {
    const char *head = next_text(at, end);
    struct group *group = &quarters.group[quarters.groups];
    *group = (struct group){.role = head[0], .join = -1, .cpu = -1, .peak = -1, .kills = -1, .level = -1};
    snprintf(group->path, sizeof group->path, "%s/%lld", head + 1, (long long)own_slot);
    if (mkdir(group->path, 0755) && errno != EEXIST) {
        fail(a, LOST, 0, "cannot make the control group ", group->path);
    }
    quarters.groups++;
    for (const char *line; (line = next_text(at, end)) && *line;) {
        const char *equals = strchr(line, '=');
        bool optional = line[0] == '?'; /* a file that some kernels lack */
        line += optional;
        if (!equals || (write_file(group->path, line, (size_t)(equals - line), equals + 1) && !optional)) {
            fail(a, LOST, 0, "cannot set the limit ", line);
        }
    }
    open_group(a, group);
}

/* The groups of a start, behind its working directory, as one text. */
static const char *skip_groups(const struct start *start, const char *at, const char *end) {
    for (uint32_t i = 0; i < start->groups; i++) {
        for (const char *line; (line = next_text(&at, end)) && *line;) {
        }
    }
    return at;
}

/* The groups of an attempt with their limits: the present ones if the same text made them. */
static void take_groups(struct attempt *a, const char **at, const char *end) {
    const char *behind = skip_groups(a->start, *at, end);
    size_t size = (size_t)(behind - *at);
    if (quarters.groups && size == quarters.text_size && memcmp(quarters.text, *at, size) == 0) {
        *at = behind;
        return;
    }
    leave_groups();
    if (size <= sizeof quarters.text) {
        memcpy(quarters.text, *at, size);
        quarters.text_size = (uint32_t)size;
    }
    for (uint32_t i = 0; i < a->start->groups; i++) {
        make_group(a, at, end);
    }
}

static int limit(int which, int64_t value) {
    struct rlimit limits;
    if (getrlimit(which, &limits)) {
        return -1;
    }
    if (limits.rlim_max == RLIM_INFINITY || (rlim_t)value < limits.rlim_max) {
        limits.rlim_max = (rlim_t)value;
    }
    limits.rlim_cur = limits.rlim_max;
    return setrlimit(which, &limits);
}

static void trouble(int step) {
    trouble_errno = errno;
    trouble_step = step;
    _exit(127);
}

/* Close a task that has a key to other processes of its user from its first instruction: only root may trace
 * it, or read its memory, its environment or its files. The task could do so itself (PR_SET_DUMPABLE), but only
 * once its program runs, and until then others could take the key out of its standard input. The kernel also
 * does it for a program that starts with another group for files than before; so it gets another until then. A
 * sandbox does not need that: others cannot look into it, and it could not set itself up. */
static int hide(const struct start *start) {
    if (!(start->flags & HAS_KEY) || start->flags & SANDBOXED) {
        return 0;
    }
    gid_t other = start->gid == NO_GROUP ? NO_GROUP - 1 : NO_GROUP;
    syscall(SYS_setfsgid, other);
    errno = EPERM; /* setfsgid returns the former group, and no error */
    return (gid_t)syscall(SYS_setfsgid, other) == other ? 0 : -1;
}

/* Mount a /proc without other users' processes over the machine's, for this process and its children alone. The
 * machine does not see it: mounts come in, and none goes back. The word `invisible` is younger than the kernels
 * (before 5.8) on which all mounts of one process namespace share their options, and would change the machine's
 * own: those kernels refuse or ignore it, which `is_alone` sees. */
static int be_alone(void) {
    return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL)
        || mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible");
}

/* True if the top /proc does hide processes, by the list of mounts; the last line for it counts. */
static bool is_alone(void) {
    FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[PATH_BYTES];
    bool alone = false;
    while (mounts && fgets(line, sizeof line, mounts)) {
        if (strstr(line, " /proc proc ")) {
            alone = strstr(line, "hidepid=invisible") || strstr(line, "hidepid=2");
        }
    }
    if (mounts) {
        fclose(mounts);
    }
    return alone;
}

/* True if mounts lie over parts of /proc, as in containers: a new one would show what they cover. */
static bool is_covered(void) {
    FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[PATH_BYTES];
    bool covered = mounts == NULL;
    while (mounts && fgets(line, sizeof line, mounts)) {
        const char *place = strstr(line, " /proc/");
        covered = covered || (place && strncmp(place, " /proc/sys/fs/binfmt_misc ", 26) != 0);
    }
    if (mounts) {
        fclose(mounts);
    }
    return covered;
}

/* Try out whether tasks can be started alone; the exit status is the answer, and standard error the reason. */
static int try_alone(void) {
    if (is_covered()) {
        fputs("something is mounted over parts of /proc", stderr);
        return 1;
    }
    if (be_alone()) {
        fputs(strerror(errno), stderr);
        return 1;
    }
    if (!is_alone()) {
        fputs("the kernel is older than 5.8", stderr);
        return 1;
    }
    return 0;
}

/* In the child, which shares this memory and for which its parent waits: from here to its program. Raw system
 * calls for the user: the C library's would look for other threads. */
static void become(const struct attempt *a, pid_t supervisor, int in, int out, int err) {
    const struct start *start = a->start;
    sigset_t none;
    setsid();
    for (int i = 0; i < quarters.groups; i++) {
        if (write(quarters.group[i].join, "0", 1) < 0) {
            trouble(TROUBLE_GROUP);
        }
    }
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || limit(RLIMIT_CORE, 0)
        || (start->data_max && limit(RLIMIT_DATA, start->data_max))
        || (start->processes_max && limit(RLIMIT_NPROC, start->processes_max))) {
        trouble(TROUBLE_SETUP);
    }
    umask(022);
    if (start->flags & FRESH_DIRECTORY && chdir(a->workdir)) { /* this process may enter where the user may not */
        trouble(TROUBLE_SETUP);
    }
    if (start->flags & ALONE && be_alone()) {
        trouble(TROUBLE_ALONE);
    }
    if (start->uid >= 0
        && (syscall(SYS_setgroups, (size_t)start->gids, a->gids)
            || syscall(SYS_setresgid, start->gid, start->gid, start->gid)
            || hide(start) /* while it is allowed, and after the calls that would undo it */
            || syscall(SYS_setresuid, start->uid, start->uid, start->uid))) {
        trouble(TROUBLE_USER);
    }
    if (start->flags & NO_NEW_PRIVILEGES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        trouble(TROUBLE_USER);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    if (getppid() != supervisor) {
        _exit(127); /* it died before the line above */
    }
    if (!(start->flags & FRESH_DIRECTORY) && chdir(a->workdir)) {
        trouble(TROUBLE_WORKDIR);
    }
    if (lease_over(start)) { /* earlier calls may have waited for a disk: the watchdog looks only once */
        trouble(TROUBLE_LEASE);
    }
    execvp(a->argv[0], a->argv);
    trouble(TROUBLE_PROGRAM);
}

static void without_lease(struct attempt *a) {
    a->end.kind = NO_LEASE;
    kill_all(a);
    leave_groups();
    over(a, false);
    _exit(0);
}

static void explain(struct attempt *a) {
    errno = trouble_errno;
    switch (trouble_step) {
    case TROUBLE_LEASE:
        without_lease(a);
        break;
    case TROUBLE_PROGRAM:
        fail(a, UNFIT, errno == ENOENT ? 127 : 126, "cannot run ", a->argv[0]);
        break;
    case TROUBLE_WORKDIR:
        fail(a, UNFIT, 126, "cannot enter the working directory ", a->workdir);
        break;
    case TROUBLE_USER:
        fail(a, LOST, 0, "cannot become the task's user", "");
        break;
    case TROUBLE_ALONE:
        fail(a, LOST, 0, "cannot hide other processes from the task", "");
        break;
    case TROUBLE_GROUP:
        fail(a, LOST, 0, "cannot enter the task's control group", "");
        break;
    default:
        fail(a, LOST, 0, "cannot set the task up", "");
    }
}

/* Tell the watchdog that a task runs from now on, and the place where its processes are counted. */
static void announce(void) {
    static int64_t runs;
    const struct group *group = census(quarters.group, quarters.groups);
    between->grouped = false;
    __sync_synchronize();
    if (group) {
        between->role = group->role;
        memcpy(between->path, group->path, sizeof between->path);
    }
    __sync_synchronize();
    between->grouped = group != NULL;
    between->run = ++runs;
}

/* No process of the task is left. True if the watchdog killed: either the watchdog sees that no task is left to
 * kill, or this process sees that it killed. */
static bool killed_by_watchdog(const struct attempt *a) {
    between->run = 0;
    __sync_synchronize();
    return between->killed_at >= a->end.began;
}

/* A pipe from which the task reads its key, once: later readers find nothing. */
static int pipe_with(const char *secret) {
    int ends[2];
    size_t size = strlen(secret);
    if (size > PIPE_BUF || pipe2(ends, O_CLOEXEC)) {
        return -1;
    }
    if (write(ends[1], secret, size) != (ssize_t)size) { /* an empty pipe has room */
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    return ends[0];
}

static void run_program(struct attempt *a) {
    int out[2], err[2];
    int in = a->secret ? pipe_with(a->secret) : null_file;
    if (in < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        fail(a, LOST, 0, "cannot make pipes", "");
    }
    pid_t self = getpid();
    environ = a->env; /* execvp searches the task's own PATH */
    int64_t began = now_us();
    trouble_step = NO_TROUBLE;
    announce();
    a->child = vfork();
    if (a->child == 0) {
        become(a, self, in, out[1], err[1]);
    }
    if (a->child < 0) {
        fail(a, LOST, 0, "cannot make a process", "");
    }
    if (in != null_file) {
        close(in);
    }
    close(out[1]);
    close(err[1]);
    a->stream[0].pipe = out[0];
    a->stream[1].pipe = err[0];
    for (int i = 0; i < 2; i++) {
        fcntl(a->stream[i].pipe, F_SETFL, O_NONBLOCK);
    }
    if (trouble_step != NO_TROUBLE) {
        explain(a);
    }
    a->end.began = began;
    a->untold = !tell(STARTED, a, false);
}

/* --- the life of a task ----------------------------------------------------------------------------------- */

static void arm(const struct attempt *a) {
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
    const struct group *group = census(quarters.group, quarters.groups);
    int count = group ? list_group(group->path) : list_descendants(getpid(), false);
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

static int64_t turn = 1; /* of this supervisor's attempt */
static int64_t early = -1; /* the grace of a stop that came before its attempt; -1: none did */

static int64_t next_turn(int64_t last) {
    return last % (TURNS - 1) + 1;
}

static void stop_within(struct attempt *a, int64_t grace) {
    int64_t at = now_us() + grace;
    a->stop_at = a->stopping && a->stop_at < at ? a->stop_at : at;
    if (!a->stopping) {
        a->stopping = true;
        ask_to_end(a);
    }
}

/* True if a signal means stop; also its content. */
static bool says_stop(const struct signalfd_siginfo *heard, int64_t *whose, int64_t *grace) {
    int64_t said = (int64_t)heard->ssi_ptr;
    *whose = said >> GRACE_BITS;
    *grace = said & GRACE_MOST;
    return heard->ssi_signo == (uint32_t)SIGRTMIN && said != LOOK;
}

static void hear(struct attempt *a) {
    struct signalfd_siginfo heard[8];
    int64_t whose, grace;
    ssize_t got = read(signals, heard, sizeof heard);
    for (ssize_t i = 0; i < got / (ssize_t)sizeof heard[0]; i++) {
        if (heard[i].ssi_signo == SIGCHLD) {
            reap(a);
        } else if (says_stop(&heard[i], &whose, &grace)) {
            if (whose == 0 || whose == turn) {
                stop_within(a, grace);
            }
        } else if (heard[i].ssi_signo == SIGTERM) {
            a->end.kind = LOST;
            note(&a->end, getppid() == watchdog ? "its supervisor was told to end" : "its watchdog died");
        }
    }
}

/* True if the task has ended without force. A task that was asked to end gets its whole grace to save its work
 * in all its processes, though its first one may be a shell that ends at once. */
static bool finished(const struct attempt *a) {
    return a->child_over && !(a->stopping && kill(-a->child, 0) == 0);
}

static void watch(struct attempt *a) {
    if (early >= 0) {
        stop_within(a, early);
        early = -1;
    }
    arm(a);
    while (a->end.kind == NOT_ENDED && !finished(a)) {
        struct pollfd poll_for[5] = {
            {.fd = signals, .events = POLLIN},
            {.fd = timer, .events = POLLIN},
            {.fd = a->stream[0].pipe, .events = POLLIN},
            {.fd = a->stream[1].pipe, .events = POLLIN},
            {.fd = a->untold ? news_out : -1, .events = POLLOUT},
        };
        if (poll(poll_for, 5, -1) < 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (poll_for[2 + i].revents) {
                pump(a, &a->stream[i]);
            }
        }
        if (poll_for[0].revents) {
            hear(a);
            arm(a);
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
            arm(a);
        }
        if (poll_for[4].revents) {
            a->untold = !tell(STARTED, a, false);
        }
    }
}

static void conclude(struct attempt *a) {
    kill_all(a);
    if (killed_by_watchdog(a)) {
        quarters.spoilt = true;
        a->end.kind = a->end.kind == NOT_ENDED ? LEASE_OVER : a->end.kind;
    }
    for (int i = 0; i < 2; i++) {
        while (pump(a, &a->stream[i])) {
        }
        a->end.flags |= a->stream[i].cut ? (i ? STDERR_CUT : STDOUT_CUT) : 0;
    }
    a->end.bytes_out = a->stream[0].written;
    a->end.bytes_err = a->stream[1].written;
    a->end.code = WIFSIGNALED(a->status) ? -WTERMSIG(a->status) : WEXITSTATUS(a->status);
    if (a->end.kind == NOT_ENDED) {
        a->end.kind = a->stopping ? STOPPED : EXITED;
    }
    measure(a);
    bool stays = desk >= 0 && a->end.kind != LOST;
    if (!stays || !freshen()) {
        leave_groups();
    }
    if (a->untold) {
        tell(STARTED, a, false);
    }
    for (int i = 0; i < 2; i++) {
        close_if_open(a->stream[i].pipe);
        close_if_open(a->stream[i].file);
    }
    over(a, stays);
    free(a->argv);
    free(a->env);
    if (!stays) {
        _exit(0);
    }
}

static void make_places(struct attempt *a) {
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
            fail(a, unstarted(errno), 0, "cannot make the working directory ", a->work);
        }
        a->workdir = a->work;
    }
}

/* One attempt, from its request to its end. */
static void supervise(struct attempt *a, const char *at, const char *end) {
    int32_t self = getpid();
    if (pwrite(a->record, &self, sizeof self, offsetof(struct record, supervisor)) < 0) {
        fail(a, unstarted(errno), 0, "cannot write the record", "");
    }
    if (lease_over(a->start)) {
        without_lease(a);
    }
    a->workdir = next_text(&at, end);
    take_groups(a, &at, end);
    a->argv = texts(&at, end, a->start->argc);
    a->env = texts(&at, end, a->start->envc);
    a->secret = a->start->flags & HAS_KEY ? next_text(&at, end) : NULL;
    errno = EINVAL;
    if (!a->argv || !a->env || (a->start->flags & HAS_KEY && !a->secret) || a->start->argc == 0) {
        fail(a, LOST, 0, "not a request of this version", "");
    }
    make_places(a);
    run_program(a);
    watch(a);
    conclude(a);
}

/* Read signals for the attempt before; keep the content of those for turn `coming`. True: one means end. */
static bool drain_signals(int64_t coming) {
    struct signalfd_siginfo heard[8];
    int64_t whose, grace;
    bool told = false;
    for (ssize_t got; (got = read(signals, heard, sizeof heard)) > 0;) {
        for (ssize_t i = 0; i < got / (ssize_t)sizeof heard[0]; i++) {
            told = told || heard[i].ssi_signo == SIGTERM;
            if (says_stop(&heard[i], &whose, &grace) && whose == coming && (early < 0 || grace < early)) {
                early = grace;
            }
        }
    }
    return told;
}

/* Return the next request and its record, from the launcher. Does not return when there will be none. */
static const struct start *next_letter(int *record) {
    static int64_t letter[HANDED_BYTES_MAX / sizeof(int64_t)];
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } passed;
    for (;;) {
        struct iovec part = {letter, sizeof letter};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
        ssize_t got = recvmsg(desk, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        const struct cmsghdr *with = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
        if (with && with->cmsg_type == SCM_RIGHTS) {
            memcpy(record, CMSG_DATA(with), sizeof *record);
            return (const struct start *)letter;
        }
        struct pollfd poll_for[2] = {{.fd = desk, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)
            || (poll(poll_for, 2, -1) > 0 && poll_for[1].revents && drain_signals(next_turn(turn)))) {
            leave_groups();
            _exit(0);
        }
    }
}

static const char *read_start(struct attempt *a, const struct start *start);

/* Main loop of a supervisor: its first attempt, and those that it is handed. */
static void attend(struct attempt *a, const char *at) {
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    null_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (timer < 0 || null_file < 0) {
        fail(a, LOST, 0, "cannot make a timer", "");
    }
    for (;;) {
        supervise(a, at, (const char *)a->start + a->start->head.size);
        int record;
        const struct start *start = next_letter(&record);
        at = read_start(a, start);
        a->record = record;
        turn = next_turn(turn);
        if (drain_signals(turn)) {
            note(&a->end, "its supervisor was told to end");
            a->end.kind = LOST;
            leave_groups();
            over(a, false);
            _exit(0);
        }
    }
}

/* --- the watchdog ----------------------------------------------------------------------------------------- */

static bool is_dead(pid_t pid) {
    char directory[64], text[1024];
    snprintf(directory, sizeof directory, "/proc/%d", (int)pid);
    const char *behind = read_file(directory, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return !behind || behind[1] == 0 || behind[2] == 'Z' || behind[2] == 'X';
}

/* List the processes of a task: those of its group, or without one all below `root`. */
static int list_task(const struct group *group, pid_t root) {
    return group ? list_group(group->path) : list_descendants(root, false);
}

static bool is_listed(pid_t pid, int count) {
    for (int i = 0; i < count; i++) {
        if (listed[i] == pid) {
            return true;
        }
    }
    return false;
}

enum { GONE = -1, NOT_HELD = -2 }; /* instead of a descriptor; NOT_HELD: none was available */

/* Kill the processes of a run; return how many lived. A number may be reused before the kill: so a descriptor
 * holds each process first, and the kill follows if its number is listed once more, as the same process. */
static int kill_listed(int64_t run, const struct group *group, pid_t root) {
    int held[HELD_MAX], killed = 0, count = list_task(group, root);
    memcpy(found, listed, (size_t)count * sizeof found[0]);
    for (int from = 0; from < count; from += HELD_MAX) {
        int some = count - from < HELD_MAX ? count - from : HELD_MAX;
        for (int i = 0; i < some; i++) {
            held[i] = is_dead(found[from + i]) ? GONE : pidfd_open_(found[from + i]);
            held[i] = held[i] == -1 && errno != ESRCH ? NOT_HELD : held[i];
        }
        int now_listed = list_task(group, root);
        for (int i = 0; i < some; i++) {
            if (held[i] != GONE && between->run == run && is_listed(found[from + i], now_listed)) {
                between->killed_at = now_us(); /* every listed process began before */
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
static int kill_task(int64_t run, pid_t root, bool again) {
    static struct group group;
    int killed = 0;
    if (between->grouped && between->run == run) {
        group.role = between->role;
        memcpy(group.path, between->path, sizeof group.path);
        if (again) {
            stop_forks(&group);
        }
        killed = kill_listed(run, &group, root);
    }
    return killed > 0 ? killed : kill_listed(run, NULL, root);
}

/* The supervisor is dead: all of its processes belong to this one now. */
static void kill_rest(void) {
    int64_t until = now_us() + BURIAL_MS_MAX * (int64_t)1000;
    for (bool again = false; now_us() < until; again = true) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0) {
            break;
        }
        kill_task(between->run, getpid(), again);
        doze_ms(1);
    }
    _exit(0); /* processes that cannot be killed fall to the launcher */
}

/* Pass on the launcher's signals to the supervisor. */
static void relay(pid_t supervisor) {
    struct signalfd_siginfo heard[8];
    ssize_t got = read(signals, heard, sizeof heard);
    for (ssize_t i = 0; i < got / (ssize_t)sizeof heard[0]; i++) {
        if (heard[i].ssi_signo == SIGCHLD) {
            if (waitpid(supervisor, NULL, WNOHANG) == supervisor) {
                kill_rest();
            }
        } else if (heard[i].ssi_signo == (uint32_t)SIGRTMIN) {
            sigqueue(supervisor, SIGRTMIN, (union sigval){.sival_ptr = (void *)(intptr_t)heard[i].ssi_ptr});
        } else {
            kill(supervisor, (int)heard[i].ssi_signo);
        }
    }
}

static void touch(uintptr_t at, size_t size, bool written) {
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
            touch((uintptr_t)(part->dlpi_addr + segment->p_vaddr), segment->p_filesz, false);
        }
    }
    return 0;
}

static void touch_stack(void) {
    char depth[DEPTH_BYTES];
    touch((uintptr_t)depth, sizeof depth, true);
}

/* Load, and lock in memory, everything that a watchdog needs: it may not wait for a page on a disk, nor for one
 * that the kernel would free by a write to a disk. Pages above the user's limit are left out. */
static void stay_in_memory(void) {
    free(inbox);
    free(outbox);
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0); /* root only: memory without waiting for file systems */
#ifdef MCL_ONFAULT
    mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
#endif
    dl_iterate_phdr(touch_program, NULL);
    touch_stack();
    touch((uintptr_t)listed, sizeof listed, true);
    touch((uintptr_t)found, sizeof found, true);
    touch((uintptr_t)entries, sizeof entries, true);
    uintptr_t page = (uintptr_t)guard & ~(uintptr_t)(GUARD_BYTES - 1);
    mlock((const void *)page, GUARD_BYTES);
}

/* Main loop of a watchdog: until its supervisor is gone. */
static void keep_watch(pid_t supervisor) {
    int64_t run, tried = 0, clean = 0, clean_until = 0, pause = 0;
    int clock = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    prctl(PR_SET_NAME, "_watchdog");
    stay_in_memory();
    while (clock >= 0) {
        int64_t until = *guard, now = now_us();
        bool past = until == 0 || now >= until;
        int64_t next = past ? now + LOOK_MS * 1000 : until;
        run = between->run;
        bool looked = run == clean && until == clean_until; /* a renewed lease ends again */
        if (run != 0 && ((past && until != 0 && !looked) || run == tried)) {
            bool again = run == tried;
            pause = !again ? AGAIN_MS * 1000 : pause < LOOK_MS * 500 ? pause * 2 : LOOK_MS * 1000;
            tried = run;
            between->killed_at = now; /* before the check: see killed_by_watchdog */
            __sync_synchronize();
            if (kill_task(run, supervisor, again) == 0) {
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
            relay(supervisor);
        }
    }
    _exit(1); /* which ends the supervisor, and its task */
}

/* Return as a supervisor with a watchdog, which is the process before the fork. */
static void get_watchdog(struct attempt *a) {
    watchdog = getpid();
    between = mmap(NULL, sizeof *between, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t pid = between == MAP_FAILED ? -1 : fork();
    if (pid < 0) {
        fail(a, LOST, 0, "cannot make a watchdog", "");
    }
    if (pid > 0) {
        const int files[] = {a->record, desk, news_out, silent_file};
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            close_if_open(files[i]);
        }
        keep_watch(pid);
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* not SIGKILL: processes outside of the session would survive */
    if (getppid() != watchdog) {
        _exit(1); /* it died before the line above */
    }
}

/* --- the launcher: reports to the daemon ------------------------------------------------------------------ */

/* Stop watching a file and close it. Closing alone is not enough: a child that was forked in between may still
 * have it, and then it stays reported, under a number that belongs to no file. */
static void unwatch(int file) {
    if (file >= 0) {
        epoll_ctl(loop, EPOLL_CTL_DEL, file, NULL);
        close(file);
    }
}

static void hang_up(void) {
    unwatch(door);
    door = -1;
    inbox_used = outbox_used = 0;
    outbox_armed = greeted = false;
}

static void flush(void) {
    size_t sent = 0;
    while (door >= 0 && sent < outbox_used) {
        ssize_t done = send(door, outbox + sent, outbox_used - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) {
            break;
        }
        if (done < 0 && errno != EINTR) {
            hang_up();
            return;
        }
        sent += done > 0 ? (size_t)done : 0;
    }
    memmove(outbox, outbox + sent, outbox_used - sent);
    outbox_used -= sent;
    bool wanted = outbox_used > 0;
    if (door >= 0 && wanted != outbox_armed) {
        struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = door};
        epoll_ctl(loop, EPOLL_CTL_MOD, door, &event);
        outbox_armed = wanted;
    }
}

static void report(const struct news *news, const char *extra) {
    size_t size = sizeof *news + news->extra;
    if (door < 0 || !greeted) {
        return; /* it is on record */
    }
    if (outbox_used + size > outbox_size) {
        size_t larger = outbox_size ? outbox_size * 2 : COPY_BYTES;
        char *moved = larger <= EVENTS_BYTES_MAX ? realloc(outbox, larger) : NULL;
        if (!moved) {
            say("the daemon does not read: it must connect again");
            hang_up();
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

static void report_end(int64_t task, int64_t attempt, const struct end *end) {
    struct news news = {.kind = ENDED, .task = task, .attempt = attempt, .end = *end};
    report(&news, NULL);
}

/* --- the launcher: supervisors ---------------------------------------------------------------------------- */

static struct life *find(int64_t task, int64_t attempt) {
    for (int i = 0; i < life_count; i++) {
        const struct life *life = &lives[i];
        if (life->task == task && life->attempt == attempt && !life->remover && !life->idle) {
            return &lives[i];
        }
    }
    return NULL;
}

static struct life *find_pid(pid_t pid) {
    for (int i = 0; i < life_count; i++) {
        if (lives[i].pid == pid) {
            return &lives[i];
        }
    }
    return NULL;
}

static int busy_count(void) {
    return life_count - idle_count;
}

static struct life *add_life(int64_t task, int64_t attempt, pid_t pid, int watch) {
    if (busy_count() == ATTEMPTS_MAX) {
        return NULL;
    }
    struct life *life = &lives[life_count++];
    *life = (struct life){.task = task, .attempt = attempt, .pid = pid, .watch = watch, .desk = -1};
    return life;
}

static void close_desk(struct life *life) {
    if (life->desk >= 0) {
        close(life->desk);
        life->desk = -1;
        desk_count--;
    }
}

static void remove_life(struct life *life) {
    unwatch(life->watch);
    close_desk(life);
    idle_count -= life->idle;
    *life = lives[--life_count];
}

/* An attempt has ended. Its supervisor waits for another one, or exits. */
static void attempt_over(struct life *life, bool stays) {
    if (stays && life->desk >= 0) {
        life->idle = true;
        idle_count++;
    } else {
        life->ended = true;
    }
}

/* Return the supervisor for an attempt whose groups have this digest: preferably one with such groups, then the
 * last one in the table. NULL: none waits. */
static struct life *choose_idle(uint64_t likes) {
    struct life *found = NULL;
    for (int i = life_count - 1; i >= 0 && idle_count > 0; i--) {
        if (lives[i].idle && lives[i].likes == likes) {
            return &lives[i];
        }
        found = !found && lives[i].idle ? &lives[i] : found;
    }
    return found;
}

/* Close the desks of idle supervisors, because there is no work: they exit. */
static void dismiss_idle(void) {
    for (int i = 0; i < life_count; i++) {
        if (lives[i].idle) {
            lives[i].idle = false;
            lives[i].ended = true;
            idle_count--;
            close_desk(&lives[i]);
        }
    }
}

static bool is_ours(pid_t pid) {
    return find_pid(pid) != NULL;
}

/* Kill the remains of dead supervisors: every child but this process's own forks, and all below it. One of them
 * may be a killed supervisor that cannot exit yet, because it hangs in a write to a disk. */
static void sweep_orphans(void) {
    int64_t until = now_us() + BURIAL_MS_MAX * (int64_t)1000;
    for (int count; (count = list_descendants(getpid(), true)) > 0 && now_us() < until;) {
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        for (int i = 0; i < count; i++) {
            await_end(listed[i], until);
            waitpid(listed[i], NULL, WNOHANG);
        }
    }
}

/* Read the record of an attempt: nothing, if the machine died during its write. */
static void read_record(int file, struct record *record, int64_t task, int64_t attempt) {
    if (pread(file, record, sizeof *record, 0) != (ssize_t)sizeof *record || record->magic != RECORD_MAGIC
        || record->task != task || record->attempt != attempt) {
        memset(record, 0, sizeof *record);
    }
}

static int open_record(int64_t task, int64_t attempt, struct record *record) {
    char key[48], path[64];
    key_of(key, sizeof key, task, attempt);
    snprintf(path, sizeof path, "records/%s", key);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        read_record(file, record, task, attempt);
    }
    return file;
}

/* End an attempt with a dead supervisor: none of its processes runs after this call. */
static void bury(int file, struct record *record) {
    static struct group group[GROUPS_MAX];
    static char paths[GROUPS_MAX * PATH_BYTES];
    int groups = 0;
    bool gone = true;
    sweep_orphans();
    if (record->groups > 0 && record->groups <= sizeof paths
        && pread(file, paths, record->groups, (off_t)(sizeof *record + record->meta)) == record->groups) {
        const char *at = paths, *end = paths + record->groups;
        for (const char *path; groups < GROUPS_MAX && (path = next_text(&at, end)); groups++) {
            group[groups].role = path[0];
            snprintf(group[groups].path, PATH_BYTES, "%s", path + 1);
        }
        const struct group *all = census(group, groups);
        gone = !all || kill_group(all);
        remove_groups(group, groups);
    }
    memset(&record->end, 0, sizeof record->end);
    record->end.kind = LOST;
    record->end.ended = now_us();
    note(&record->end, !gone ? "its supervisor died, and some of it cannot be killed"
         : record->supervisor ? "its supervisor died" : "its launcher died before it started");
    write_end(file, &record->end);
}

/* Remove the control groups of a supervisor that had no attempt. */
static void remove_slot(int64_t slot) {
    char path[PATH_BYTES + 32];
    for (int i = 0; i < base_count; i++) {
        snprintf(path, sizeof path, "%s/%lld", base[i], (long long)slot);
        rmdir(path);
    }
}

/* A supervisor is gone. Its end is on record, or it was killed. */
static void supervisor_gone(struct life *life) {
    struct record record = {0};
    int64_t task = life->task, attempt = life->attempt;
    bool told = life->ended || life->remover || life->idle;
    if (life->idle) {
        remove_slot(life->slot); /* it was killed while it waited */
    }
    remove_life(life);
    if (told) {
        return;
    }
    int file = open_record(task, attempt, &record);
    if (file < 0) {
        return; /* forgotten meanwhile */
    }
    if (!is_end(&record.end)) {
        bury(file, &record);
    }
    close(file);
    report_end(task, attempt, &record.end);
}

/* Watch a supervisor of an earlier launcher. False: it is gone. */
static bool adopt(int64_t task, int64_t attempt, pid_t pid, int record) {
    int watch = pidfd_open_(pid);
    if (watch < 0) {
        return false;
    }
    if (record >= 0 && flock(record, LOCK_EX | LOCK_NB) == 0) {
        close(watch); /* the number may be reused by now: only the lock is proof */
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = watch};
    if (!add_life(task, attempt, pid, watch)) {
        say("more than %d attempts: %lld.%lld is not watched", ATTEMPTS_MAX, (long long)task,
            (long long)attempt);
        close(watch);
        return true;
    }
    epoll_ctl(loop, EPOLL_CTL_ADD, watch, &event);
    return true;
}

static void take_news(void) {
    static struct news heard[COPY_BYTES / sizeof(struct news)];
    for (;;) {
        ssize_t got = read(news_in, heard, sizeof heard);
        if (got <= 0) {
            return;
        }
        for (size_t i = 0; i < (size_t)got / sizeof heard[0]; i++) {
            struct news *news = &heard[i];
            struct life *life = find(news->task, news->attempt);
            if (!life && news->kind == STARTED) {
                adopt(news->task, news->attempt, news->supervisor, -1);
            } else if (life && news->kind == ENDED) {
                attempt_over(life, news->stays);
            }
            report(news, NULL);
        }
    }
}

static void take_signals(void) {
    struct signalfd_siginfo heard[16];
    ssize_t got;
    while ((got = read(signals, heard, sizeof heard)) > 0) {
        for (size_t i = 0; i < (size_t)got / sizeof heard[0]; i++) {
            if (heard[i].ssi_signo == SIGTERM) {
                exit(0); /* supervisors need no launcher */
            }
        }
    }
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
        take_news(); /* its last news */
        struct life *life = find_pid(pid);
        if (life) {
            supervisor_gone(life);
        }
    }
}

/* --- the launcher: records -------------------------------------------------------------------------------- */

static void find_one(int64_t task, int64_t attempt) {
    struct record record = {0};
    int file = open_record(task, attempt, &record);
    if (file < 0) {
        return;
    }
    for (int waited = 0; !is_end(&record.end) && !find(task, attempt); waited++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            read_record(file, &record, task, attempt);
            if (!is_end(&record.end)) {
                bury(file, &record); /* read again: it may have ended before it released the lock */
            }
            break;
        }
        if (record.supervisor > 0 && adopt(task, attempt, record.supervisor, file)) {
            break;
        }
        if (waited == BIRTH_MS_MAX) {
            break; /* its first news will name it */
        }
        doze_ms(1);
        read_record(file, &record, task, attempt);
    }
    struct news news = {.kind = FOUND_ENDED, .task = task, .attempt = attempt, .end = record.end};
    static char meta[COPY_BYTES];
    if (!is_end(&record.end)) {
        news.kind = FOUND_RUNNING;
        ssize_t got = record.meta <= sizeof meta ? pread(file, meta, record.meta, sizeof record) : 0;
        news.extra = got > 0 ? (uint32_t)got : 0;
    }
    close(file);
    report(&news, meta);
}

static bool parse_key(const char *name, int64_t *task, int64_t *attempt) {
    char *rest;
    *task = strtoll(name, &rest, 10);
    if (rest == name || *rest != '.') {
        return false;
    }
    const char *second = rest + 1;
    *attempt = strtoll(second, &rest, 10);
    return rest != second && *rest == 0;
}

static void forget(int64_t task, int64_t attempt);
static void drop_spares(void);

/* True if an attempt on record, or a supervisor of this launcher, has this group. */
static bool group_in_use(const char *path) {
    static char paths[GROUPS_MAX * PATH_BYTES];
    DIR *place = opendir("records");
    bool used = place == NULL;
    for (struct dirent *entry; !used && (entry = readdir(place));) {
        int64_t task, attempt;
        struct record record = {0};
        int file = parse_key(entry->d_name, &task, &attempt) ? open_record(task, attempt, &record) : -1;
        if (file < 0) {
            continue;
        }
        if (!is_end(&record.end) && record.groups <= sizeof paths
            && pread(file, paths, record.groups, (off_t)(sizeof record + record.meta)) == record.groups) {
            const char *at = paths, *end = paths + record.groups;
            for (const char *text; !used && (text = next_text(&at, end));) {
                used = strcmp(text + 1, path) == 0;
            }
        }
        close(file);
    }
    if (place) {
        closedir(place);
    }
    return used;
}

/* Remove groups of supervisors that were killed while they waited, together with their launcher. */
static void sweep_slots(void) {
    for (int i = 0; i < base_count; i++) {
        DIR *place = opendir(base[i]);
        for (struct dirent *entry; place && (entry = readdir(place));) {
            char path[PATH_BYTES + 300], *rest;
            int64_t slot = strtoll(entry->d_name, &rest, 10);
            bool ours = *rest == 0 && rest != entry->d_name;
            for (int k = 0; ours && k < life_count; k++) {
                ours = lives[k].slot != slot;
            }
            snprintf(path, sizeof path, "%.*s/%s", PATH_BYTES, base[i], entry->d_name);
            if (ours && !group_in_use(path)) {
                rmdir(path);
            }
        }
        if (place) {
            closedir(place);
        }
    }
}

static void greet(const struct request *request, const char *end) {
    if (request->grace != 0 && request->grace != (int64_t)HANSE_SOURCE_CRC) {
        say("the daemon has another version: this launcher goes");
        exit(0);
    }
    const char *at = (const char *)(request + 1);
    greeted = true;
    base_count = 0;
    for (const char *path; base_count < GROUPS_MAX && (path = next_text(&at, end)) && *path; base_count++) {
        snprintf(base[base_count], PATH_BYTES, "%s", path);
    }
    const char *places[2] = {"records", "work"};
    for (int i = 0; i < 2; i++) {
        DIR *place = opendir(places[i]);
        for (struct dirent *entry; place && (entry = readdir(place));) {
            int64_t task, attempt;
            char path[300];
            if (!parse_key(entry->d_name, &task, &attempt)) {
                continue;
            }
            snprintf(path, sizeof path, "records/%s", entry->d_name);
            if (i == 0) {
                find_one(task, attempt);
            } else if (access(path, F_OK) && !find(task, attempt)) {
                forget(task, attempt); /* its launcher died while forgetting it */
            }
        }
        if (place) {
            closedir(place);
        }
    }
    sweep_slots();
    drop_spares();
    struct news ready = {.kind = READY, .task = getpid(), .attempt = (int64_t)HANSE_SOURCE_CRC};
    report(&ready, NULL);
}

/* --- the launcher: requests ------------------------------------------------------------------------------- */

static void refuse(const struct request *request, const char *why, int error) {
    struct end end = {.kind = unstarted(error), .ended = now_us()};
    note(&end, "%s%s%s", why, error ? ": " : "", error ? strerror(error) : "");
    end.sum = checksum(&end);
    report_end(request->task, request->attempt, &end);
}

static ssize_t length_of(const struct iovec parts[3]) {
    return (ssize_t)(parts[0].iov_len + parts[1].iov_len + parts[2].iov_len);
}

static int new_record(const char *path, const struct iovec parts[3]) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return -1;
    }
    errno = ENOSPC; /* the meaning of a short write */
    flock(file, LOCK_EX); /* shared with the supervisor: never free while it lives */
    if (writev(file, parts, 3) != length_of(parts)) {
        int error = errno;
        unlink(path);
        close(file);
        errno = error;
        return -1;
    }
    return file;
}

static void spare_path(char path[64], const char *place, int number) {
    snprintf(path, 64, "%s/spare.%d", place, number);
}

/* Write the record of a forgotten attempt anew, before it gets the name of this one. -1 with EEXIST: it has one
 * already; otherwise a new file is to be made. */
static int reuse_record(const char *path, const struct iovec parts[3]) {
    char spare[64];
    spare_path(spare, "records", spare_record[--spare_records]);
    int file = open(spare, O_RDWR | O_CLOEXEC);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0 && writev(file, parts, 3) == length_of(parts)
        && syscall(SYS_renameat2, AT_FDCWD, spare, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
        return file;
    }
    int error = errno;
    close_if_open(file);
    unlink(spare);
    errno = error == EEXIST ? EEXIST : EIO;
    return -1;
}

static int make_record(const struct attempt *a, int64_t slot, const char *at, const char *end) {
    static char text[GROUPS_MAX * PATH_BYTES];
    struct record record = {.magic = RECORD_MAGIC, .meta = a->start->meta, .task = a->start->head.task,
                            .attempt = a->start->head.attempt};
    next_text(&at, end); /* the working directory */
    for (uint32_t i = 0; i < a->start->groups; i++) {
        const char *path = next_text(&at, end);
        if (!path || strlen(path) > PATH_BYTES - 64) {
            errno = ENAMETOOLONG;
            return -1;
        }
        record.groups += 1 + (uint32_t)sprintf(text + record.groups, "%s/%lld", path, (long long)slot);
        for (const char *line; (line = next_text(&at, end)) && *line;) {
        }
    }
    struct iovec parts[3] = {
        {&record, sizeof record}, {(void *)(uintptr_t)a->meta, record.meta}, {text, record.groups}};
    char path[64];
    snprintf(path, sizeof path, "records/%s", a->key);
    if (spare_records == 0) {
        return new_record(path, parts);
    }
    int file = reuse_record(path, parts);
    return file >= 0 || errno == EEXIST ? file : new_record(path, parts);
}

/* FNV-1a over the groups of a start. */
static uint64_t likes_of(const char *at, const char *end) {
    uint64_t digest = 14695981039346656037u;
    for (; at < end; at++) {
        digest = (digest ^ (unsigned char)*at) * 1099511628211u;
    }
    return digest;
}

/* Parse a request; return the start of its texts. */
static const char *read_start(struct attempt *a, const struct start *start) {
    const char *at = (const char *)(start + 1);
    memset(a, 0, sizeof *a);
    a->start = start;
    a->gids = (const uint32_t *)at;
    a->meta = at + (size_t)start->gids * 4;
    key_of(a->key, sizeof a->key, start->head.task, start->head.attempt);
    return a->meta + start->meta;
}

/* Hand an attempt and its record to a waiting supervisor. */
static bool hand_over(const struct life *life, const struct attempt *a) {
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
    return sendmsg(life->desk, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)a->start->head.size;
}

/* Close the launcher's files that a supervisor does not need, above all the desks of others: these must be
 * closed when the launcher is gone. */
static void shed(void) {
    const int files[] = {listener, door, news_in, loop, lock_file};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        close_if_open(files[i]);
    }
    for (int i = 0; i < life_count; i++) {
        close_if_open(lives[i].desk);
        close_if_open(lives[i].watch);
    }
}

/* Make a supervisor, with a desk if there is one left. False: no more processes are possible. */
static bool make_supervisor(struct attempt *a, int64_t slot, uint64_t likes, const char *at) {
    int ends[2] = {-1, -1};
    if (desk_count < DESKS_MAX && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        ends[0] = ends[1] = -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        shed();
        close_if_open(ends[0]);
        desk = ends[1];
        own_slot = slot;
        get_watchdog(a);
        attend(a, at);
    }
    int error = errno;
    close_if_open(ends[1]);
    if (pid < 0) {
        close_if_open(ends[0]);
        errno = error;
        return false;
    }
    struct life *life = add_life(a->start->head.task, a->start->head.attempt, pid, -1);
    life->desk = ends[0];
    life->slot = slot;
    life->likes = likes;
    life->turn = 1;
    desk_count += ends[0] >= 0;
    return true;
}

static void give(struct attempt *a, struct life *idle, uint64_t likes, const char *at) {
    if (idle && hand_over(idle, a)) {
        idle->idle = false;
        idle_count--;
        idle->task = a->start->head.task;
        idle->attempt = a->start->head.attempt;
        idle->likes = likes;
        idle->turn = next_turn(idle->turn);
        return;
    }
    int64_t slot = idle ? idle->slot : next_slot++;
    if (idle) { /* it is dead; its groups' name is on the record now, and goes to its successor */
        idle->idle = false;
        idle->ended = true;
        idle_count--;
    }
    if (!make_supervisor(a, slot, likes, at)) {
        int error = errno;
        char path[64];
        snprintf(path, sizeof path, "records/%s", a->key);
        unlink(path);
        refuse(&a->start->head, "cannot make a process", error);
    }
}

/* Give an attempt the empty directory of a forgotten one, as the same user; false: there is none. */
static bool take_place(const struct attempt *a) {
    char spare[64], path[64];
    bool same = a->start->uid < 0;
    uid_t uid = same ? geteuid() : (uid_t)a->start->uid;
    gid_t gid = same ? getegid() : (gid_t)a->start->gid;
    last_uid = uid;
    if (spare_places == 0) {
        return false;
    }
    spare_path(spare, "work", spare_place[--spare_places]);
    if (uid != spare_uid || gid != spare_gid) {
        rmdir(spare); /* never another user's: an open descriptor could look on. Make room for this user's */
        return false;
    }
    snprintf(path, sizeof path, "work/%s", a->key);
    if (chmod(spare, 0700) == 0 && rename(spare, path) == 0) {
        return true;
    }
    rmdir(spare);
    return false;
}

static void begin(struct start *start) {
    static struct attempt a;
    const char *end = (const char *)start + start->head.size;
    if (start->head.size < sizeof *start || start->gids > SUPPLEMENTARY_MAX || start->groups > GROUPS_MAX
        || start->meta > COPY_BYTES
        || (size_t)start->gids * 4 + start->meta > start->head.size - sizeof *start) {
        refuse(&start->head, "not a request of this version", 0);
        return;
    }
    if (busy_count() == ATTEMPTS_MAX) {
        refuse(&start->head, "too many attempts run already", 0);
        return;
    }
    const char *at = read_start(&a, start), *groups = at;
    next_text(&groups, end); /* behind the working directory */
    uint64_t likes = likes_of(groups, skip_groups(start, groups, end));
    struct life *idle = start->head.size <= HANDED_BYTES_MAX ? choose_idle(likes) : NULL;
    a.record = make_record(&a, idle ? idle->slot : next_slot, at, end);
    if (a.record < 0) {
        if (errno != EEXIST) { /* else a repeated start: it runs or has ended */
            refuse(&start->head, "cannot write its record", errno);
        }
        return;
    }
    if (start->flags & FRESH_DIRECTORY && take_place(&a)) {
        start->flags |= DIRECTORY_MADE;
    }
    give(&a, idle, likes, at);
    close(a.record);
}

static void signal_life(const struct life *life, int64_t number) {
    union sigval grace = {.sival_ptr = (void *)(intptr_t)number};
    if (life->watch < 0) {
        sigqueue(life->pid, SIGRTMIN, grace); /* a child: its number stays valid until it is reaped */
        return;
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGRTMIN;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = grace;
    syscall(SYS_pidfd_send_signal, life->watch, SIGRTMIN, &info, 0);
}

static void stop(const struct request *request) {
    const struct life *life = find(request->task, request->attempt);
    if (life && request->grace >= 0) {
        int64_t grace = request->grace < GRACE_MOST ? request->grace : GRACE_MOST;
        signal_life(life, (life->turn << GRACE_BITS) | grace);
    }
}

/* Tell all busy supervisors that the guard was set for the first time: they have no timer yet. */
static void look_all(void) {
    for (int i = 0; i < life_count; i++) {
        if (!lives[i].remover && !lives[i].idle) {
            signal_life(&lives[i], LOOK);
        }
    }
}

/* --- removing directories --------------------------------------------------------------------------------- */

static DIR *open_below(int parent, const char *name) {
    int file = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0 && errno == EACCES && geteuid() != 0 && fchmodat(parent, name, 0700, 0) == 0) {
        file = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    return file < 0 ? NULL : fdopendir(file);
}

/* Remove the entries of a directory without following a link and without recursion, at any depth: nested
 * directories are first moved up into `top`. */
static void empty_directory(DIR *top) {
    static unsigned long moved;
    for (bool progress = true; progress;) {
        progress = false;
        rewinddir(top);
        for (struct dirent *entry; (entry = readdir(top));) {
            const char *name = entry->d_name;
            if (!strcmp(name, ".") || !strcmp(name, "..")) {
                continue;
            }
            if (!unlinkat(dirfd(top), name, 0) || !unlinkat(dirfd(top), name, AT_REMOVEDIR)) {
                progress = true;
                continue;
            }
            DIR *inner = open_below(dirfd(top), name);
            for (struct dirent *deep; inner && (deep = readdir(inner));) {
                char away[40];
                if (!strcmp(deep->d_name, ".") || !strcmp(deep->d_name, "..")) {
                    continue;
                }
                snprintf(away, sizeof away, ".hanse-removing-%lu", moved++);
                if (!unlinkat(dirfd(inner), deep->d_name, 0)
                    || !unlinkat(dirfd(inner), deep->d_name, AT_REMOVEDIR)
                    || !renameat(dirfd(inner), deep->d_name, dirfd(top), away)) {
                    progress = true;
                }
            }
            if (inner) {
                closedir(inner);
            }
            if (!unlinkat(dirfd(top), name, AT_REMOVEDIR)) {
                progress = true;
            }
        }
    }
}

static void spare_this_record(const char *path) {
    char spare[64];
    spare_path(spare, "records", spare_serial);
    if (spare_records < SPARES_MAX && rename(path, spare) == 0) {
        spare_record[spare_records++] = spare_serial++;
    } else {
        unlink(path);
    }
}

/* True if a directory is as it was made: empty, small, open to its owner only, without access control lists. */
static bool is_pristine(int file) {
    int64_t entries[64];
    char names[256];
    struct stat facts;
    if (fstat(file, &facts) || facts.st_size > SPARE_BYTES_MAX || flistxattr(file, names, sizeof names) > 0) {
        return false;
    }
    if (spare_places == 0) {
        spare_uid = facts.st_uid;
        spare_gid = facts.st_gid;
    }
    if (facts.st_uid != spare_uid || facts.st_gid != spare_gid || facts.st_uid != last_uid) {
        return false; /* the next one is hardly the same user's */
    }
    const struct entry {
        uint64_t number, offset;
        unsigned short length;
        unsigned char kind;
        char name[1];
    } *entry;
    for (long got; (got = syscall(SYS_getdents64, file, entries, sizeof entries)) != 0;) {
        for (long at = 0; at < got; at += entry->length) {
            entry = (const struct entry *)((const char *)entries + at);
            if (strcmp(entry->name, ".") && strcmp(entry->name, "..")) {
                return false;
            }
        }
        if (got < 0) {
            return false;
        }
    }
    return true;
}

/* Keep the directory of a forgotten attempt for another one, if it cannot be told from a new one. */
static bool spare_this_place(const char *path) {
    char spare[64];
    int file = spare_places < SPARES_MAX ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (file < 0) {
        return false;
    }
    bool kept = is_pristine(file);
    close(file);
    spare_path(spare, "work", spare_serial);
    if (kept && rename(path, spare) == 0) {
        spare_place[spare_places++] = spare_serial++;
        return true;
    }
    return false;
}

/* Remove spares of this launcher, or of one before it, for attempts that will not come. */
static void remove_spares(const char *place) {
    DIR *top = opendir(place);
    for (struct dirent *entry; top && (entry = readdir(top));) {
        if (strncmp(entry->d_name, "spare.", 6) == 0
            && unlinkat(dirfd(top), entry->d_name, 0) && unlinkat(dirfd(top), entry->d_name, AT_REMOVEDIR)) {
            say("cannot remove %s/%s: %s", place, entry->d_name, strerror(errno));
        }
    }
    if (top) {
        closedir(top);
    }
}

static void drop_spares(void) {
    spare_records = spare_places = 0;
    remove_spares("records");
    remove_spares("work");
}

/* Write down the forgotten attempts without output, so that they do not count as unknown. */
static void write_silent(void) {
    if (silent_count == 0) {
        return;
    }
    if (silent_file < 0 || silent_written >= SILENT_MAX) {
        struct stat facts;
        close_if_open(silent_file);
        if (silent_written >= SILENT_MAX) {
            rename("output/silent", "output/silent.old");
        }
        silent_file = open("output/silent", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        silent_written = silent_file >= 0 && fstat(silent_file, &facts) == 0
            ? facts.st_size / (int64_t)sizeof silent[0] : 0;
    }
    ssize_t done = write(silent_file, silent, (size_t)silent_count * sizeof silent[0]);
    silent_written += done > 0 ? silent_count : 0; /* a full disk: they will be unknown */
    silent_count = 0;
}

static void note_silent(int64_t task, int64_t attempt) {
    if (silent_count == SPARES_MAX) {
        write_silent();
    }
    silent[silent_count][0] = task;
    silent[silent_count++][1] = attempt;
}

/* Drop the record of an ended attempt. Its directory goes first: the record finds an interrupted removal again.
 * A directory with entries is removed by a child, because that may take long. */
static void forget(int64_t task, int64_t attempt) {
    char key[48], work[64], record[64];
    struct life *life = find(task, attempt);
    if (life && !life->ended) {
        return;
    }
    key_of(key, sizeof key, task, attempt);
    snprintf(work, sizeof work, "work/%s", key);
    snprintf(record, sizeof record, "records/%s", key);
    if (spare_this_place(work) || rmdir(work) == 0 || errno == ENOENT) {
        spare_this_record(record);
        return;
    }
    pid_t pid = busy_count() < ATTEMPTS_MAX ? fork() : -1;
    if (pid == 0) {
        shed();
        DIR *top = open_below(AT_FDCWD, work);
        if (top) {
            empty_directory(top);
            closedir(top);
        }
        if (rmdir(work)) {
            say("cannot remove %s: %s", work, strerror(errno));
        }
        unlink(record);
        _exit(0);
    }
    if (pid > 0) {
        add_life(task, attempt, pid, -1)->remover = true;
    }
}

static void drop_output(int64_t task, int64_t attempt) {
    char key[48], path[64];
    key_of(key, sizeof key, task, attempt);
    snprintf(path, sizeof path, "output/%s.stdout", key);
    unlink(path);
    snprintf(path, sizeof path, "output/%s.stderr", key);
    unlink(path);
}

/* --- the launcher's main loop ----------------------------------------------------------------------------- */

static void obey(const struct request *request) {
    switch (request->kind) {
    case HELLO:
        greet(request, (const char *)request + request->size);
        break;
    case START:
        begin((struct start *)(uintptr_t)request);
        break;
    case STOP:
        stop(request);
        break;
    case FORGET:
        forget(request->task, request->attempt);
        if (request->grace == SILENT) {
            note_silent(request->task, request->attempt);
        }
        break;
    case DROP:
        drop_output(request->task, request->attempt);
        break;
    case WATCH:
        look_all();
        break;
    default:
        say("an unknown request: %u", request->kind);
        hang_up();
    }
}

/* Obey some of the requests in the inbox. True: there are more. */
static bool obey_some(void) {
    size_t at = 0;
    for (int done = 0; done < REQUESTS_AT_ONCE && inbox_used - at >= sizeof(struct request); done++) {
        const struct request *request = (const struct request *)(inbox + at);
        if (request->size < sizeof *request || request->size > FRAME_BYTES_MAX || request->size % 8) {
            say("a request of %u bytes", request->size);
            hang_up();
            return false;
        }
        if (inbox_used - at < request->size) {
            break;
        }
        at += request->size;
        obey(request);
        if (inbox_used == 0) {
            return false; /* hung up */
        }
    }
    memmove(inbox, inbox + at, inbox_used - at);
    inbox_used -= at;
    return inbox_used >= sizeof(struct request) && inbox_used >= ((const struct request *)inbox)->size;
}

/* Read the daemon's requests. Those of a dead daemon are obeyed too, in order. False: there is nothing now. */
static bool take_requests(void) {
    if (door < 0) {
        return false;
    }
    ssize_t got = recv(door, inbox + inbox_used, FRAME_BYTES_MAX + COPY_BYTES - inbox_used, MSG_DONTWAIT);
    if (got > 0) {
        inbox_used += (size_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        while (obey_some()) {
        }
        hang_up();
    }
    return false;
}

/* A daemon connects. Requests of an earlier one come first: the new one then gets all records. */
static void answer_door(void) {
    int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (caller < 0) {
        return;
    }
    while (take_requests()) {
        while (obey_some()) {
        }
    }
    hang_up();
    door = caller;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = door};
    epoll_ctl(loop, EPOLL_CTL_ADD, door, &event);
}

/* True if news may wait a moment for others: many attempts run, and some news just left. */
static bool hold_back(void) {
    static int64_t told_at;
    int64_t now = now_us();
    if (outbox_used > 0 && greeted && busy_count() >= CROWD && now - told_at < CROWD_MS * 1000) {
        return true;
    }
    told_at = outbox_used > 0 ? now : told_at;
    return false;
}

static void watch_file(int file) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    epoll_ctl(loop, EPOLL_CTL_ADD, file, &event);
}

/* An event came for an unknown file: it cannot be removed by its number, so watch all others anew. */
static void watch_anew(void) {
    int fresh = epoll_create1(EPOLL_CLOEXEC);
    if (fresh < 0) {
        return; /* it is reported again */
    }
    close(loop);
    loop = fresh;
    watch_file(listener);
    watch_file(news_in);
    watch_file(signals);
    if (door >= 0) {
        watch_file(door);
        outbox_armed = false;
    }
    for (int i = 0; i < life_count; i++) {
        if (lives[i].watch >= 0) {
            watch_file(lives[i].watch);
        }
    }
}

/* A supervisor of another launcher is gone. False: none of them has this number. */
static bool watched_gone(int file) {
    take_news();
    for (int i = 0; i < life_count; i++) {
        if (lives[i].watch == file) {
            supervisor_gone(&lives[i]);
            return true;
        }
    }
    return false;
}

static void serve(void) {
    bool more = false, called = false;
    while (door >= 0 || busy_count() > 0 || !called) {
        struct epoll_event events[64];
        bool held = hold_back(), unknown = false;
        if (!held) {
            flush();
        }
        write_silent();
        int quiet = !called ? LINGER_MS : idle_count > 0 ? IDLE_MS_MAX : -1;
        int count = epoll_wait(loop, events, 64, more ? 0 : held ? CROWD_MS : quiet);
        if (count == 0 && !more && !held) {
            called = true; /* no daemon came: stay only while an attempt runs */
            dismiss_idle();
            drop_spares();
        }
        for (int i = 0; i < count; i++) {
            int file = events[i].data.fd;
            if (file == listener) {
                answer_door();
                called = true;
            } else if (file == door) {
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                    take_requests();
                }
            } else if (file == news_in) {
                take_news();
            } else if (file == signals) {
                take_signals();
            } else if (!watched_gone(file)) {
                unknown = true;
            }
        }
        if (unknown) {
            watch_anew();
        }
        more = obey_some();
    }
}

/* This launcher has no user any more: release its supervisors, which remove their groups. */
static void leave(void) {
    unlink("launcher");
    close(listener);
    dismiss_idle();
    drop_spares();
    int64_t until = now_us() + BURIAL_MS_MAX * (int64_t)1000;
    for (int i = 0; i < life_count && now_us() < until; i++) {
        await_end(lives[i].pid, until);
    }
    for (int i = 0; i < base_count; i++) {
        rmdir(base[i]);
    }
}

/* One launcher per directory: the lock belongs to this process alone, no child inherits it. */
static bool lock_directory(void) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    lock_file = open("launcher.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int tries = 0; lock_file >= 0 && tries < LOCK_SECONDS_MAX * 100; tries++) {
        if (fcntl(lock_file, F_SETLK, &whole) == 0) {
            return true;
        }
        if (errno != EAGAIN && errno != EACCES) {
            return false;
        }
        doze_ms(10);
    }
    return false;
}

static bool open_all(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "launcher"};
    sigset_t mask;
    int file = open("guard", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, GUARD_BYTES)) {
        return false;
    }
    char *page = mmap(NULL, GUARD_BYTES, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) {
        return false;
    }
    guard = (volatile int64_t *)(page + GUARD_AT);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGRTMIN);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    inbox = malloc(FRAME_BYTES_MAX + COPY_BYTES);
    next_slot = now_us(); /* larger than those of all earlier launchers since the boot */
    signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    loop = epoll_create1(EPOLL_CLOEXEC);
    if (mkfifo("news", 0600) && errno != EEXIST) {
        return false;
    }
    news_in = open("news", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    news_out = open("news", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    unlink("launcher");
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!inbox || signals < 0 || loop < 0 || news_in < 0 || news_out < 0 || listener < 0
        || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4)) {
        return false;
    }
    fcntl(news_in, F_SETPIPE_SZ, PIPE_BYTES); /* a smaller one is only slower */
    watch_file(listener);
    watch_file(news_in);
    watch_file(signals);
    return true;
}

static bool set_up(void) {
    if ((mkdir("records", 0700) && errno != EEXIST) || (mkdir("output", 0700) && errno != EEXIST)
        || (mkdir("work", 0711) && errno != EEXIST) || chmod("work", 0711)) {
        say("cannot make directories: %s", strerror(errno));
        return false;
    }
    if (!lock_directory()) {
        say("another launcher serves this directory: %s", strerror(errno));
        return false;
    }
    if (!open_all()) {
        say("cannot set up: %s", strerror(errno));
        return false;
    }
    return true;
}

/* Detach, and return in the new process; the caller's exits when the new one listens or has failed. */
static void detach(int *ready) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        say("cannot make a pipe: %s", strerror(errno));
        exit(1);
    }
    pid_t pid = fork();
    if (pid != 0) {
        char byte;
        close(ends[1]);
        exit(pid > 0 && read(ends[0], &byte, 1) == 1 ? 0 : 1);
    }
    close(ends[0]);
    *ready = ends[1];
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = open("launcher.log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (null < 0 || log < 0) {
        say("cannot write launcher.log: %s", strerror(errno));
        exit(1);
    }
    dup2(null, 0);
    dup2(null, 1);
    dup2(log, 2);
}

int main(int argc, char **argv) {
    int ready;
    if (argc != 2) {
        say("usage: %s DIRECTORY\nstarted by Hanse's process backend; not for people", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "--try-alone") == 0) {
        return try_alone();
    }
    syscall(SYS_close_range, 3u, ~0u, 0u); /* no file of the daemon's reaches a task */
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL); /* an interpreter ignores some, and tasks would inherit that */
    }
    umask(077);
    if (chdir(argv[1])) {
        say("%s: %s", argv[1], strerror(errno));
        return 1;
    }
    detach(&ready);
    if (!set_up() || write(ready, "", 1) != 1) {
        return 1;
    }
    close(ready);
    serve();
    leave();
    return 0;
}
