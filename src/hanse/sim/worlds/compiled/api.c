/* What Python calls. */
#include "central.h"

#include <stdlib.h>
#include <string.h>

EXPORT uint32_t hanse_source_crc(void);
EXPORT world_t *hanse_world_make(const sizes_t *n, const constants_t *k, const columns_t *c);
EXPORT void hanse_world_free(world_t *w);
EXPORT int64_t hanse_world_start(world_t *w, int64_t task, int64_t node, int64_t now);
EXPORT int64_t hanse_world_stage(world_t *w, int64_t task, int64_t rack, int64_t now);
EXPORT void hanse_world_withdraw(world_t *w, int64_t task, int64_t now);
EXPORT int64_t hanse_world_next(const world_t *w);
EXPORT int64_t hanse_world_advance(world_t *w, int64_t until, event_t *events, int64_t room);
EXPORT const char *hanse_world_wrong(const world_t *w);
EXPORT void hanse_world_sums(const world_t *w, int64_t *counts, double *bytes);
EXPORT void hanse_world_lost(const world_t *w, int64_t *rows);
EXPORT const char *hanse_world_policy(int64_t number);

#ifndef HANSE_SOURCE_CRC
#define HANSE_SOURCE_CRC 0u
#endif

uint32_t hanse_source_crc(void) { return HANSE_SOURCE_CRC; }

world_t *hanse_world_make(const sizes_t *n, const constants_t *k, const columns_t *c) { return world_make(n, k, c); }

void hanse_world_free(world_t *w) { world_free(w); }

/* Move to a time before which nothing is left to happen. */
static void move(world_t *w, int64_t now)
{
    if (now < w->now || world_next(w) < now)
        world_fail(w, "a decision came out of order: advance to its time first");
    w->now = now;
}

/* 1 if it runs at once, 0 if it reads first. */
int64_t hanse_world_start(world_t *w, int64_t task, int64_t node, int64_t now)
{
    move(w, now);
    world_start(w, task, node);
    return w->attempts[task].state == RUNNING;
}

/* 1 if a transfer is under way, 0 if there is nothing to move. */
int64_t hanse_world_stage(world_t *w, int64_t task, int64_t rack, int64_t now)
{
    move(w, now);
    return world_stage(w, task, rack);
}

void hanse_world_withdraw(world_t *w, int64_t task, int64_t now)
{
    move(w, now);
    world_withdraw(w, task);
}

int64_t hanse_world_next(const world_t *w) { return world_next(w); }

/* Let the events at the next time happen, at most `room` of them, if that is not after `until`; else only the
 * clock moves. Returns their number. */
int64_t hanse_world_advance(world_t *w, int64_t until, event_t *events, int64_t room)
{
    event_t event;
    int64_t count = 0;
    int64_t next = world_next(w);
    int64_t now = next <= until ? next : until;
    if (until < w->now)
        world_fail(w, "a world cannot go back in time");
    while (!w->wrong && count < room && world_peek(w, &event) && event.time <= now) {
        world_step(w, &event);
        events[count++] = event;
    }
    if (now > w->now)
        w->now = now;
    return count;
}

const char *hanse_world_wrong(const world_t *w) { return w->wrong ? w->wrong : ""; }

void hanse_world_sums(const world_t *w, int64_t *counts, double *bytes)
{
    counts[0] = w->launches;
    counts[1] = w->wasted_core_us;
    counts[2] = w->lost_count;
    counts[3] = w->now;
    memcpy(bytes, w->bytes, sizeof w->bytes);
}

void hanse_world_lost(const world_t *w, int64_t *rows)
{
    if (w->lost_count)
        memcpy(rows, w->lost, (size_t)w->lost_count * 5 * sizeof *rows);
}

/* The name of a policy; empty beyond the last. */
const char *hanse_world_policy(int64_t number) { return number < POLICY_COUNT ? POLICIES[number].name : ""; }
