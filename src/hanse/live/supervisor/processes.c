/* Processes by their numbers, as /proc has them. A watchdog uses all of this, so none of it allocates memory. */
#include "common.h"

pid_t listed[LISTED_MAX];
char proc_entries[ENTRIES_BYTES];

pid_t parent_of(const char *pid) {
    char directory[300], text[1024];
    snprintf(directory, sizeof directory, "/proc/%s", pid);
    if (read_file(directory, "stat", text, sizeof text) <= 0) {
        return -1;
    }
    const char *behind = strrchr(text, ')'); /* a program's name may contain any byte */
    int parent = -1;
    return behind && sscanf(behind + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

/* Children have larger numbers than their parents until numbers wrap around, so one walk finds nearly all;
 * callers repeat until nothing is left. */
int list_descendants(pid_t root, bool (*is_excluded)(pid_t pid)) {
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    for (long got; proc >= 0 && (got = syscall(SYS_getdents64, proc, proc_entries, sizeof proc_entries)) > 0;) {
        for (long at = 0; at < got && count < LISTED_MAX;) {
            const struct dirent64 *entry = (const struct dirent64 *)(proc_entries + at);
            at += entry->d_reclen;
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9') {
                continue;
            }
            pid_t pid = (pid_t)atoi(entry->d_name), parent = parent_of(entry->d_name);
            bool below = parent == root && !(is_excluded && is_excluded(pid));
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

bool is_dead(pid_t pid) {
    char directory[64], text[1024];
    snprintf(directory, sizeof directory, "/proc/%d", (int)pid);
    const char *behind = read_file(directory, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return !behind || behind[1] == 0 || behind[2] == 'Z' || behind[2] == 'X';
}

/* The process may be stuck in the kernel. */
bool await_exit(pid_t pid, int64_t until) {
    struct pollfd gone = {.fd = open_pidfd(pid), .events = POLLIN};
    int64_t left = (until - now_us()) / 1000;
    if (gone.fd < 0) {
        sleep_ms(1); /* it is about to end */
    } else {
        poll(&gone, 1, left > 0 ? (int)left : 0);
        close(gone.fd);
    }
    return left > 0;
}
