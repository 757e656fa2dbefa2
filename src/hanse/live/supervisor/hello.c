/* The first request of a daemon: all records are reported to it, and what nobody needs is removed. */
#include "launcher.h"

#include <sys/file.h>

enum { SUPERVISOR_START_MS_MAX = 1000 }; /* for a supervisor's first instruction */

char group_base[GROUPS_MAX][PATH_BYTES];
int group_base_count;

static void report_record(int64_t task, int64_t attempt) {
    struct record record = {0};
    int file = open_record(task, attempt, &record);
    if (file < 0) {
        return;
    }
    for (int waited = 0; !is_valid_end(&record.end) && !find_supervisor(task, attempt); waited++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            read_record(file, &record, task, attempt);
            if (!is_valid_end(&record.end)) {
                record_loss(file, &record); /* read again: it may have ended before it released the lock */
            }
            break;
        }
        if (record.supervisor > 0 && adopt_supervisor(task, attempt, record.supervisor, file)) {
            break;
        }
        if (waited == SUPERVISOR_START_MS_MAX) {
            break; /* its first news will name it */
        }
        sleep_ms(1);
        read_record(file, &record, task, attempt);
    }
    struct news news = {.kind = FOUND_ENDED, .task = task, .attempt = attempt, .end = record.end};
    static char meta[COPY_BYTES];
    if (!is_valid_end(&record.end)) {
        news.kind = FOUND_RUNNING;
        ssize_t got = record.meta <= sizeof meta ? pread(file, meta, record.meta, sizeof record) : 0;
        news.extra = got > 0 ? (uint32_t)got : 0;
    }
    close(file);
    queue_report(&news, meta);
}

/* True if an attempt on record, or a supervisor of this launcher, has this group. */
static bool is_group_in_use(const char *path) {
    static char paths[GROUPS_MAX * PATH_BYTES];
    DIR *place = opendir("records");
    bool used = place == NULL;
    for (struct dirent *entry; !used && (entry = readdir(place));) {
        int64_t task, attempt;
        struct record record = {0};
        int file = parse_key(entry->d_name, &task, &attempt) ? open_record(task, attempt, &record) : -1;
        if (file < 0) {
            continue;
        }
        if (!is_valid_end(&record.end) && record.groups <= sizeof paths
            && pread(file, paths, record.groups, (off_t)(sizeof record + record.meta)) == record.groups) {
            const char *at = paths, *end = paths + record.groups;
            for (const char *text; !used && (text = next_text(&at, end));) {
                used = strcmp(text + 1, path) == 0;
            }
        }
        close(file);
    }
    if (place) {
        closedir(place);
    }
    return used;
}

/* Remove groups of supervisors that were killed while they waited, together with their launcher. */
static void remove_unused_groups(void) {
    for (int i = 0; i < group_base_count; i++) {
        DIR *place = opendir(group_base[i]);
        for (struct dirent *entry; place && (entry = readdir(place));) {
            char path[PATH_BYTES + 300], *rest;
            int64_t slot = strtoll(entry->d_name, &rest, 10);
            bool ours = *rest == 0 && rest != entry->d_name;
            for (int k = 0; ours && k < supervisor_count; k++) {
                ours = supervisors[k].slot != slot;
            }
            snprintf(path, sizeof path, "%.*s/%s", PATH_BYTES, group_base[i], entry->d_name);
            if (ours && !is_group_in_use(path)) {
                rmdir(path);
            }
        }
        if (place) {
            closedir(place);
        }
    }
}

void on_hello(const struct request *request, const char *end) {
    if (request->grace != 0 && request->grace != (int64_t)HANSE_SOURCE_CRC) {
        log_line("the daemon has another version: this launcher goes");
        exit(0);
    }
    const char *at = (const char *)(request + 1);
    hello_done = true;
    group_base_count = 0;
    for (const char *path; group_base_count < GROUPS_MAX && (path = next_text(&at, end)) && *path;) {
        snprintf(group_base[group_base_count++], PATH_BYTES, "%s", path);
    }
    const char *places[2] = {"records", "work"};
    for (int i = 0; i < 2; i++) {
        DIR *place = opendir(places[i]);
        for (struct dirent *entry; place && (entry = readdir(place));) {
            int64_t task, attempt;
            char path[300];
            if (!parse_key(entry->d_name, &task, &attempt)) {
                continue;
            }
            snprintf(path, sizeof path, "records/%s", entry->d_name);
            if (i == 0) {
                report_record(task, attempt);
            } else if (access(path, F_OK) && !find_supervisor(task, attempt)) {
                on_forget(task, attempt); /* its launcher died while forgetting it */
            }
        }
        if (place) {
            closedir(place);
        }
    }
    remove_unused_groups();
    remove_spares();
    struct news ready = {.kind = READY, .task = getpid(), .attempt = (int64_t)HANSE_SOURCE_CRC};
    queue_report(&ready, NULL);
}
