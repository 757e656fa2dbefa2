/* A task of the soak. It appends what happens to it to one log, each line by one write, so that lines never mix.
 *
 * usage: life LOG MILLISECONDS CODE FAILURES MILLICPU SLOTS
 * It lives so long, then ends with CODE, or with 3 in its first FAILURES attempts. A line is
 * "task attempt cluster/node pid millicpu slots nanoseconds word code". */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SIGN_MS = 50, FAILED = 3, LINE_BYTES = 512 };

static int file;
static char who[LINE_BYTES];

static const char *own(const char *name) {
    const char *value = getenv(name);
    return value ? value : "?";
}

static long long now(void) { /* of the machine since its start, in nanoseconds: one clock for all tasks */
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void say(const char *word, int code) {
    char line[LINE_BYTES + 64];
    int length = snprintf(line, sizeof line, "%s %lld %s %d\n", who, now(), word, code);
    if (write(file, line, (size_t)length) != length) {
        _exit(9); /* what is not on record must not count as done */
    }
}

int main(int count, char **argument) {
    if (count != 7 || (file = open(argument[1], O_WRONLY | O_APPEND | O_CLOEXEC)) < 0) {
        return 8;
    }
    snprintf(who, sizeof who, "%s.%s %s %s/%s %d %s %s", own("HANSE_JOB"), own("HANSE_TASK"), own("HANSE_ATTEMPT"),
             own("HANSE_CLUSTER"), own("HANSE_NODE"), (int)getpid(), argument[5], argument[6]);
    say("begin", 0);
    long long until = now() + atoll(argument[2]) * 1000000LL;
    int code = atoi(own("HANSE_ATTEMPT")) <= atoi(argument[4]) ? FAILED : atoi(argument[3]);
    for (long long left; (left = until - now()) > 0;) {
        long long pause = left < SIGN_MS * 1000000LL ? left : SIGN_MS * 1000000LL;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        say("alive", 0);
    }
    say("end", code);
    return code;
}
