/* Records of attempts: one file per attempt, with its end. */
#include "launcher.h"

#include <stdarg.h>
#include <sys/file.h>

uint32_t end_checksum(const struct end *end) { /* FNV-1a over all but the sum itself */
    const unsigned char *byte = (const unsigned char *)end;
    uint32_t sum = 2166136261u;
    for (size_t i = sizeof end->sum; i < sizeof *end; i++) {
        sum = (sum ^ byte[i]) * 16777619u;
    }
    return sum;
}

bool is_valid_end(const struct end *end) {
    return end->kind != NOT_ENDED && end->sum == end_checksum(end);
}

void set_note(struct end *end, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(end->note, sizeof end->note, format, arguments);
    va_end(arguments);
}

void format_key(char *key, size_t size, int64_t task, int64_t attempt) {
    snprintf(key, size, "%lld.%lld", (long long)task, (long long)attempt);
}

bool parse_key(const char *name, int64_t *task, int64_t *attempt) {
    char *rest;
    *task = strtoll(name, &rest, 10);
    if (rest == name || *rest != '.') {
        return false;
    }
    const char *second = rest + 1;
    *attempt = strtoll(second, &rest, 10);
    return rest != second && *rest == 0;
}

void read_record(int file, struct record *record, int64_t task, int64_t attempt) {
    if (pread(file, record, sizeof *record, 0) != (ssize_t)sizeof *record || record->magic != RECORD_MAGIC
        || record->task != task || record->attempt != attempt) {
        memset(record, 0, sizeof *record);
    }
}

int open_record(int64_t task, int64_t attempt, struct record *record) {
    char key[48], path[64];
    format_key(key, sizeof key, task, attempt);
    snprintf(path, sizeof path, "records/%s", key);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        read_record(file, record, task, attempt);
    }
    return file;
}

void write_end(int record, struct end *end) {
    end->sum = end_checksum(end);
    if (pwrite(record, end, sizeof *end, offsetof(struct record, end)) != (ssize_t)sizeof *end) {
        log_line("cannot write an end: %s", strerror(errno)); /* a reader of the record will call it lost */
    }
}

ssize_t total_length(const struct iovec parts[3]) {
    return (ssize_t)(parts[0].iov_len + parts[1].iov_len + parts[2].iov_len);
}

static int create_record(const char *path, const struct iovec parts[3]) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return -1;
    }
    errno = ENOSPC; /* the meaning of a short write */
    flock(file, LOCK_EX); /* shared with the supervisor: never free while it lives */
    if (writev(file, parts, 3) != total_length(parts)) {
        int error = errno;
        unlink(path);
        close(file);
        errno = error;
        return -1;
    }
    return file;
}

int make_record(const struct attempt *a, int64_t slot, const char *at, const char *end) {
    static char text[GROUPS_MAX * PATH_BYTES];
    struct record record = {.magic = RECORD_MAGIC, .meta = a->start->meta, .task = a->start->head.task,
                            .attempt = a->start->head.attempt};
    next_text(&at, end); /* the working directory */
    for (uint32_t i = 0; i < a->start->groups; i++) {
        const char *path = next_text(&at, end);
        if (!path || strlen(path) > PATH_BYTES - 64) {
            errno = ENAMETOOLONG;
            return -1;
        }
        record.groups += 1 + (uint32_t)sprintf(text + record.groups, "%s/%lld", path, (long long)slot);
        for (const char *line; (line = next_text(&at, end)) && *line;) {
        }
    }
    struct iovec parts[3] = {
        {&record, sizeof record}, {(void *)(uintptr_t)a->meta, record.meta}, {text, record.groups}};
    char path[64];
    snprintf(path, sizeof path, "records/%s", a->key);
    int file = reuse_record(path, parts);
    return file >= 0 || errno == EEXIST ? file : create_record(path, parts);
}
