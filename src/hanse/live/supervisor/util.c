/* Time, log, small files of the kernel, and texts of requests and records. */
#include "common.h"

#include <stdarg.h>
#include <time.h>

int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A renewed lease is not for an order that waited for a disk meanwhile. */
bool is_lease_over(const struct start *start) {
    int64_t until = *guard, good = start->head.grace, now = now_us();
    return (until != 0 && now >= until) || (good != 0 && now >= good);
}

void sleep_ms(int milliseconds) {
    poll(NULL, 0, milliseconds);
}

void log_line(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void close_if_open(int file) {
    if (file >= 0) {
        close(file);
    }
}

int open_pidfd(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

ssize_t read_file(const char *directory, const char *name, char *text, size_t size) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t got = read(file, text, size - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got;
}

int write_file(const char *directory, const char *name, size_t name_length, const char *text) {
    char path[PATH_BYTES + 128];
    snprintf(path, sizeof path, "%s/%.*s", directory, (int)name_length, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t done = write(file, text, strlen(text));
    int error = errno;
    close(file);
    errno = error;
    return done < 0 ? -1 : 0;
}

int64_t number_after(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, word, length) == 0 && line[length] == ' ') {
            return strtoll(line + length, NULL, 10);
        }
    }
    return -1;
}

const char *next_text(const char **at, const char *end) {
    const char *text = *at;
    const char *zero = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    *at = zero ? zero + 1 : end;
    return zero ? text : NULL;
}

const char *skip_groups(const struct start *start, const char *at, const char *end) {
    for (uint32_t i = 0; i < start->groups; i++) {
        for (const char *line; (line = next_text(&at, end)) && *line;) {
        }
    }
    return at;
}
