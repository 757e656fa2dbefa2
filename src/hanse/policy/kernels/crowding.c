/* What neighbours cost, from sums: the twin of policy/finish_time/crowding_sums.py, which explains the model and the
 * layout, and which these functions equal to the bit. */
#include "exact_math.h"
#include "finish_time.h"

enum { LABELS_MAX = 16, CLASSES_MAX = 64, PARAMETERS_MAX = KNOTS + 2 * LABELS_MAX + CLASSES_MAX };
enum { TASKS = 0, JOBS = 1, SCALARS = 2 };
enum { SWEEPS = 8 };

static const double KNOT[KNOTS] = {0.0, 0.25, 0.5, 0.75, 1.0};
static const double CLIP = 1.5;
/* prior, spread, least, most of: slopes, sensitivities, pressures, strengths */
static const double PRIOR[4][4] = {{0.0, 0.5, 0.0, 4.0}, {1.0, 0.7, 0.0, 5.0}, {1.0, 0.7, 0.0, 5.0}, {1.0, 0.3, 0.4, 2.5}};

static int64_t parameters_of(const int64_t *sizes)
{
    return KNOTS + 2 * sizes[0] + sizes[1];
}

static int group_of(const int64_t *sizes, int64_t parameter)
{
    if (parameter < KNOTS)
        return 0;
    return parameter < KNOTS + sizes[0] ? 1 : parameter < KNOTS + 2 * sizes[0] ? 2 : 3;
}

int64_t hanse_crowding_row_words(int64_t labels, int64_t classes)
{
    int64_t size = KNOTS + 2 * labels + classes;
    return packed(size, 0) + size + SCALARS;
}

int64_t hanse_crowding_answer_words(int64_t labels, int64_t classes)
{
    return KNOTS + 2 * labels + classes;
}

/* Slow-down; its slope by pressure in `rise`, the pressure in `pressure`, the bend in `total`. */
static double slow_down(const double *answer, const int64_t *sizes, int64_t node_class, const double *shares,
                        double *pressure, double *total, double *rise)
{
    const double *press = answer + KNOTS + sizes[0];
    double sum = 0.0;
    for (int64_t label = 0; label < sizes[0]; label++)
        sum = sum + press[label] * shares[label];
    *pressure = sum / press[sizes[0] + node_class];
    *total = 0.0;
    *rise = 0.0;
    for (int at = 0; at < KNOTS; at++)
        if (*pressure > KNOT[at]) {
            *total = *total + answer[at] * (*pressure - KNOT[at]);
            *rise = *rise + answer[at];
        }
    return 1.0 + answer[KNOTS + sizes[2]] * *total;
}

double hanse_crowding_slow_down(const double *answer, const int64_t *sizes, int64_t node_class,
                                const double *shares)
{
    double pressure, total, rise;
    return slow_down(answer, sizes, node_class, shares, &pressure, &total, &rise);
}

/* Derivatives of the logarithm of a task's slow-down; the logarithm less their product with the answer in `rest`.
 * `used` lists the parameters that count. */
static int64_t derive(const double *answer, const int64_t *sizes, int64_t node_class, const double *shares,
                      double *lines, int64_t *used, double *logarithm, double *product)
{
    double pressure, total, rise;
    double slow = slow_down(answer, sizes, node_class, shares, &pressure, &total, &rise);
    int64_t labels = sizes[0], own = KNOTS + sizes[2], strength = KNOTS + 2 * labels + node_class, count = 0;
    double by_pressure = answer[own] * rise / slow;
    for (int64_t at = 0; at < KNOTS; at++) {
        double beyond = pressure - KNOT[at];
        lines[at] = beyond > 0.0 ? answer[own] * beyond / slow : 0.0;
        used[count++] = at;
    }
    lines[own] = total / slow;
    used[count++] = own;
    for (int64_t label = 0; label < labels; label++) {
        lines[KNOTS + labels + label] = by_pressure * shares[label] / answer[strength];
        used[count++] = KNOTS + labels + label;
    }
    lines[strength] = -(by_pressure * pressure / answer[strength]);
    used[count++] = strength;
    *logarithm = exact_log(slow);
    *product = 0.0;
    for (int64_t at = 0; at < count; at++)
        *product = *product + lines[used[at]] * answer[used[at]];
    return count;
}

void hanse_crowding_add(double *row, const double *answer, const int64_t *sizes, double decay, int64_t tasks,
                        const int64_t *task_class, const double *log_seconds, const double *shares)
{
    int64_t size = parameters_of(sizes), used[PARAMETERS_MAX];
    double *right = row + packed(size, 0), *scalars = right + size;
    double lines[PARAMETERS_MAX], sums[PARAMETERS_MAX] = {0.0}, total = 0.0, mean = 0.0, logarithm, product;
    if (tasks < 2) /* nothing to compare with */
        return;
    for (int64_t at = 0; at < hanse_crowding_row_words(sizes[0], sizes[1]); at++)
        row[at] = row[at] * decay;
    for (int64_t task = 0; task < tasks; task++)
        mean = mean + (log_seconds[task]
            - exact_log(hanse_crowding_slow_down(answer, sizes, task_class[task], shares + task * sizes[0])));
    mean = mean / (double)tasks;
    for (int64_t task = 0; task < tasks; task++) {
        int64_t count = derive(answer, sizes, task_class[task], shares + task * sizes[0], lines, used, &logarithm,
                               &product);
        double off = log_seconds[task] - logarithm - mean;
        double y = product + (off > CLIP ? CLIP : off < -CLIP ? -CLIP : off);
        total = total + y;
        for (int64_t at = 0; at < count; at++) {
            int64_t i = used[at];
            double *line = row + packed(i, 0);
            sums[i] = sums[i] + lines[i];
            right[i] = right[i] + lines[i] * y;
            for (int64_t other = 0; other <= at; other++)
                line[used[other]] = line[used[other]] + lines[i] * lines[used[other]];
        }
    }
    for (int64_t i = 0; i < size; i++) {
        double *line = row + packed(i, 0);
        for (int64_t j = 0; j <= i; j++)
            line[j] = line[j] - sums[i] * sums[j] / (double)tasks;
        right[i] = right[i] - sums[i] * total / (double)tasks;
    }
    scalars[TASKS] = scalars[TASKS] + (double)tasks;
    scalars[JOBS] = scalars[JOBS] + 1.0;
}

void hanse_crowding_solve(const double *row, const int64_t *sizes, double variance, double *answer)
{
    int64_t size = parameters_of(sizes);
    const double *right = row + packed(size, 0);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int64_t i = 0; i < size; i++) {
            const double *prior = PRIOR[group_of(sizes, i)];
            double ridge = variance / (prior[1] * prior[1]), sum = right[i] + ridge * prior[0];
            for (int64_t j = 0; j < size; j++)
                if (j != i)
                    sum = sum - row[j < i ? packed(i, j) : packed(j, i)] * answer[j];
            double value = sum / (row[packed(i, i)] + ridge);
            answer[i] = value < prior[2] ? prior[2] : value > prior[3] ? prior[3] : value;
        }
}
