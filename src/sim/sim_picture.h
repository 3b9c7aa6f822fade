/*
 * A run in pictures: how many messages waited, what the most interesting destinations did, and how
 * long mail took, class by class.
 *
 * Destinations are drawn that had trouble, the most of it first, then those with the most mail.
 */
#ifndef SIM_PICTURE_H
#define SIM_PICTURE_H

#include <stdbool.h>

#include "buf.h"
#include "sim_world.h"

#define SIM_PICTURE_MAX (64u << 20) /* bytes that a picture, or a page, may have */

/* One SVG picture with everything, its style within when it is to stand `alone`. `workload` tells
 * of outages. */
void sim_picture_svg(struct buf *out, const struct sim_result *r, const struct workload *workload,
                     bool alone);

#endif
