/*
 * A run in pictures: how many messages waited, the deliveries of the most interesting destinations,
 * and the delay of mail, class by class.
 *
 * Destinations with trouble are drawn first, most of it in front, then those with the most mail.
 */
#ifndef SIM_PICTURE_H
#define SIM_PICTURE_H

#include <stdbool.h>

#include "buf.h"
#include "sim_world.h"

#define SIM_PICTURE_MAX (64u << 20) /* maximum bytes of a picture or a page */

/* Draws one SVG picture of the whole run, with its own style if it is used `alone`. `workload` has
 * the outages. */
void sim_picture_svg(struct buf *out, const struct sim_result *r, const struct workload *workload,
                     bool alone);

#endif
