/*
 * Real numbers: logarithm, exponential and spelling that give the same bits on every machine.
 *
 * Those of libm may differ in the last place from one version to the next, and one bit in one draw
 * leads a simulation down another path. These use only what IEEE 754 rounds exactly (+ - * /, and
 * scaling by powers of two); they are right to a few units in the last place, which is plenty for
 * drawing random numbers.
 */
#ifndef SIM_REAL_H
#define SIM_REAL_H

#include <stdbool.h>

#include "slice.h"

/* x > 0 and finite. */
double real_ln(double x);

/* |x| <= 700. */
double real_exp(double x);

/* A decimal number that is all of `text`: digits with or without a point, 0..max. *ret_value is
 * untouched on failure. */
bool real_parse(struct slice text, double max, double *ret_value);

#endif
