/* What the launcher and the supervisors share: limits, files that both have, and functions without state. */
#ifndef HANSE_COMMON_H
#define HANSE_COMMON_H

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum {
    GROUPS_MAX = 5,
    SUPPLEMENTARY_MAX = 256,
    PATH_BYTES = 4096,
    COPY_BYTES = 1 << 16,
    KILL_MS_MAX = 5000,            /* for killed processes to disappear */
    HANDOFF_BYTES_MAX = 1 << 15,   /* of a request that can be handed over; a longer one gets a new supervisor */
    LISTED_MAX = 4096,
    ENTRIES_BYTES = 1 << 15,       /* of a directory, read in one call */
    GUARD_BYTES = 4096,
};

/* The number with a signal to a supervisor (SIGRTMIN). A signal to stop names its supervisor's attempt, because a
 * supervisor with the next attempt may still get the stop of the last: the attempt's turn, from 1 on, above so
 * many bits of grace. 0: the present attempt; used for a supervisor of another launcher, which gets no more
 * attempts. */
enum { READ_GUARD = -1 }; /* instead of a grace: only read the guard */
enum { GRACE_BITS = 44, TURNS = 1 << 17 };
#define GRACE_MOST (((int64_t)1 << GRACE_BITS) - 1)

/* A control group of one attempt. Roles: c, a, m, p, d = cpu, cpuacct, memory, pids, devices of version 1;
 * u = version 2. */
struct group {
    char role;
    char path[PATH_BYTES];
    int join;
    int cpu, peak, kills, level;         /* files to measure by; -1: none */
    int64_t cpu_before, kills_before, level_before; /* values left by earlier attempts */
    int64_t left_max;                    /* bytes of memory that may be left for another attempt */
};

/* --- state, defined in main.c ---------------------------------------------------------------------------- */

extern volatile int64_t *guard; /* when all attempts end, on CLOCK_BOOTTIME in microseconds; 0: never set */
extern int signals;             /* signalfd of this process: a fork reads its own */
extern int news_out;            /* the end of the pipe that supervisors write to */

/* --- util.c ---------------------------------------------------------------------------------------------- */

/* CLOCK_BOOTTIME in microseconds. */
int64_t now_us(void);
/* True if the guard's lease is over, or the order to start has expired. */
bool is_lease_over(const struct start *start);
/* Wait this long. */
void sleep_ms(int milliseconds);
/* Write a line to the launcher's log. */
void log_line(const char *format, ...);
/* Close a file unless it is -1. */
void close_if_open(int file);
/* A descriptor of a process, or -1. */
int open_pidfd(pid_t pid);
/* Read the front of a file as a text; its length, or -1. */
ssize_t read_file(const char *directory, const char *name, char *text, size_t size);
/* Write a text into a file that exists; 0, or -1. */
int write_file(const char *directory, const char *name, size_t name_length, const char *text);
/* The number behind a word in a file of lines `word number`; -1 if it is missing. */
int64_t number_after(const char *text, const char *word);
/* The next text that ends with NUL; NULL: there is none. */
const char *next_text(const char **at, const char *end);
/* The place behind the groups of a start, which begin at `at`. */
const char *skip_groups(const struct start *start, const char *at, const char *end);

/* --- records.c ------------------------------------------------------------------------------------------- */

/* The sum that makes an end valid. */
uint32_t end_checksum(const struct end *end);
/* True if an end was written, and wholly. */
bool is_valid_end(const struct end *end);
/* Set the sentence that says more about an end. */
void set_note(struct end *end, const char *format, ...);
/* Write TASK.ATTEMPT, the name of an attempt's files. */
void format_key(char *key, size_t size, int64_t task, int64_t attempt);
/* Write an end into a record. */
void write_end(int record, struct end *end);

/* --- processes.c ----------------------------------------------------------------------------------------- */

extern pid_t listed[LISTED_MAX];         /* the answer of list_descendants and list_group */
extern char proc_entries[ENTRIES_BYTES]; /* entries of /proc, as they are read */

/* The parent of a process, by its number as a text; -1: it is gone. */
pid_t parent_of(const char *pid);
/* List all processes below `root`, without those that `is_excluded` (NULL: none) and all below them. */
int list_descendants(pid_t root, bool (*is_excluded)(pid_t pid));
/* True if a process has ended, reaped or not. */
bool is_dead(pid_t pid);
/* Wait for the end of a killed process. False: it is later than `until`. */
bool await_exit(pid_t pid, int64_t until);

/* --- cgroup.c: the groups of any attempt ----------------------------------------------------------------- */

/* List the processes of a control group; return how many. */
int list_group(const char *path);
/* The one of an attempt's groups that counts its processes; NULL: it has no group. */
const struct group *counting_group(const struct group *group, int groups);
/* Let a group make no more processes, and kill it at once where the kernel can. */
void stop_forks(const struct group *group);
/* Kill all processes of a group and wait until they are gone. False: some cannot be killed. */
bool kill_group(const struct group *group);
/* Remove the control groups of a supervisor that has exited or is exiting. */
void remove_groups(const struct group *group, int groups);

#endif
