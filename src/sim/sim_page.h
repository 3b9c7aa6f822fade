/*
 * A run as one HTML page: the picture of sim_picture.h and the figures of sim_report.h in tables.
 * The page needs no other file and no script, and follows the reader's choice of light or dark.
 */
#ifndef SIM_PAGE_H
#define SIM_PAGE_H

#include "buf.h"
#include "sim_report.h"
#include "sim_world.h"

void sim_page_html(struct buf *out, const struct sim_result *r, const struct workload *workload,
                   const struct sim_report_options *options);

#endif
