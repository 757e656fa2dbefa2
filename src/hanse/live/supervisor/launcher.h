/* What the files of the launcher share. */
#ifndef HANSE_LAUNCHER_H
#define HANSE_LAUNCHER_H

#include "supervisor.h"

#include <sys/epoll.h>
#include <sys/uio.h>

enum {
    FRAME_BYTES_MAX = 8 << 20,     /* of a request; the daemon's limit is lower */
    ATTEMPTS_MAX = 8192,           /* alive at once; more are refused */
    HANDOFFS_MAX = 128,            /* supervisors that can be used again; others have one attempt and exit */
    BATCH_MS = 3,                  /* between two batches of news, while many attempts run */
    SPARES_MAX = 64,               /* records, and directories, kept for the next attempts */
};

/* A supervisor as the launcher knows it. */
struct supervisor {
    int64_t task;
    int64_t attempt;
    pid_t pid; /* of its watchdog, if that is a child of this launcher */
    int watch; /* process file descriptor of another launcher's fork; -1: own child */
    int handoff; /* socket for another attempt; -1: it exits after this one */
    int64_t slot;   /* the name of its control groups */
    uint64_t groups_digest; /* of their settings */
    int64_t turn;   /* of its attempt; 0: another launcher made it */
    bool idle;      /* it waits for an attempt, and has none */
    bool ended;
    bool remover; /* a child that removes a directory, no supervisor */
};

/* --- state ----------------------------------------------------------------------------------------------- */

extern int listener, news_in, loop;    /* launcher.c: for the daemon; from supervisors; epoll */
extern int lock_file;                  /* main.c */
extern int daemon_socket;              /* connection.c: -1: no daemon is connected */
extern bool hello_done;                /* the daemon has all records; before, it would not know attempts in news */
extern char *inbox;                    /* requests that have come */
extern size_t inbox_used, outbox_used; /* bytes */
extern bool outbox_polled;             /* the loop looks for room to write */
extern struct supervisor supervisors[ATTEMPTS_MAX + HANDOFFS_MAX]; /* supervisor_table.c */
extern int supervisor_count, idle_count, handoff_count;
extern int64_t next_slot;              /* start_requests.c: the name of the next supervisor's groups */
extern char group_base[GROUPS_MAX][PATH_BYTES]; /* hello.c: directories to remove with the launcher */
extern int group_base_count;
extern int silent_file;                /* removal.c */

/* --- records.c ------------------------------------------------------------------------------------------- */

/* Parse TASK.ATTEMPT. */
bool parse_key(const char *name, int64_t *task, int64_t *attempt);
/* Read the record of an attempt: zeros, if the machine died during its write. */
void read_record(int file, struct record *record, int64_t task, int64_t attempt);
/* Open and read the record of an attempt; its file, or -1. */
int open_record(int64_t task, int64_t attempt, struct record *record);
/* Bytes of the parts of a record. */
ssize_t total_length(const struct iovec parts[3]);
/* Make the record of an attempt, locked; its file, or -1 with `errno`. EEXIST: it has one already. */
int make_record(const struct attempt *a, int64_t slot, const char *at, const char *end);

/* --- spares.c -------------------------------------------------------------------------------------------- */

/* Write a record over a spare one. -1 with EEXIST: the attempt has one already; else a new file is to be made. */
int reuse_record(const char *path, const struct iovec parts[3]);
/* Keep the record of a forgotten attempt for another one, or remove it. */
void keep_record(const char *path);
/* Give an attempt the empty directory of a forgotten one, as the same user; false: there is none. */
bool take_spare_directory(const struct attempt *a);
/* Keep the directory of a forgotten attempt for another one, if it cannot be told from a new one. */
bool keep_directory(const char *path);
/* Remove all spares. */
void remove_spares(void);

/* --- connection.c ---------------------------------------------------------------------------------------- */

/* Close the connection of the daemon. */
void disconnect_daemon(void);
/* Free the memory of requests and reports, in a fork. */
void free_buffers(void);
/* Send what is queued, as far as the daemon reads. */
void send_reports(void);
/* Queue a report, if a daemon is to get it. */
void queue_report(const struct news *news, const char *extra);
/* Queue the report of an end. */
void queue_end(int64_t task, int64_t attempt, const struct end *end);
/* Read the daemon's requests. False: there is nothing now. */
bool receive_requests(void);
/* Take the connection of a daemon. */
void accept_daemon(void);
/* True if news may wait a moment for others. */
bool is_batching(void);

/* --- supervisor_table.c ---------------------------------------------------------------------------------- */

/* The supervisor of an attempt, or NULL. */
struct supervisor *find_supervisor(int64_t task, int64_t attempt);
/* The entry of a child, or NULL. */
struct supervisor *find_by_pid(pid_t pid);
/* The number of entries that do not wait for an attempt. */
int busy_count(void);
/* Add an entry; NULL: the table is full. */
struct supervisor *add_supervisor(int64_t task, int64_t attempt, pid_t pid, int watch);
/* Remove an entry; another one takes its place. */
void remove_supervisor(struct supervisor *supervisor);
/* An attempt has ended: its supervisor waits for another one, or exits. */
void on_attempt_end(struct supervisor *supervisor, bool stays);
/* The idle supervisor for an attempt with such groups; NULL: none waits. */
struct supervisor *choose_idle(uint64_t groups_digest);
/* Close the sockets of idle supervisors, because there is no work: they exit. */
void release_idle(void);
/* True if a process is in the table. */
bool is_own_child(pid_t pid);
/* Send a signal with a number to a supervisor, through its watchdog. */
void signal_supervisor(const struct supervisor *supervisor, int64_t number);

/* --- supervisor_exits.c ---------------------------------------------------------------------------------- */

/* End an attempt with a dead supervisor: none of its processes runs after this call. */
void record_loss(int file, struct record *record);
/* Handle the end of a supervisor of another launcher. False: none of them has this file. */
bool on_adopted_exit(int file);
/* Watch a supervisor of an earlier launcher. False: it is gone. */
bool adopt_supervisor(int64_t task, int64_t attempt, pid_t pid, int record);
/* Read the pipe of supervisors. */
void receive_news(void);
/* Read signals, and reap children. */
void receive_signals(void);

/* --- hello.c --------------------------------------------------------------------------------------------- */

/* Report all records to a daemon that has just connected. */
void on_hello(const struct request *request, const char *end);

/* --- start_requests.c ------------------------------------------------------------------------------------ */

/* Close, in a fork, the launcher's files. */
void close_launcher_files(void);
/* Start an attempt. */
void on_start(struct start *start);

/* --- removal.c ------------------------------------------------------------------------------------------- */

/* Write down the forgotten attempts without output. */
void write_silent(void);
/* Remember a forgotten attempt without output. */
void add_silent(int64_t task, int64_t attempt);
/* Remove the directory and the record of an ended attempt. */
void on_forget(int64_t task, int64_t attempt);
/* Remove the output of an attempt. */
void on_drop(int64_t task, int64_t attempt);

/* --- requests.c ------------------------------------------------------------------------------------------ */

/* Handle some of the requests in the inbox. True: there are more. */
bool dispatch_requests(void);

/* --- launcher.c ------------------------------------------------------------------------------------------ */

/* Wait for input of a file. */
void watch_file(int file);
/* Stop watching a file and close it. */
void unwatch_file(int file);
/* Main loop, until there is neither a daemon nor an attempt. */
void serve(void);
/* Release all supervisors, and remove what they leave. */
void close_launcher(void);

#endif
