/* Requests of the daemon, in the order in which they came. */
#include "launcher.h"

enum { REQUESTS_AT_ONCE = 16 }; /* between two checks for ended processes */

static void on_stop(const struct request *request) {
    const struct supervisor *supervisor = find_supervisor(request->task, request->attempt);
    if (supervisor && request->grace >= 0) {
        int64_t grace = request->grace < GRACE_MOST ? request->grace : GRACE_MOST;
        signal_supervisor(supervisor, (supervisor->turn << GRACE_BITS) | grace);
    }
}

/* The guard was set for the first time: all busy supervisors have no timer yet. */
static void on_watch(void) {
    for (int i = 0; i < supervisor_count; i++) {
        if (!supervisors[i].remover && !supervisors[i].idle) {
            signal_supervisor(&supervisors[i], READ_GUARD);
        }
    }
}

static void dispatch_request(const struct request *request) {
    switch (request->kind) {
    case HELLO:
        on_hello(request, (const char *)request + request->size);
        break;
    case START:
        on_start((struct start *)(uintptr_t)request);
        break;
    case STOP:
        on_stop(request);
        break;
    case FORGET:
        on_forget(request->task, request->attempt);
        if (request->grace == SILENT) {
            add_silent(request->task, request->attempt);
        }
        break;
    case DROP:
        on_drop(request->task, request->attempt);
        break;
    case WATCH:
        on_watch();
        break;
    default:
        log_line("an unknown request: %u", request->kind);
        disconnect_daemon();
    }
}

bool dispatch_requests(void) {
    size_t at = 0;
    for (int done = 0; done < REQUESTS_AT_ONCE && inbox_used - at >= sizeof(struct request); done++) {
        const struct request *request = (const struct request *)(inbox + at);
        if (request->size < sizeof *request || request->size > FRAME_BYTES_MAX || request->size % 8) {
            log_line("a request of %u bytes", request->size);
            disconnect_daemon();
            return false;
        }
        if (inbox_used - at < request->size) {
            break;
        }
        at += request->size;
        dispatch_request(request);
        if (inbox_used == 0) {
            return false; /* disconnected */
        }
    }
    memmove(inbox, inbox + at, inbox_used - at);
    inbox_used -= at;
    return inbox_used >= sizeof(struct request) && inbox_used >= ((const struct request *)inbox)->size;
}
