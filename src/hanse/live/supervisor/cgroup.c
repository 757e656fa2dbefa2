/* Control groups: their processes, their limits, and what an attempt has used of them.
 *
 * A watchdog lists processes and stops forks, so that allocates no memory. */
#include "supervisor.h"

enum {
    RMDIR_TRIES_MAX = 200,         /* a millisecond apart: the kernel releases a group a little later */
    LEFT_BYTES_MAX = 1 << 20,      /* memory still charged to a group that may be used again (mostly caches) */
    LEFT_SHARE = 16,               /* and at most this part of its limit */
};

struct group_set own_groups;
int64_t own_slot;

int list_group(const char *path) {
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

const struct group *counting_group(const struct group *group, int groups) {
    const struct group *best = NULL; /* pids: it can also stop forks */
    for (int i = 0; i < groups; i++) {
        if (!best || group[i].role == 'p' || group[i].role == 'u') {
            best = &group[i];
        }
    }
    return best;
}

void stop_forks(const struct group *group) {
    if (group && (group->role == 'p' || group->role == 'u')) {
        write_file(group->path, "pids.max", 8, "0");
    }
    if (group && group->role == 'u') {
        write_file(group->path, "cgroup.kill", 11, "1");
    }
}

/* For an attempt with a dead supervisor: its processes are not below this one, or were left to it. */
bool kill_group(const struct group *group) {
    int64_t until = now_us() + KILL_MS_MAX * (int64_t)1000;
    stop_forks(group);
    for (int count; (count = list_group(group->path)) > 0;) {
        for (int i = 0; i < count; i++) {
            kill(listed[i], SIGKILL);
        }
        if (!await_exit(listed[0], until)) {
            return false;
        }
    }
    return true;
}

void remove_groups(const struct group *group, int groups) {
    for (int i = 0; i < groups; i++) {
        for (int tries = 0; rmdir(group[i].path) && errno == EBUSY && tries < RMDIR_TRIES_MAX; tries++) {
            sleep_ms(1);
        }
    }
}

static int open_group_file(const struct group *group, const char *name, int how) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group->path, name);
    return open(path, how | O_CLOEXEC);
}

static int64_t find_left_max(const struct group *group) {
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
    group->join = open_group_file(group, unified ? "cgroup.procs" : "tasks", O_WRONLY);
    if (group->join < 0) {
        fail_attempt(a, LOST, 0, "cannot enter the control group ", group->path);
    }
    if (unified || group->role == 'm') {
        group->kills = open_group_file(group, unified ? "memory.events" : "memory.oom_control", O_RDONLY);
        group->level = open_group_file(group, unified ? "memory.current" : "memory.usage_in_bytes", O_RDONLY);
        const char *peak = unified ? "memory.peak" : "memory.max_usage_in_bytes";
        group->peak = open_group_file(group, peak, O_RDWR);
        group->peak = group->peak < 0 ? open_group_file(group, peak, O_RDONLY) : group->peak;
        group->left_max = find_left_max(group);
    }
    if (unified || group->role == 'c' || group->role == 'a') {
        group->cpu = open_group_file(group, unified ? "cpu.stat" : "cpuacct.usage", O_RDONLY);
    }
}

static void make_group(struct attempt *a, const char **at, const char *end) {
    const char *head = next_text(at, end);
    struct group *group = &own_groups.group[own_groups.groups];
    *group = (struct group){.role = head[0], .join = -1, .cpu = -1, .peak = -1, .kills = -1, .level = -1};
    snprintf(group->path, sizeof group->path, "%s/%lld", head + 1, (long long)own_slot);
    if (mkdir(group->path, 0755) && errno != EEXIST) {
        fail_attempt(a, LOST, 0, "cannot make the control group ", group->path);
    }
    own_groups.groups++;
    for (const char *line; (line = next_text(at, end)) && *line;) {
        const char *equals = strchr(line, '=');
        bool optional = line[0] == '?'; /* a file that some kernels lack */
        line += optional;
        if (!equals || (write_file(group->path, line, (size_t)(equals - line), equals + 1) && !optional)) {
            fail_attempt(a, LOST, 0, "cannot set the limit ", line);
        }
    }
    open_group(a, group);
}

void take_groups(struct attempt *a, const char **at, const char *end) {
    const char *behind = skip_groups(a->start, *at, end);
    size_t size = (size_t)(behind - *at);
    if (own_groups.groups && size == own_groups.text_size && memcmp(own_groups.text, *at, size) == 0) {
        *at = behind;
        return;
    }
    leave_groups();
    if (size <= sizeof own_groups.text) {
        memcpy(own_groups.text, *at, size);
        own_groups.text_size = (uint32_t)size;
    }
    for (uint32_t i = 0; i < a->start->groups; i++) {
        make_group(a, at, end);
    }
}

void leave_groups(void) {
    for (int i = 0; i < own_groups.groups; i++) {
        const struct group *group = &own_groups.group[i];
        const int files[5] = {group->join, group->cpu, group->peak, group->kills, group->level};
        for (int k = 0; k < 5; k++) {
            close_if_open(files[k]);
        }
    }
    remove_groups(own_groups.group, own_groups.groups);
    own_groups.groups = 0;
    own_groups.text_size = 0;
    own_groups.changed = false;
}

static int64_t read_number(int file, const char *word) {
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
static int64_t read_cpu(const struct group *group) {
    int64_t found = read_number(group->cpu, group->role == 'u' ? "usage_usec" : NULL);
    return found > 0 && group->role != 'u' ? found / 1000 : found;
}

void measure_usage(struct attempt *a) {
    a->end.cpu = a->cpu;
    a->end.memory = a->memory;
    for (int i = 0; i < own_groups.groups; i++) {
        struct group *group = &own_groups.group[i];
        int64_t cpu = read_cpu(group), peak = read_number(group->peak, NULL);
        int64_t kills = read_number(group->kills, "oom_kill");
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

/* The groups are as good as new if hardly any memory is left in them. The rest is mostly caches, which the kernel
 * reclaims before a limit is reached. */
bool reset_measurements(void) {
    for (int i = 0; i < own_groups.groups && !own_groups.changed; i++) {
        struct group *group = &own_groups.group[i];
        if (group->level < 0) {
            continue;
        }
        group->level_before = read_number(group->level, NULL);
        own_groups.changed = group->level_before < 0 || group->level_before > group->left_max
            || (group->peak >= 0 && pwrite(group->peak, "0", 1, 0) != 1); /* version 2: since Linux 6.12 */
    }
    return !own_groups.changed;
}
