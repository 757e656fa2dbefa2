/* Estimates of finish time: what the compiled simulator and the ctypes wrappers call.
 *
 * The functions are exported by _kernels.so; the compiled world gets their addresses (finish_kernels_t), so that
 * there is one copy of them. Each has a twin in Python under policy/, named below, which it equals to the bit.
 * Records hold words of eight bytes only: Python packs them as such. No function allocates or keeps anything.
 */
#ifndef HANSE_FINISH_TIME_H
#define HANSE_FINISH_TIME_H

#include <stdint.h>

enum { KNOTS = 5 };         /* of the slow-down by pressure; crowding.py names them */
enum { FINISH_TASKS_MAX = 1 << 20 };

/* --- finish_cost.c, twin policy/kernels/numpy_finish.py: where tasks finish first ----------------------------------- */

/* Nodes of a league or a cluster. A stretch is a run of neighbouring nodes of one rack and one class. */
typedef struct {
    int64_t nodes;
    int64_t stretches;
    const int64_t *stretch_from; /* [stretches + 1] first node of each, and the number of nodes */
    const int64_t *stretch_class; /* [stretches] */
    const int64_t *stretch_rack;  /* [stretches] */
    int64_t *free_cpu;            /* [nodes] */
    int64_t *free_memory;         /* [nodes] */
    int64_t *free_gpu;            /* [nodes] */
    double *pressure;             /* [nodes] sum over the tasks there of pressure per core x cores */
    const double *room;           /* [nodes] 1 / (cores x strength of the class) */
    double *exposure;             /* [nodes] sum over the tasks there of sensitivity x expected seconds */
} finish_nodes_t;

/* Equal tasks of one job. */
typedef struct {
    int64_t count;               /* tasks */
    int64_t each_max;            /* most of them on one node; 0: no bound */
    int64_t cpu, memory, gpu;    /* of one task */
    const double *class_seconds; /* [classes] expected run time alone; negative: not allowed */
    const double *rack_seconds;  /* [racks] expected transfer; negative: not allowed */
    const double *slopes;        /* [KNOTS] added to the slope of the slow-down at each knot */
    double sensitivity;          /* of the task to pressure */
    double own_pressure;         /* pressure per core x cores of the task */
    double own_exposure;         /* its sensitivity x expected seconds */
    double charge;               /* weight of the neighbours' loss in the cost: 1 at the margin, 0 none */
    double finish_max;           /* a node on which the task itself would take longer is not taken */
    int64_t is_debited;          /* 1: the nodes' columns are changed as if the tasks ran there */
} finish_job_t;

/* A candidate node; scratch memory of hanse_finish_choose. */
typedef struct {
    double cost;
    int64_t node;
    int64_t given;
    int64_t stretch;
} finish_entry_t;

/* Choose nodes for up to `count` tasks, the cheapest each time, ties to the lowest node; return how many.
 * `entries` has min(count, nodes) places, `chosen` and `costs` have `count`. */
int64_t hanse_finish_choose(const finish_nodes_t *nodes, const finish_job_t *job, finish_entry_t *entries,
                            int64_t *chosen, double *costs);

/* Least cost of one task alone on an empty league: what waiting is measured by. Negative: nowhere. */
double hanse_finish_ideal(const finish_nodes_t *nodes, const finish_job_t *job);

/* Cost of a task on every node, room or not: [nodes]; negative where it is not allowed. */
void hanse_finish_costs(const finish_nodes_t *nodes, const finish_job_t *job, double *costs);

/* --- duration_table.c, twin policy/finish_time/duration_rows.py: run times by kind and class ------------------------ */

/* Size in words of a row of sums and of an answer, for this many node classes. */
int64_t hanse_duration_row_words(int64_t classes);
int64_t hanse_duration_answer_words(int64_t classes);

/* Add an ended job to a row: per task its class, logarithm of the run time without slow-down, and input size. */
void hanse_duration_add(double *row, int64_t classes, double decay, int64_t tasks, const int64_t *task_class,
                        const double *log_seconds, const double *size, double actual, double predicted);

/* Answer of a row, shrunk towards the answer of the level above. `spread` is the standard deviation of contrasts
 * between rows of this level. */
void hanse_duration_solve(const double *row, int64_t classes, double spread, const double *above, double *answer);

/* Expected seconds of a task alone on each class. `estimate`: the submitter's, in seconds; 0: none. */
void hanse_duration_seconds(const double *answer, int64_t classes, double size, double estimate, double *seconds);

/* --- crowding.c, twin policy/finish_time/crowding_sums.py: what neighbours cost ------------------------------------- */

int64_t hanse_crowding_row_words(int64_t labels, int64_t classes);
int64_t hanse_crowding_answer_words(int64_t labels, int64_t classes);

/* `sizes` of a call: labels, classes, and the label of the job. */

/* Add an ended job of a label (kind of work): per task its class, logarithm of the run time over the table's
 * estimate, and shares of its node's cores by label, itself included, averaged over its run: [tasks][labels]. */
void hanse_crowding_add(double *row, const double *answer, const int64_t *sizes, double decay, int64_t tasks,
                        const int64_t *task_class, const double *log_seconds, const double *shares);

/* Answer of a row, sought from the present answer on. */
void hanse_crowding_solve(const double *row, const int64_t *sizes, double variance, double *answer);

/* Slow-down of a task of a label on a class beside these shares of cores: at least 1. */
double hanse_crowding_slow_down(const double *answer, const int64_t *sizes, int64_t node_class,
                                const double *shares);

#endif
