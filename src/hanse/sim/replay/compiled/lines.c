/* A broker's queue: the twin of core.broker.queue.
 *
 * The machines drop out-of-date entries of a line's heap lazily; here a job stands in it once and knows its
 * place, which gives the same head. */
#include "post.h"

/* own: an entry of BrokerPlacement.touched. */
void touch(broker_t *broker, int64_t line)
{
    if (!broker->lines[line].touched) {
        broker->lines[line].touched = true;
        broker->touched[broker->touched_count++] = (int32_t)line;
    }
}

/* --- the heap of a line --------------------------------------------------------------------------------- */

/* own: the order of the heap of a line. */
static bool goes_before(const job_t *jobs, int32_t one, int32_t other)
{
    const job_t *a = jobs + one, *b = jobs + other;
    if (a->first != b->first)
        return a->first < b->first;
    return a->second != b->second ? a->second < b->second : one < other;
}

/* own: put a job at a place of the heap, or where it belongs above or below it. */
static void sift(job_t *jobs, line_t *line, int64_t place, int32_t job)
{
    int32_t *heap = line->heap;
    int64_t child;
    while (place && goes_before(jobs, job, heap[(place - 1) / 2])) {
        heap[place] = heap[(place - 1) / 2];
        jobs[heap[place]].place = (int32_t)place;
        place = (place - 1) / 2;
    }
    while ((child = 2 * place + 1) < line->size) {
        if (child + 1 < line->size && goes_before(jobs, heap[child + 1], heap[child]))
            child++;
        if (!goes_before(jobs, heap[child], job))
            break;
        heap[place] = heap[child];
        jobs[heap[place]].place = (int32_t)place;
        place = child;
    }
    heap[place] = job;
    jobs[job].place = (int32_t)place;
}

/* mirrors core/broker/queue.py BrokerQueue.push
 * A job has waiting tasks: it stands in its line. */
static void push_job(league_t *league, line_t *line, int32_t job)
{
    if (grow(league, (void **)&line->heap, &line->room, line->size + 1, sizeof *line->heap)) {
        int64_t place = line->size++;
        sift(league->jobs, line, place, job);
    }
}

/* own: none of its tasks waits any more. */
static void drop_job(job_t *jobs, line_t *line, int32_t job)
{
    int64_t place = jobs[job].place;
    int32_t last = line->heap[--line->size];
    jobs[job].place = NONE;
    if (place < line->size)
        sift(jobs, line, place, last);
}

/* mirrors core/broker/queue.py BrokerQueue.head
 * The job with the best key in a line that is there, or NONE. */
int32_t head_of(const broker_t *broker, int64_t line)
{
    return broker->lines[line].size ? broker->lines[line].heap[0] : NONE;
}

/* --- jobs in lines -------------------------------------------------------------------------------------- */

/* mirrors core/broker/queue.py BrokerQueue.join */
static int32_t join(broker_t *broker, int64_t shape)
{
    int32_t number = broker->numbers[shape];
    if (number == NONE) {
        number = broker->unused_count ? broker->unused[--broker->unused_count] : (int32_t)broker->line_count;
        broker->numbers[shape] = number;
        broker->line_count++;
        line_t *line = broker->lines + number;
        line->shape = shape;
        line->users = line->count = line->size = 0;
        line->live = true;
    }
    broker->lines[number].users++;
    return number;
}

/* mirrors core/broker/placement.py BrokerPlacement.enqueue
 * mirrors core/broker/queue.py BrokerQueue.add
 * mirrors core/broker/job_table.py mark_waiting
 * The next task is the last of a job's stack. */
void enqueue(league_t *league, broker_t *broker, int32_t job, const int64_t *tasks, int64_t count)
{
    job_t *record = league->jobs + job;
    int32_t *stack = league->waiting + league->columns.offset[job];
    bool fresh = !record->waiting;
    if (record->line == NONE)
        record->line = join(broker, league->columns.shape[job]);
    line_t *line = broker->lines + record->line;
    for (int64_t each = 0; each < count; each++) {
        league->state_of[tasks[each]] = WAITING;
        stack[record->waiting++] = (int32_t)tasks[each];
    }
    line->count += count;
    if (fresh) {
        if (league->rules.progress)
            record->first = record->left;
        push_job(league, line, job);
    }
    touch(broker, record->line);
}

/* mirrors core/broker/job_table.py take_last
 * Take the next task of a job that waits, and count it off its line. */
int32_t take_last(league_t *league, broker_t *broker, int32_t job)
{
    job_t *record = league->jobs + job;
    line_t *line = broker->lines + record->line;
    int32_t task = league->waiting[league->columns.offset[job] + --record->waiting];
    line->count--;
    if (!record->waiting)
        drop_job(league->jobs, line, job);
    return task;
}

/* mirrors core/broker/queue_keys.py QueueKeys._rekey
 * The key of a job may have changed with its progress. */
void rekey(league_t *league, broker_t *broker, int32_t job)
{
    job_t *record = league->jobs + job;
    if (!record->waiting || record->first == record->left)
        return;
    record->first = record->left;
    sift(league->jobs, broker->lines + record->line, record->place, job);
    touch(broker, record->line);
}

/* mirrors core/broker/placement.py BrokerPlacement.leave
 * mirrors core/broker/queue.py BrokerQueue.leave
 * A job is done and gives its line up. */
void leave(league_t *league, broker_t *broker, int32_t job)
{
    int32_t number = league->jobs[job].line;
    if (number == NONE)
        return;
    league->jobs[job].line = NONE;
    line_t *line = broker->lines + number;
    if (--line->users)
        return;
    if (!must(league, !line->count, "a line has waiting tasks and no users"))
        return;
    line->live = false;
    broker->numbers[line->shape] = NONE;
    broker->unused[broker->unused_count++] = number;
    broker->line_count--;
    touch(broker, number);
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++) {
        view_t *view = broker->views + cluster;
        view->exhausted_lines -= view->exhausted[number];
        view->exhausted[number] = 0;
    }
}
