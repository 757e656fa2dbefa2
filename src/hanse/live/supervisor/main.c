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
 * while for the launcher to hand it the next one (over a socket of its own, its *handoff*), with its control
 * groups if the limits are the same: to make and remove these, and the process, would cost more than a short task
 * does. When the launcher is gone, these sockets are closed, and each supervisor exits after its present attempt.
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
 *   records, work: spare.N  records and empty directories of forgotten attempts, for the next ones
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
 *
 * This file sets the launcher up. Files of one section: `launcher.h` lists those of the launcher, `supervisor.h`
 * those of a supervisor and its watchdog, `common.h` those of both.
 */
#include "launcher.h"

#include <sys/mman.h>
#include <sys/un.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum {
    PIPE_BYTES = 1 << 20,          /* requested size of the news pipe */
    LOCK_SECONDS_MAX = 10,         /* for another launcher to exit */
    GUARD_AT = 40,                 /* behind the boot id */
};

volatile int64_t *guard;
int signals = -1, news_out = -1, lock_file = -1;

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
        sleep_ms(10);
    }
    return false;
}

static bool open_files(void) {
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
        log_line("cannot make directories: %s", strerror(errno));
        return false;
    }
    if (!lock_directory()) {
        log_line("another launcher serves this directory: %s", strerror(errno));
        return false;
    }
    if (!open_files()) {
        log_line("cannot set up: %s", strerror(errno));
        return false;
    }
    return true;
}

/* Detach, and return in the new process; the caller's exits when the new one listens or has failed. */
static void detach(int *ready) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        log_line("cannot make a pipe: %s", strerror(errno));
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
        log_line("cannot write launcher.log: %s", strerror(errno));
        exit(1);
    }
    dup2(null, 0);
    dup2(null, 1);
    dup2(log, 2);
}

int main(int argc, char **argv) {
    int ready;
    if (argc != 2) {
        log_line("usage: %s DIRECTORY\nstarted by Hanse's process backend; not for people", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "--try-alone") == 0) {
        return try_own_proc();
    }
    syscall(SYS_close_range, 3u, ~0u, 0u); /* no file of the daemon's reaches a task */
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL); /* an interpreter ignores some, and tasks would inherit that */
    }
    umask(077);
    if (chdir(argv[1])) {
        log_line("%s: %s", argv[1], strerror(errno));
        return 1;
    }
    detach(&ready);
    if (!set_up() || write(ready, "", 1) != 1) {
        return 1;
    }
    close(ready);
    serve();
    close_launcher();
    return 0;
}
