/* A broker's queue and its demand at the wardens: the twin of core.broker.queue,
 * core.broker.demand_publisher and core.broker.end_acks.
 *
 * The machines drop out-of-date entries of a line's heap lazily; here a job stands in it once and knows its
 * place, which gives the same head. */
#include "post.h"

#include <stdlib.h>
#include <string.h>

void touch(broker_t *broker, int64_t line)
{
    if (!broker->lines[line].touched) {
        broker->lines[line].touched = true;
        broker->touched[broker->touched_count++] = (int32_t)line;
    }
}

/* --- the heap of a line --------------------------------------------------------------------------------- */

static bool goes_before(const job_t *jobs, int32_t one, int32_t other)
{
    const job_t *a = jobs + one, *b = jobs + other;
    if (a->first != b->first)
        return a->first < b->first;
    return a->second != b->second ? a->second < b->second : one < other;
}

/* Put a job at a place of the heap, or where it belongs above or below it. */
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

/* A job has waiting tasks: it stands in its line. */
static void push_job(league_t *league, line_t *line, int32_t job)
{
    if (grow(league, (void **)&line->heap, &line->room, line->size + 1, sizeof *line->heap)) {
        int64_t place = line->size++;
        sift(league->jobs, line, place, job);
    }
}

/* None of its tasks waits any more. */
static void drop_job(job_t *jobs, line_t *line, int32_t job)
{
    int64_t place = jobs[job].place;
    int32_t last = line->heap[--line->size];
    jobs[job].place = NONE;
    if (place < line->size)
        sift(jobs, line, place, last);
}

/* The job with the best key in a line that is there, or NONE (BrokerQueue.head). */
int32_t head_of(const broker_t *broker, int64_t line)
{
    return broker->lines[line].size ? broker->lines[line].heap[0] : NONE;
}

/* --- jobs in lines -------------------------------------------------------------------------------------- */

/* BrokerQueue.join */
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

/* BrokerPlacement.enqueue. The next task is the last of a job's stack. */
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

/* Take the next task of a job that waits (_take_last, and the count of its line). */
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

/* BrokerPlacement.rekey: the key of a job may have changed with its progress. */
void rekey(league_t *league, broker_t *broker, int32_t job)
{
    job_t *record = league->jobs + job;
    if (!record->waiting || record->first == record->left)
        return;
    record->first = record->left;
    sift(league->jobs, broker->lines + record->line, record->place, job);
    touch(broker, record->line);
}

/* BrokerPlacement.leave: a job is done and gives its line up. */
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

/* --- demand --------------------------------------------------------------------------------------------- */

static int by_rank(const void *one, const void *other)
{
    const demand_t *a = one, *b = other;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* BrokerQueue.heads, as demand lines; how many there are. */
int64_t heads_of(league_t *league, broker_t *broker, demand_t *heads)
{
    int64_t count = 0, lines = broker->line_count + broker->unused_count;
    for (int64_t number = 0; number < lines; number++) {
        const line_t *line = broker->lines + number;
        if (!line->live || !line->size)
            continue;
        const job_t *best = league->jobs + line->heap[0];
        heads[count++] = (demand_t){number, line->shape, best->first, best->second, line->count};
    }
    if (count > 1)
        qsort(heads, (size_t)count, sizeof *heads, by_rank);
    return count;
}

bool any_waiting(const broker_t *broker)
{
    for (int64_t number = 0; number < broker->line_count + broker->unused_count; number++)
        if (broker->lines[number].live && broker->lines[number].count)
            return true;
    return false;
}

/* Whether some warden was told of work that waits. */
bool outdated(const league_t *league, const broker_t *broker)
{
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
        if (broker->views[cluster].told_lines)
            return true;
    return false;
}

/* A grant lowers the warden's count, so what it was told is one less now. */
void granted(view_t *view, int64_t line)
{
    for (int64_t each = 0; each < view->told_lines; each++)
        if (view->told[each].line == line)
            view->told[each].count--;
}

/* Whether a line has appeared, emptied or got a better job at its head; nothing is touched afterwards. */
static bool improved(league_t *league, broker_t *broker)
{
    bool better = broker->force;
    for (int64_t each = 0; each < broker->touched_count; each++) {
        line_t *line = broker->lines + broker->touched[each];
        line->touched = false;
        if (!line->live || !line->size) {
            better = better || line->best_job != NONE;
            line->best_job = NONE;
            continue;
        }
        int64_t job = line->heap[0], first = league->jobs[job].first, second = league->jobs[job].second;
        bool smaller =
            first < line->best_first || (first == line->best_first && second < line->best_second);
        better = better || line->best_job == NONE || (smaller && job != line->best_job);
        line->best_first = first;
        line->best_second = second;
        line->best_job = job;
    }
    broker->touched_count = 0;
    return better;
}

static bool same_demand(const view_t *view, const demand_t *lines, int64_t count)
{
    return view->told_lines == count && !memcmp(view->told, lines, (size_t)count * sizeof *lines);
}

static void tell_demand(view_t *view, const demand_t *lines, int64_t count)
{
    memcpy(view->told, lines, (size_t)count * sizeof *lines);
    view->told_lines = count;
}

/* _send_demand. A demand has a = lines, and as body the lines. */
static void send_demand(league_t *league, broker_t *broker, int64_t cluster, const demand_t *lines,
                        int64_t count, bool force)
{
    view_t *view = broker->views + cluster;
    if (crowded(league, &broker->post, cluster)) {
        view->stale = true;
        return;
    }
    if (!force && same_demand(view, lines, count))
        return;
    tell_demand(view, lines, count);
    view->stale = false;
    message_t *message = post_send(league, &broker->post, broker->now, cluster, DEMAND);
    if (!message)
        return;
    message->a = count;
    int64_t *body = message->body = take_body(league, 5 * count);
    if (body)
        memcpy(body, lines, (size_t)count * sizeof *lines);
}

/* With every beat: repeat the demand where the warden's idea of it is out of date. */
void remind(league_t *league, broker_t *broker)
{
    demand_t *heads = league->some_lines;
    int64_t count = heads_of(league, broker, heads);
    if (!count)
        for (int64_t number = 0; number < league->rules.shapes; number++)
            broker->lines[number].best_job = NONE;
    if (count > league->rules.lines_max)
        count = league->rules.lines_max;
    for (int64_t cluster = 0; cluster < league->rules.clusters; cluster++)
        send_demand(league, broker, cluster, heads, count, broker->views[cluster].stale);
}

/* EndAcks.take: how many ends a claim to this cluster carries. */
static int64_t settling_take(league_t *league, broker_t *broker, int64_t cluster)
{
    view_t *view = broker->views + cluster;
    int64_t waiting = view->settling, most = league->rules.settle_max, place = 0;
    if (!waiting)
        return 0;
    while (broker->settling_order[place] != cluster)
        place++;
    broker->settling_count--;
    memmove(broker->settling_order + place, broker->settling_order + place + 1,
            (size_t)(broker->settling_count - place) * sizeof *broker->settling_order);
    view->settling = 0;
    if (waiting > most) {
        view->settling = waiting - most;
        broker->settling_order[broker->settling_count++] = (int32_t)cluster;
        return most;
    }
    if (!broker->settling_count)
        broker->settling_due = NEVER;
    return waiting;
}

/* A claim has a = number, b = echo, c = round (0 when it has no batches), and as body: batches, releases, demand
 * lines or NONE, ends to forget; then the batches, the releases and the lines. */
static void send_claim(league_t *league, broker_t *broker, int64_t cluster, const int64_t *lots,
                       int64_t words, int64_t count, bool last, const demand_t *lines, int64_t demand)
{
    view_t *view = broker->views + cluster;
    int64_t number = view->next_claim++, releases = last ? view->releases.size : 0;
    int64_t told = last ? demand : NONE, settled = settling_take(league, broker, cluster);
    message_t *message = post_send(league, &broker->post, broker->now, cluster, CLAIM);
    if (!message)
        return;
    int64_t *body = take_body(league, 4 + words + releases + (told > 0 ? 5 * told : 0));
    message->a = number;
    message->b = view->echo;
    message->c = count ? view->round : 0;
    message->body = body;
    if (!body)
        return;
    body[0] = count;
    body[1] = releases;
    body[2] = told;
    body[3] = settled;
    if (words)
        memcpy(body + 4, lots, (size_t)words * sizeof *lots);
    if (releases)
        memcpy(body + 4 + words, view->releases.at, (size_t)releases * sizeof *lots);
    if (told > 0)
        memcpy(body + 4 + words + releases, lines, (size_t)told * sizeof *lines);
    league->tally[RELEASES] += releases;
}

/* ClusterView.propose: the fast batches of a claim are in transit; bindings are answered only when they
 * fail. */
static void propose(league_t *league, view_t *view, const int64_t *lots, int64_t count)
{
    ints_t *claims = &view->claims;
    int64_t fast = 0, place;
    if (view->claims_head > 64 && 2 * view->claims_head > claims->size) {
        claims->size -= view->claims_head;
        memmove(claims->at, claims->at + view->claims_head, (size_t)claims->size * sizeof *claims->at);
        view->claims_head = 0;
    }
    place = claims->size;
    if (!add(league, claims, view->next_claim) || !add(league, claims, 0))
        return;
    for (int64_t each = 0; each < count; each++, lots += 2 + 2 * lots[1]) {
        if (lots[0])
            continue;
        fast++;
        if (!add_many(league, claims, 1 + 2 * lots[1]))
            return;
        memcpy(claims->at + claims->size, lots + 1, (size_t)(1 + 2 * lots[1]) * sizeof *lots);
        claims->size += 1 + 2 * lots[1];
    }
    if (fast)
        claims->at[place + 1] = fast;
    else
        claims->size = place;
}

/* _send_claims */
static void send_claims(league_t *league, broker_t *broker, int64_t cluster, const demand_t *lines,
                        int64_t demand)
{
    view_t *view = broker->views + cluster;
    if (same_demand(view, lines, demand) || (demand && view->stale))
        demand = NONE;
    else
        tell_demand(view, lines, demand);
    int64_t at = 0;
    do {
        int64_t first = at, count = 0, size = 0;
        const int64_t *lots = view->lots.at + first;
        while (at < view->lots.size) {
            int64_t tasks = view->lots.at[at + 1];
            if (size && size + tasks > league->rules.claim_tasks_max)
                break;
            size += tasks;
            count++;
            at += 2 + 2 * tasks;
        }
        propose(league, view, lots, count);
        send_claim(league, broker, cluster, lots, at - first, count, at == view->lots.size, lines, demand);
    } while (at < view->lots.size && !league->wrong);
    view->lots.size = view->releases.size = 0;
}

/* BrokerPlacement.flush and DemandPublisher.send */
void flush(league_t *league, broker_t *broker)
{
    bool changed = improved(league, broker), said = false;
    for (int64_t cluster = 0; cluster < league->rules.clusters && !said; cluster++)
        said = broker->views[cluster].lots.size || broker->views[cluster].releases.size;
    if (!changed && !said)
        return;
    demand_t *heads = league->some_lines;
    int64_t count = heads_of(league, broker, heads);
    if (count > league->rules.lines_max)
        count = league->rules.lines_max;
    for (int64_t cluster = 0; cluster < league->rules.clusters && !league->wrong; cluster++) {
        const view_t *view = broker->views + cluster;
        if (view->lots.size || view->releases.size)
            send_claims(league, broker, cluster, heads, count);
        else if (changed)
            send_demand(league, broker, cluster, heads, count, broker->force);
    }
}

/* --- ends that wardens may forget ----------------------------------------------------------------------- */

/* EndAcks.add, of the ends of this step. */
void settling_add(league_t *league, broker_t *broker)
{
    view_t *view = broker->views + broker->ended_view;
    if (!view->settling)
        broker->settling_order[broker->settling_count++] = (int32_t)broker->ended_view;
    view->settling += broker->ended;
    broker->ended = 0;
    if (broker->now + league->rules.settle_linger < broker->settling_due)
        broker->settling_due = broker->now + league->rules.settle_linger;
}

/* EndAcks.tick. A settle has a = ends. */
void settling_tick(league_t *league, broker_t *broker)
{
    int64_t count = broker->settling_count, most = league->rules.settle_max;
    broker->settling_due = NEVER;
    broker->settling_count = 0;
    for (int64_t each = 0; each < count; each++) {
        int32_t cluster = broker->settling_order[each];
        view_t *view = broker->views + cluster;
        if (crowded(league, &broker->post, cluster)) {
            broker->settling_order[broker->settling_count++] = cluster;
            broker->settling_due = broker->now + league->rules.settle_linger;
            continue;
        }
        for (; view->settling > 0; view->settling -= most) {
            message_t *message = post_send(league, &broker->post, broker->now, cluster, SETTLE);
            if (!message)
                return;
            message->a = view->settling < most ? view->settling : most;
        }
        view->settling = 0;
    }
}
