/* A task that other users, and other tasks of its user, cannot look into, and that cannot look at them. */
#include "supervisor.h"

#include <sched.h>
#include <sys/mount.h>

enum { NO_GROUP = 65534 }; /* a group that owns no files */

/* Close a task that has a key to other processes of its user from its first instruction: only root may trace
 * it, or read its memory, its environment or its files. The task could do so itself (PR_SET_DUMPABLE), but only
 * once its program runs, and until then others could take the key out of its standard input. The kernel also
 * does it for a program that starts with another group for files than before; so it gets another until then. A
 * sandbox does not need that: others cannot look into it, and it could not set itself up. */
int hide_until_exec(const struct start *start) {
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
 * own: those kernels refuse or ignore it, which `has_own_proc` sees. */
int mount_own_proc(void) {
    return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL)
        || mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible");
}

/* True if the top /proc does hide processes, by the list of mounts; the last line for it counts. */
static bool has_own_proc(void) {
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
static bool is_proc_covered(void) {
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

/* Standard error gets the reason. */
int try_own_proc(void) {
    if (is_proc_covered()) {
        fputs("something is mounted over parts of /proc", stderr);
        return 1;
    }
    if (mount_own_proc()) {
        fputs(strerror(errno), stderr);
        return 1;
    }
    if (!has_own_proc()) {
        fputs("the kernel is older than 5.8", stderr);
        return 1;
    }
    return 0;
}
