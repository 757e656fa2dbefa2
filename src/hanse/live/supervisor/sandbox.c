/* Programs that never began in their sandbox, and why.
 *
 * bubblewrap exits with 1 if it cannot set the sandbox up, and if it cannot run the program in it: a program can
 * do so as well. But only if the program began does bubblewrap report its exit code, on a pipe that it opens to
 * nobody else: neither the program nor any process in the sandbox has that descriptor, or can reach the process
 * that does. Without that report no instruction of the program ran, so standard error has bubblewrap's words
 * alone, and these tell the reason. bubblewrap speaks English in every locale. */
#include "supervisor.h"

enum { REPORT_BYTES = 1024 }; /* four times as long as it gets */

static char message[PATH_BYTES + 256]; /* the longest has a path in it */
static size_t message_size;

int open_sandbox_report(struct attempt *a) {
    int ends[2];
    message_size = 0;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
        return -1;
    }
    a->sandbox_report = ends[0];
    return ends[1];
}

int pass_sandbox_report(int file) {
    return file == SANDBOX_REPORT ? fcntl(file, F_SETFD, 0) : dup2(file, SANDBOX_REPORT) < 0;
}

void keep_sandbox_message(const char *bytes, size_t count) {
    size_t room = sizeof message - 1 - message_size;
    count = count < room ? count : room;
    memcpy(message + message_size, bytes, count);
    message_size += count;
}

/* Close the report. True if it says that the program began. */
static bool has_program_begun(struct attempt *a) {
    char report[REPORT_BYTES];
    ssize_t got = read(a->sandbox_report, report, sizeof report - 1);
    close(a->sandbox_report);
    a->sandbox_report = -1;
    report[got > 0 ? got : 0] = 0;
    return strstr(report, "\"exit-code\"") != NULL;
}

/* The text behind a prefix; NULL: it has another. */
static const char *after(const char *prefix, const char *text) {
    size_t length = strlen(prefix);
    return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

/* What bubblewrap said last; NULL: nothing. Lines before may be the loader's. */
static const char *last_words(void) {
    message[message_size] = 0;
    if (message_size > 0 && message[message_size - 1] == '\n') {
        message[message_size - 1] = 0;
    }
    const char *words = after("bwrap: ", message);
    for (const char *at = message; (at = strstr(at, "\nbwrap: ")); at++) {
        words = after("\nbwrap: ", at);
    }
    return words;
}

void explain_sandbox_failure(struct attempt *a) {
    if (a->sandbox_report < 0 || has_program_begun(a) || a->end.kind != EXITED || a->end.code <= 0) {
        return;
    }
    const char *why = last_words();
    if (!why) {
        return; /* it was killed, as for want of memory */
    }
    const char *program = after("execvp ", why), *directory = after("Can't chdir to ", why);
    const char *what = program ? program : directory;
    a->end.began = 0;
    if (!what) {
        a->end.kind = LOST;
        a->end.code = 0;
        set_note(&a->end, "cannot make the sandbox: %s", why);
        return;
    }
    const char *reason = strrchr(what, ':');
    int length = reason ? (int)(reason - what) : (int)strlen(what);
    a->end.kind = UNFIT;
    a->end.code = program && reason && strcmp(reason, ": No such file or directory") == 0 ? 127 : 126;
    set_note(&a->end, "%s%.*s%s", program ? "cannot run " : "cannot enter the working directory ",
             length < 90 ? length : 90, what, reason ? reason : "");
}
