/* What the launcher and the daemon say to each other, and what stands in records.
 *
 * live/backends/process/launcher_protocol.py has the same numbers and layouts. Both ends are on one machine, so
 * all values are in its own byte order. A request is a multiple of 8 bytes long. */
#ifndef HANSE_PROTOCOL_H
#define HANSE_PROTOCOL_H

#include <stdint.h>

#ifndef HANSE_SOURCE_CRC
#define HANSE_SOURCE_CRC 0u /* the build gives the sum over all source files of this folder */
#endif

enum { RECORD_MAGIC = 0x48616e73 };

/* Kinds of requests of the daemon, and of reports to it. */
enum { HELLO = 1, START = 2, STOP = 3, FORGET = 4, DROP = 5, WATCH = 6 };
enum { SILENT = 1 }; /* FORGET: it wrote nothing */
enum { FOUND_RUNNING = 1, FOUND_ENDED = 2, READY = 3, STARTED = 4, ENDED = 5 };
/* Kinds of ends of an attempt, and remarks on its end. */
enum { NOT_ENDED = 0, EXITED = 1, STOPPED = 2, LEASE_OVER = 3, NO_LEASE = 4, UNFIT = 5, LOST = 6 };
enum { OUT_OF_MEMORY = 1, STDOUT_CUT = 2, STDERR_CUT = 4, STILL_ALIVE = 8 };
/* Flags of a start. */
enum { FRESH_DIRECTORY = 1, SANDBOXED = 2, NO_NEW_PRIVILEGES = 4, HAS_KEY = 8, ALONE = 16 };
enum { DIRECTORY_MADE = 1 << 16 }; /* set by the launcher, for a fresh directory */
enum { SANDBOX_REPORT = 3 }; /* bubblewrap's descriptor for its report, as the command of a SANDBOXED start says */

/* The end of an attempt, or nothing if its sum is wrong. */
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

/* The front of a file in `records`. */
struct record {
    uint32_t magic;
    uint32_t meta;   /* bytes of the daemon's metadata, behind this */
    uint32_t groups; /* bytes of the paths of its control groups, behind those */
    int32_t supervisor;
    int64_t task;
    int64_t attempt;
    struct end end;
};

/* A report of a supervisor to the launcher, and of the launcher to the daemon. */
struct news {
    uint32_t kind;
    uint32_t extra; /* bytes that follow */
    int64_t task;
    int64_t attempt;
    int32_t supervisor;
    uint32_t stays; /* ENDED: nonzero if it can take another attempt */
    struct end end;
};

/* A request of the daemon, or the front of one. */
struct request {
    uint32_t size; /* of the whole frame */
    uint32_t kind;
    int64_t task;
    int64_t attempt;
    int64_t grace; /* STOP: microseconds. HELLO: the checksum of the daemon's source, or 0. START: when the order
                    * expires, on CLOCK_BOOTTIME in microseconds; 0: never */
};

/* A request to start an attempt. Behind it: gids as uint32, meta, and texts: working directory, groups, argv, env,
 * and the key for its standard input, if it has one. A group is its role and directory, then `file=value` for each
 * setting, then an empty text. */
struct start {
    struct request head;
    int64_t output_max; /* bytes per stream */
    int64_t data_max;   /* RLIMIT_DATA, bytes; 0: unchanged */
    int64_t processes_max; /* RLIMIT_NPROC; 0: unchanged */
    int32_t uid;        /* -1: the launcher's */
    int32_t gid;
    uint32_t flags;
    uint32_t gids, meta, groups, argc, envc;
};

#endif
