/* Sums of ended jobs, and what they say about run times: the twin of policy/finish_time/duration_rows.py, which
 * explains the model and the layout, and which these functions equal to the bit. */
#include "exact_math.h"
#include "finish_time.h"

static const double JOB_TO_TASK_VARIANCE = 4.0;
static const double SLOPE_SPREAD = 0.3;
static const double LEVEL_SPREAD = 1.0;
static const double VARIANCE_TASKS = 20.0;
static const double RATIO_JOBS = 5.0;
static const double FLAT = 1e-9;
static const double ESTIMATE_JOBS = 3.0;

enum { LEVEL = 0, SLOPE = 1, CLASSES = 2 };
enum { TASKS = 0, JOBS = 1, LEVEL_INFORMATION = 2, SQUARES = 3, ACTUAL = 4, PREDICTED = 5, SCALARS = 6 };
enum { VARIANCE = 0, RATIO = 1, EVIDENCE = 2, ANSWER_SCALARS = 3 };
enum { CLASSES_MAX = 64, PARAMETERS_MAX = CLASSES_MAX + 2 };

int64_t hanse_duration_row_words(int64_t classes)
{
    int64_t size = classes + CLASSES;
    return packed(size, 0) + size + SCALARS;
}

int64_t hanse_duration_answer_words(int64_t classes)
{
    return classes + CLASSES + ANSWER_SCALARS;
}

void hanse_duration_add(double *row, int64_t classes, double decay, int64_t tasks, const int64_t *task_class,
                        const double *log_seconds, const double *size, double actual, double predicted)
{
    int64_t parameters = classes + CLASSES;
    double *matrix = row, *right = row + packed(parameters, 0), *scalars = right + parameters;
    double sums[PARAMETERS_MAX] = {0.0}, total = 0.0, squares = 0.0;
    for (int64_t at = 0; at < hanse_duration_row_words(classes); at++)
        row[at] = row[at] * decay;
    for (int64_t task = 0; task < tasks; task++) {
        int64_t own = CLASSES + task_class[task];
        double x = size[task], y = log_seconds[task];
        sums[LEVEL] = sums[LEVEL] + 1.0;
        sums[SLOPE] = sums[SLOPE] + x;
        sums[own] = sums[own] + 1.0;
        total = total + y;
        squares = squares + y * y;
        matrix[packed(SLOPE, SLOPE)] = matrix[packed(SLOPE, SLOPE)] + x * x;
        matrix[packed(own, SLOPE)] = matrix[packed(own, SLOPE)] + x;
        right[SLOPE] = right[SLOPE] + x * y;
        right[own] = right[own] + y;
    }
    double weight = JOB_TO_TASK_VARIANCE / (1.0 + sums[LEVEL] * JOB_TO_TASK_VARIANCE);
    right[LEVEL] = right[LEVEL] + total;
    for (int64_t i = 0; i < parameters; i++) {
        double *line = matrix + packed(i, 0);
        line[LEVEL] = line[LEVEL] + sums[i];
        if (i >= CLASSES)
            line[i] = line[i] + sums[i];
        for (int64_t j = 0; j <= i; j++)
            line[j] = line[j] - weight * sums[i] * sums[j];
        right[i] = right[i] - weight * sums[i] * total;
    }
    scalars[TASKS] = scalars[TASKS] + sums[LEVEL];
    scalars[JOBS] = scalars[JOBS] + 1.0;
    scalars[LEVEL_INFORMATION] = scalars[LEVEL_INFORMATION]
        + sums[LEVEL] / (1.0 + sums[LEVEL] * JOB_TO_TASK_VARIANCE);
    scalars[SQUARES] = scalars[SQUARES] + (squares - weight * total * total);
    scalars[ACTUAL] = scalars[ACTUAL] + actual;
    scalars[PREDICTED] = scalars[PREDICTED] + predicted;
}

/* Weighted sum of squares that an answer leaves unexplained. */
static double rest_of(const double *matrix, const double *right, const double *answer, int64_t size, double squares)
{
    double rest = squares;
    for (int64_t i = 0; i < size; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < size; j++)
            sum = sum + matrix[i >= j ? packed(i, j) : packed(j, i)] * answer[j];
        rest = rest + answer[i] * (sum - 2.0 * right[i]);
    }
    return rest > 0.0 ? rest : 0.0;
}

void hanse_duration_solve(const double *row, int64_t classes, double spread, const double *above, double *answer)
{
    int64_t size = classes + CLASSES;
    const double *right = row + packed(size, 0), *scalars = right + size;
    double system[PARAMETERS_MAX * (PARAMETERS_MAX + 1) / 2], *result = answer + size;
    double variance = above[size + VARIANCE];
    if (!(scalars[JOBS] > 0.0)) {
        for (int64_t at = 0; at < hanse_duration_answer_words(classes); at++)
            answer[at] = above[at];
        result[EVIDENCE] = 0.0;
        return;
    }
    for (int64_t at = 0; at < packed(size, 0); at++)
        system[at] = row[at];
    for (int64_t i = 0; i < size; i++) {
        double width = i == SLOPE ? SLOPE_SPREAD : spread;
        double ridge = i == LEVEL ? FLAT : variance / (width * width);
        system[packed(i, i)] = system[packed(i, i)] + ridge;
        answer[i] = right[i] + ridge * above[i];
    }
    solve_packed(system, answer, size);
    double rest = rest_of(row, right, answer, size, scalars[SQUARES]);
    result[VARIANCE] = (VARIANCE_TASKS * variance + rest) / (VARIANCE_TASKS + scalars[TASKS]);
    double middle = row[packed(SLOPE, LEVEL)] / row[packed(LEVEL, LEVEL)];
    double level = answer[LEVEL] + answer[SLOPE] * middle, prior = above[LEVEL] + above[SLOPE] * middle;
    double weight = variance / (LEVEL_SPREAD * LEVEL_SPREAD), information = scalars[LEVEL_INFORMATION];
    answer[LEVEL] = (information * level + weight * prior) / (information + weight) - answer[SLOPE] * middle;
    double mass = RATIO_JOBS * (scalars[PREDICTED] / scalars[JOBS]);
    result[RATIO] = (scalars[ACTUAL] + mass * above[size + RATIO]) / (scalars[PREDICTED] + mass);
    result[EVIDENCE] = scalars[JOBS];
}

void hanse_duration_seconds(const double *answer, int64_t classes, double size, double estimate, double *seconds)
{
    const double *contrast = answer + CLASSES, *scalars = contrast + classes;
    double level = answer[LEVEL] + answer[SLOPE] * size, ratio = scalars[RATIO];
    if (estimate > 0.0) {
        double mean = 0.0, jobs = scalars[EVIDENCE];
        for (int64_t at = 0; at < classes; at++)
            mean = mean + contrast[at];
        double stated = exact_log(estimate) - exact_log(ratio) - mean / (double)classes;
        level = (ESTIMATE_JOBS * stated + jobs * level) / (ESTIMATE_JOBS + jobs);
    }
    for (int64_t at = 0; at < classes; at++)
        seconds[at] = ratio * exact_exp(level + contrast[at]);
}
