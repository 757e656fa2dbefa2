/* The start of a task: from a request with all groups made to a running program. */
#include "supervisor.h"

#include <sys/resource.h>

/* Fault in the child before its program ran: it shares this memory until then. */
static volatile int fault_step, fault_errno;
enum { NO_FAULT, FAULT_GROUP, FAULT_SETUP, FAULT_USER, FAULT_WORKDIR, FAULT_PROGRAM, FAULT_LEASE };

/* True if this supervisor, and so each of its tasks, has a /proc of its own. */
static bool has_mounted_proc;

static int set_limit(int which, int64_t value) {
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

static void exit_with_fault(int step) {
    fault_errno = errno;
    fault_step = step;
    _exit(127);
}

/* In the child, which shares this memory and for which its parent waits: from here to its program. Raw system
 * calls for the user: the C library's would look for other threads. */
static void exec_program(const struct attempt *a, pid_t supervisor, int in, int out, int err, int report) {
    const struct start *start = a->start;
    sigset_t none;
    setsid();
    for (int i = 0; i < own_groups.groups; i++) {
        if (write(own_groups.group[i].join, "0", 1) < 0) {
            exit_with_fault(FAULT_GROUP);
        }
    }
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || (report >= 0 && pass_sandbox_report(report))
        || set_limit(RLIMIT_CORE, 0)
        || (start->data_max && set_limit(RLIMIT_DATA, start->data_max))
        || (start->processes_max && set_limit(RLIMIT_NPROC, start->processes_max))) {
        exit_with_fault(FAULT_SETUP);
    }
    umask(022);
    if (start->flags & FRESH_DIRECTORY && chdir(a->workdir)) { /* this process may enter where the user may not */
        exit_with_fault(FAULT_SETUP);
    }
    if (start->uid >= 0
        && (syscall(SYS_setgroups, (size_t)start->gids, a->gids)
            || syscall(SYS_setresgid, start->gid, start->gid, start->gid)
            || hide_until_exec(start) /* while it is allowed, and after the calls that would undo it */
            || syscall(SYS_setresuid, start->uid, start->uid, start->uid))) {
        exit_with_fault(FAULT_USER);
    }
    if (start->flags & NO_NEW_PRIVILEGES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        exit_with_fault(FAULT_USER);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    if (getppid() != supervisor) {
        _exit(127); /* it died before the line above */
    }
    if (!(start->flags & FRESH_DIRECTORY) && chdir(a->workdir)) {
        exit_with_fault(FAULT_WORKDIR);
    }
    if (is_lease_over(start)) { /* earlier calls may have waited for a disk: the watchdog looks only once */
        exit_with_fault(FAULT_LEASE);
    }
    execvp(a->argv[0], a->argv);
    exit_with_fault(FAULT_PROGRAM);
}

static void report_fault(struct attempt *a) {
    errno = fault_errno;
    switch (fault_step) {
    case FAULT_LEASE:
        end_without_lease(a);
        break;
    case FAULT_PROGRAM:
        fail_attempt(a, UNFIT, errno == ENOENT ? 127 : 126, "cannot run ", a->argv[0]);
        break;
    case FAULT_WORKDIR:
        fail_attempt(a, UNFIT, 126, "cannot enter the working directory ", a->workdir);
        break;
    case FAULT_USER:
        fail_attempt(a, LOST, 0, "cannot become the task's user", "");
        break;
    case FAULT_GROUP:
        fail_attempt(a, LOST, 0, "cannot enter the task's control group", "");
        break;
    default:
        fail_attempt(a, LOST, 0, "cannot set the task up", "");
    }
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

void start_program(struct attempt *a) {
    int out[2], err[2];
    int in = a->secret ? pipe_with(a->secret) : null_file;
    bool sandboxed = a->start->flags & SANDBOXED;
    int report = sandboxed ? open_sandbox_report(a) : -1;
    if (in < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || (sandboxed && report < 0)) {
        fail_attempt(a, LOST, 0, "cannot make pipes", "");
    }
    if (a->start->flags & ALONE && !has_mounted_proc) { /* once: a new one for each task costs a tenth of its start */
        if (mount_own_proc()) {
            fail_attempt(a, LOST, 0, "cannot hide other processes from the task", "");
        }
        has_mounted_proc = true;
    }
    pid_t self = getpid();
    environ = a->env; /* execvp searches the task's own PATH */
    int64_t began = now_us();
    fault_step = NO_FAULT;
    announce_run();
    a->child = vfork();
    if (a->child == 0) {
        exec_program(a, self, in, out[1], err[1], report);
    }
    if (a->child < 0) {
        fail_attempt(a, LOST, 0, "cannot make a process", "");
    }
    if (in != null_file) {
        close(in);
    }
    close(out[1]);
    close(err[1]);
    close_if_open(report);
    a->stream[0].pipe = out[0];
    a->stream[1].pipe = err[0];
    for (int i = 0; i < 2; i++) {
        fcntl(a->stream[i].pipe, F_SETFL, O_NONBLOCK);
    }
    if (fault_step != NO_FAULT) {
        report_fault(a);
    }
    a->end.began = began;
    a->start_unreported = !send_news(STARTED, a, false);
}
