/* What the files of a supervisor and of its watchdog share.
 *
 * All state here belongs to one supervisor process: the launcher forks it and never uses this state itself. */
#ifndef HANSE_SUPERVISOR_H
#define HANSE_SUPERVISOR_H

#include "common.h"

/* The control groups of a supervisor, and the request's text that made them. */
struct group_set {
    struct group group[GROUPS_MAX];
    int groups;
    bool changed; /* since they were made: not for another attempt */
    uint32_t text_size;
    char text[HANDOFF_BYTES_MAX];
};

/* Standard output or standard error of the task. */
struct stream {
    int pipe;
    int file;
    int64_t written;
    bool cut;
    char path[64];
};

/* The attempt of a supervisor. */
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
    int sandbox_report; /* bubblewrap's, to read; -1: there is no sandbox */
    struct end end;
    pid_t child;
    bool child_over;
    int status;
    bool stopping;
    int64_t stop_at;
    bool start_unreported;
    int64_t cpu;    /* microseconds of all reaped processes */
    int64_t memory; /* peak bytes of one of them */
};

/* --- state ----------------------------------------------------------------------------------------------- */

extern struct group_set own_groups; /* cgroup.c */
extern int64_t own_slot;            /* the name of its control groups */
extern int handoff;                 /* attempt.c: the socket that brings the next attempt; -1: there is none */
extern int timer;                   /* for the end of the lease, or of the grace of a stop */
extern int null_file;               /* /dev/null */
extern int64_t turn;                /* stopping.c: of this supervisor's attempt */
extern int64_t early_grace;         /* of a stop that came before its attempt; -1: none did */
extern pid_t watchdog;              /* watchdog.c: this supervisor's */

/* --- cgroup.c: the groups of a supervisor ---------------------------------------------------------------- */

/* Make the groups of an attempt with their limits, or keep the present ones if the same text made them. */
void take_groups(struct attempt *a, const char **at, const char *end);
/* Close and remove the present groups. */
void leave_groups(void);
/* Fill in what the attempt used. */
void measure_usage(struct attempt *a);
/* Begin measurements anew. False: the groups are not as good as new ones. */
bool reset_measurements(void);

/* --- output.c -------------------------------------------------------------------------------------------- */

/* Copy the present output, at most one buffer of it. False: there is none now, or the stream has ended. */
bool copy_output(struct attempt *a, struct stream *stream);

/* --- sandbox.c ------------------------------------------------------------------------------------------- */

/* Make the pipe for bubblewrap's report; the end to write, or -1. */
int open_sandbox_report(struct attempt *a);
/* In the child: give bubblewrap that end. Nonzero: it cannot be done. */
int pass_sandbox_report(int file);
/* Keep the front of what a sandboxed attempt writes to standard error. */
void keep_sandbox_message(const char *bytes, size_t count);
/* Correct the end of an attempt whose program never began in its sandbox, and say why. */
void explain_sandbox_failure(struct attempt *a);

/* --- isolation.c ----------------------------------------------------------------------------------------- */

/* Close a task with a key to other processes of its user; nonzero: it cannot be done. */
int hide_until_exec(const struct start *start);
/* Mount a /proc that shows the task its own user's processes alone; nonzero: it cannot be done. */
int mount_own_proc(void);
/* Try out whether tasks can have a /proc of their own; the exit status is the answer. */
int try_own_proc(void);

/* --- attempt_end.c --------------------------------------------------------------------------------------- */

/* Reap the ended children. False: there is no child at all. */
bool reap_children(struct attempt *a);
/* Kill all that is left of an attempt and wait until it is gone. */
void kill_attempt(struct attempt *a);
/* Report to the launcher, if there is one. False: its pipe is full, try again. */
bool send_news(uint32_t kind, const struct attempt *a, bool stays);
/* Write the end of an attempt, report it, and release the record. */
void finish_attempt(struct attempt *a, bool stays);
/* The end of an attempt that could not be started for this reason. */
uint32_t kind_of_failed_start(int error);
/* End an attempt that cannot start, by `errno`, and exit. */
void fail_attempt(struct attempt *a, uint32_t kind, int code, const char *what, const char *which);
/* End an attempt that has no lease to start under, and exit. */
void end_without_lease(struct attempt *a);

/* --- task_start.c ---------------------------------------------------------------------------------------- */

/* Start the program of an attempt; exits if that fails. */
void start_program(struct attempt *a);

/* --- stopping.c ------------------------------------------------------------------------------------------ */

/* Set the timer to the end of the lease, or of the grace. */
void arm_timer(const struct attempt *a);
/* The turn behind this one. */
int64_t next_turn(int64_t last);
/* Ask the task to end, and end it by force after so many microseconds. */
void stop_within(struct attempt *a, int64_t grace);
/* Handle all signals that have come. */
void handle_signals(struct attempt *a);
/* True if the task has ended without force. */
bool has_ended_itself(const struct attempt *a);
/* Read signals for the attempt before; keep the grace of a stop for turn `coming`. True: one means end. */
bool drain_signals(int64_t coming);

/* --- attempt.c ------------------------------------------------------------------------------------------- */

/* Begin an attempt by its request; return the start of the request's texts. */
const char *parse_start(struct attempt *a, const struct start *start);
/* Main loop of a supervisor: its first attempt, and those that it is handed. Does not return. */
void run_attempts(struct attempt *a, const char *at);

/* --- watchdog.c ------------------------------------------------------------------------------------------ */

/* Return as a supervisor with a watchdog, which is the process before the fork. */
void add_watchdog(struct attempt *a);
/* Tell the watchdog that a task runs from now on, and where its processes are counted. */
void announce_run(void);
/* End the run: no process of the task is left. True if the watchdog killed. */
bool was_killed_by_watchdog(const struct attempt *a);

#endif
