/* Arithmetic that C and Python do alike to the last bit: logarithm, exponential, small symmetric systems.
 *
 * The twins are in policy/finish_time/exact_math.py. Only + - * / and sqrt are used, which IEEE 754 defines to the
 * bit, in one order; the libraries' own log and exp differ between machines.
 */
#ifndef HANSE_EXACT_MATH_H
#define HANSE_EXACT_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LN2 0.6931471805599453
#define SQRT_HALF 0.7071067811865476
#define EXPONENT_MAX 200.0 /* of exact_exp: beyond it the argument is cut */

static inline double power_of_two(int64_t exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Natural logarithm of a positive normal number, to about 1e-15. */
static inline double exact_log(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    double exponent = (double)((int64_t)(bits >> 52 & 0x7ff) - 1022);
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3fe0000000000000);
    double part;
    memcpy(&part, &bits, sizeof part);
    if (part < SQRT_HALF) {
        part = part + part;
        exponent = exponent - 1.0;
    }
    double s = (part - 1.0) / (part + 1.0), z = s * s, sum = 1.0 / 17.0;
    for (int odd = 15; odd > 0; odd -= 2)
        sum = sum * z + 1.0 / (double)odd;
    return exponent * LN2 + 2.0 * s * sum;
}

/* e to the power of a number, to about 1e-14. */
static inline double exact_exp(double number)
{
    if (number > EXPONENT_MAX)
        number = EXPONENT_MAX;
    if (number < -EXPONENT_MAX)
        number = -EXPONENT_MAX;
    double scaled = number / LN2;
    int64_t whole = (int64_t)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
    double rest = number - (double)whole * LN2, sum = 1.0;
    for (int order = 14; order > 0; order--)
        sum = sum * rest / (double)order + 1.0;
    return sum * power_of_two(whole);
}

/* Place of row i, column j <= i in a packed lower triangle. */
static inline int64_t packed(int64_t i, int64_t j)
{
    return i * (i + 1) / 2 + j;
}

/* Least pivot, relative to the diagonal, that a system may have: below it the direction is taken as unknown. */
#define PIVOT_MIN 1e-12

/* Solve the positive definite system (packed lower triangle, destroyed) x = right, in place of right. */
static inline void solve_packed(double *matrix, double *right, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        double *row = matrix + packed(i, 0), whole = row[i];
        for (int64_t j = 0; j <= i; j++) {
            const double *other = matrix + packed(j, 0);
            double sum = row[j];
            for (int64_t k = 0; k < j; k++)
                sum = sum - row[k] * other[k];
            if (j < i)
                row[j] = sum / other[j];
            else
                row[i] = sum > PIVOT_MIN * whole ? sqrt(sum) : 1e100;
        }
    }
    for (int64_t i = 0; i < size; i++) {
        const double *row = matrix + packed(i, 0);
        double sum = right[i];
        for (int64_t k = 0; k < i; k++)
            sum = sum - row[k] * right[k];
        right[i] = sum / row[i];
    }
    for (int64_t i = size - 1; i >= 0; i--) {
        double sum = right[i];
        for (int64_t k = i + 1; k < size; k++)
            sum = sum - matrix[packed(k, i)] * right[k];
        right[i] = sum / matrix[packed(i, i)];
    }
}

#endif
