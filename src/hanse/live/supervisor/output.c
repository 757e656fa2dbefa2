/* Standard output and standard error of a task: copied from pipes into files, up to a limit. */
#include "supervisor.h"

static void open_output_file(struct stream *stream) {
    if (stream->file < 0) {
        stream->file = open(stream->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    }
}

static void write_output(struct stream *stream, const char *bytes, int64_t count, int64_t max) {
    open_output_file(stream);
    int64_t wanted = stream->cut ? 0 : count < max - stream->written ? count : max - stream->written;
    int64_t kept = 0;
    while (kept < wanted) {
        ssize_t done = pwrite(stream->file, bytes + kept, (size_t)(wanted - kept), stream->written);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            break; /* no space: the drop is noted, and the task goes on */
        }
        kept += done;
        stream->written += done;
    }
    if (kept < count && !stream->cut) {
        char text[128];
        int length = wanted < count
            ? snprintf(text, sizeof text,
                       "\n[hanse: the output limit of %lld bytes is reached; what followed was dropped]\n",
                       (long long)max)
            : snprintf(text, sizeof text, "\n[hanse: the disk is full; what followed was dropped]\n");
        stream->cut = true;
        ssize_t done = pwrite(stream->file, text, (size_t)length, stream->written);
        stream->written += done > 0 ? done : 0;
    }
}

bool copy_output(struct attempt *a, struct stream *stream) {
    static char buffer[COPY_BYTES];
    if (stream->pipe < 0) {
        return false;
    }
    ssize_t got = read(stream->pipe, buffer, sizeof buffer);
    if (got > 0) {
        if (a->sandbox_report >= 0 && stream == &a->stream[1]) {
            keep_sandbox_message(buffer, (size_t)got);
        }
        write_output(stream, buffer, got, a->start->output_max);
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->pipe);
        stream->pipe = -1;
    }
    return false;
}
