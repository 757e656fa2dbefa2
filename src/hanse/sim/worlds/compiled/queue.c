/* Waiting jobs: the same order as that of job_queue.py, which sorts all of them. */
#include "queue.h"

#include <stdlib.h>

bool queue_make(queue_t *q, int64_t jobs, const int32_t *job_shape)
{
    size_t count = (size_t)(jobs > 0 ? jobs : 1);
    q->job_shape = job_shape;
    q->shape_count = 0;
    for (int64_t job = 0; job < jobs; job++)
        if (job_shape[job] >= q->shape_count)
            q->shape_count = job_shape[job] + 1;
    q->key = calloc(count, sizeof *q->key);
    q->place = malloc(count * sizeof *q->place);
    q->shapes = calloc((size_t)q->shape_count + 1, sizeof *q->shapes);
    if (!heap_make(&q->open, q->shape_count) || !q->key || !q->place || !q->shapes)
        return false;
    for (int64_t job = jobs - 1; job >= 0; job--) {
        q->place[job] = NONE;
        q->shapes[job_shape[job]].example = job;
    }
    return true;
}

void queue_free(queue_t *q)
{
    if (q->shapes)
        for (int64_t shape = 0; shape < q->shape_count; shape++)
            free(q->shapes[shape].jobs);
    free(q->key);
    free(q->place);
    free(q->shapes);
    heap_free(&q->open);
}

static bool before(const queue_t *q, int64_t one, int64_t other)
{
    return q->key[one] != q->key[other] ? q->key[one] < q->key[other] : one < other;
}

static void put(queue_t *q, shape_t *s, int64_t place, int64_t job)
{
    s->jobs[place] = (int32_t)job;
    q->place[job] = (int32_t)place;
}

static void settle(queue_t *q, shape_t *s, int64_t place, int64_t job)
{
    for (; place > 0 && before(q, job, s->jobs[(place - 1) / 2]); place = (place - 1) / 2)
        put(q, s, place, s->jobs[(place - 1) / 2]);
    for (int64_t child; (child = 2 * place + 1) < s->size; place = child) {
        if (child + 1 < s->size && before(q, s->jobs[child + 1], s->jobs[child]))
            child++;
        if (!before(q, s->jobs[child], job))
            break;
        put(q, s, place, s->jobs[child]);
    }
    put(q, s, place, job);
}

/* Bring a shape's place among the open ones up to date. */
static void place_shape(queue_t *q, int64_t shape)
{
    shape_t *s = &q->shapes[shape];
    if (s->blocked || !s->size)
        heap_remove(&q->open, shape);
    else
        heap_set(&q->open, shape, q->key[s->jobs[0]], s->jobs[0]);
}

/* Add a job, or give it another key; false without memory. */
bool queue_put(queue_t *q, int64_t job, int64_t key)
{
    int64_t shape = q->job_shape[job];
    shape_t *s = &q->shapes[shape];
    if (q->place[job] == NONE) {
        if (s->size == s->room) {
            int64_t room = s->room ? 2 * s->room : 8;
            int32_t *larger = realloc(s->jobs, (size_t)room * sizeof *larger);
            if (!larger)
                return false;
            s->jobs = larger;
            s->room = room;
        }
        q->place[job] = (int32_t)s->size++;
    }
    q->key[job] = key;
    settle(q, s, q->place[job], job);
    place_shape(q, shape);
    return true;
}

void queue_remove(queue_t *q, int64_t job)
{
    int64_t shape = q->job_shape[job], place = q->place[job];
    shape_t *s = &q->shapes[shape];
    q->place[job] = NONE;
    int64_t moved = s->jobs[--s->size];
    if (moved != job)
        settle(q, s, place, moved);
    place_shape(q, shape);
}

/* The first job of a shape that is not blocked; NONE if there is none. */
int64_t queue_first(const queue_t *q) { return q->open.size ? q->open.tie[q->open.items[0]] : NONE; }

void queue_block(queue_t *q, int64_t shape, bool blocked)
{
    q->shapes[shape].blocked = blocked;
    place_shape(q, shape);
}
