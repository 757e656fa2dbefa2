/* Requests to forget an attempt, and to drop its output. */
#include "launcher.h"

enum { SILENT_MAX = 10000 }; /* attempts in a file of those that wrote nothing */

int silent_file = -1;
static int64_t silent[SPARES_MAX][2];
static int silent_count;
static int64_t silent_written;

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

/* The forgotten attempts without output must not count as unknown. */
void write_silent(void) {
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

void add_silent(int64_t task, int64_t attempt) {
    if (silent_count == SPARES_MAX) {
        write_silent();
    }
    silent[silent_count][0] = task;
    silent[silent_count++][1] = attempt;
}

/* The directory goes first: the record finds an interrupted removal again.
 * A directory with entries is removed by a child, because that may take long. */
void on_forget(int64_t task, int64_t attempt) {
    char key[48], work[64], record[64];
    struct supervisor *supervisor = find_supervisor(task, attempt);
    if (supervisor && !supervisor->ended) {
        return;
    }
    format_key(key, sizeof key, task, attempt);
    snprintf(work, sizeof work, "work/%s", key);
    snprintf(record, sizeof record, "records/%s", key);
    if (keep_directory(work) || rmdir(work) == 0 || errno == ENOENT) {
        keep_record(record);
        return;
    }
    pid_t pid = busy_count() < ATTEMPTS_MAX ? fork() : -1;
    if (pid == 0) {
        close_launcher_files();
        DIR *top = open_below(AT_FDCWD, work);
        if (top) {
            empty_directory(top);
            closedir(top);
        }
        if (rmdir(work)) {
            log_line("cannot remove %s: %s", work, strerror(errno));
        }
        unlink(record);
        _exit(0);
    }
    if (pid > 0) {
        add_supervisor(task, attempt, pid, -1)->remover = true;
    }
}

void on_drop(int64_t task, int64_t attempt) {
    char key[48], path[64];
    format_key(key, sizeof key, task, attempt);
    snprintf(path, sizeof path, "output/%s.stdout", key);
    unlink(path);
    snprintf(path, sizeof path, "output/%s.stderr", key);
    unlink(path);
}
