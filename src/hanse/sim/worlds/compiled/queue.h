/* Waiting jobs in order of (key, job), by shape, so that a shape without room costs nothing. */
#ifndef HANSE_WORLD_QUEUE_H
#define HANSE_WORLD_QUEUE_H

#include "world.h"

typedef struct {
    int32_t *jobs; /* a heap */
    int64_t size, room;
    int64_t example; /* a job of the shape */
    bool blocked;    /* no node has room for it */
} shape_t;

typedef struct {
    const int32_t *job_shape;
    int64_t *key;   /* [jobs] */
    int32_t *place; /* [jobs] position in the heap of its shape; NONE: not in the queue */
    shape_t *shapes;
    int64_t shape_count;
    heap_t open; /* shapes that are not blocked and have jobs, by (key, job) of their first */
} queue_t;

bool queue_make(queue_t *q, int64_t jobs, const int32_t *job_shape);
void queue_free(queue_t *q);
bool queue_put(queue_t *q, int64_t job, int64_t key);
void queue_remove(queue_t *q, int64_t job);
int64_t queue_first(const queue_t *q);
void queue_block(queue_t *q, int64_t shape, bool blocked);
static inline bool queue_has(const queue_t *q, int64_t job) { return q->place[job] != NONE; }

#endif
