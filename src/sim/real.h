/*
 * Real numbers: logarithm, exponential and parsing that give the same bits on every machine.
 *
 * Those of libm may differ in the last digit from one version to the next, and one different bit in
 * one draw changes the whole simulation. These functions use only operations that IEEE 754 rounds
 * exactly (+ - * /, and scaling by powers of two). They are exact to a few units in the last digit,
 * which is enough for drawing random numbers.
 */
#ifndef SIM_REAL_H
#define SIM_REAL_H

#include <stdbool.h>

#include "slice.h"

/* Returns the natural logarithm; x > 0 and finite. */
double real_ln(double x);

/* Returns the exponential; |x| <= 700. */
double real_exp(double x);

/* Parses a decimal number that fills `text`: digits with or without a point, 0..max. Returns false
 * otherwise and leaves *ret_value untouched. */
bool real_parse(struct slice text, double max, double *ret_value);

#endif
