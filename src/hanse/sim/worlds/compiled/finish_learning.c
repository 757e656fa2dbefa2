/* What earliest-finish learns from ended jobs: twin of worlds/earliest_finish/learning.py, which uses the tables of
 * policy/finish_time; the rows are theirs. */
#include "finish.h"
#include "../../../policy/kernels/exact_math.h"

/* Answers for a job from the general one on, into f->answers; returns how many. */
static int64_t solve_chain(finish_t *f, const world_t *w, int64_t job)
{
    int64_t work = w->c.job_work_kind[job], kind = w->c.job_kind[job], levels = kind < 0 ? 2 : 3;
    double above[128];
    const int64_t rows[3] = {0, 1 + work, 1 + f->works + kind};
    memcpy(above, f->first_answer, (size_t)f->answer_words * sizeof *above);
    for (int64_t level = 0; level < levels; level++) {
        double *answer = f->answers + level * f->answer_words;
        if (level == 1 && f->constants)
            memcpy(above + 2, f->constants + work * f->classes, (size_t)f->classes * sizeof *above);
        f->k.duration_solve(f->rows + rows[level] * f->row_words, f->classes, f->o.spreads[level], above, answer);
        memcpy(above, answer, (size_t)f->answer_words * sizeof *above);
    }
    return levels;
}

static double size_of(const finish_t *f, double bytes)
{
    return f->o.uses_sizes > 0.0 ? exact_log(1.0 + bytes / f->o.size_unit) : 0.0;
}

double finish_mean_bytes(const world_t *w, int64_t job)
{
    double sum = 0.0;
    for (int64_t task = w->c.job_offset[job]; task < w->c.job_offset[job + 1]; task++)
        sum = sum + w->c.task_bytes[task];
    return sum / (double)(w->c.job_offset[job + 1] - w->c.job_offset[job]);
}

/* Expected seconds of a job's tasks on each class, once. */
void finish_estimate(finish_t *f, const world_t *w, int64_t job)
{
    double *seconds = f->job_seconds + job * f->classes;
    if (seconds[0] >= 0.0)
        return;
    int64_t levels = solve_chain(f, w, job);
    f->k.duration_seconds(f->answers + (levels - 1) * f->answer_words, f->classes,
                          size_of(f, finish_mean_bytes(w, job)), (double)w->c.job_estimate[job] * 1e-6, seconds);
}

/* Mean seconds of the counted job's tasks as an answer predicts them without its ratio. */
static double predict(finish_t *f, const double *answer, int64_t tasks)
{
    double bare[128], seconds[64], sum = 0.0;
    memcpy(bare, answer, (size_t)f->answer_words * sizeof *bare);
    bare[f->classes + 3] = 1.0;
    for (int64_t task = 0; task < tasks; task++) {
        f->k.duration_seconds(bare, f->classes, f->sizes[task], 0.0, seconds);
        sum = sum + seconds[f->task_class[task]];
    }
    return sum / (double)tasks;
}

static void learn_durations(finish_t *f, const world_t *w, int64_t job, int64_t tasks, double actual)
{
    int64_t levels = solve_chain(f, w, job), work = w->c.job_work_kind[job];
    const int64_t rows[3] = {0, 1 + work, 1 + f->works + w->c.job_kind[job]};
    double predicted[3];
    for (int64_t level = 0; level < levels; level++)
        predicted[level] = predict(f, f->answers + level * f->answer_words, tasks);
    for (int64_t level = 0; level < levels; level++) {
        double most = f->o.off_max * predicted[level];
        f->k.duration_add(f->rows + rows[level] * f->row_words, f->classes, f->o.decay, tasks, f->task_class,
                          f->log_seconds, f->sizes, actual < most ? actual : most, predicted[level]);
    }
}

/* Logarithms of the run times over what the answer of the job's kind expects. */
static void take_off_answer(finish_t *f, const double *answer, int64_t tasks, const double *logarithms)
{
    for (int64_t task = 0; task < tasks; task++)
        f->log_seconds[task] =
            logarithms[task] - answer[2 + f->task_class[task]] - answer[1] * f->sizes[task];
}

void finish_on_job_end(policy_t *p, const world_t *w, int64_t job)
{
    finish_t *f = p->self;
    int64_t first = w->c.job_offset[job], tasks = w->c.job_offset[job + 1] - first;
    const int64_t sizes[3] = {f->works, f->classes, w->c.job_work_kind[job]};
    double actual = 0.0;
    for (int64_t each = 0; each < tasks; each++) {
        double seconds = (double)(w->c.end[first + each] - w->c.run[first + each]) * 1e-6;
        double slow = 1.0;
        f->task_class[each] = w->c.node_class[w->c.node[first + each]];
        if (f->o.learns_crowding > 0.0)
            slow = f->k.crowding_slow_down(f->crowding_answer, sizes, f->task_class[each],
                                           f->shares + (first + each) * f->works);
        seconds = seconds > f->o.seconds_min ? seconds : f->o.seconds_min;
        actual = actual + seconds / slow;
        f->slow_downs[each] = exact_log(seconds);
        f->log_seconds[each] = f->slow_downs[each] - exact_log(slow);
        f->sizes[each] = size_of(f, w->c.task_bytes[first + each]);
    }
    learn_durations(f, w, job, tasks, actual / (double)tasks);
    if (f->o.learns_crowding <= 0.0)
        return;
    int64_t levels = solve_chain(f, w, job);
    take_off_answer(f, f->answers + (levels - 1) * f->answer_words, tasks, f->slow_downs);
    f->k.crowding_add(f->crowding_row, f->crowding_answer, sizes, f->o.crowding_decay, tasks, f->task_class,
                      f->log_seconds, f->shares + first * f->works);
    if ((double)++f->new_jobs >= f->o.solve_jobs) {
        f->new_jobs = 0;
        f->k.crowding_solve(f->crowding_row, sizes, f->o.crowding_variance, f->crowding_answer);
        finish_show_all(f, w);
    }
}
