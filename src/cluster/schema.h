/*
 * The tables of a cluster's spool, and their formats:
 *
 *     1   the first
 *     2   interventions are of all nodes; what is known of destinations is handed over
 *
 * A program works with the format that it makes and with the one before, so that all nodes can get
 * it before the tables are raised (`sluice cluster upgrade').
 */
#ifndef CLUSTER_SCHEMA_H
#define CLUSTER_SCHEMA_H

#define SCHEMA_FORMAT     2
#define SCHEMA_FORMAT_MIN 1 /* the oldest that this program works with */

/* Statements that make it, in an empty schema that is the first of search_path; one transaction. */
extern const char schema_sql[];

/* Statements that make tables of that format of those of the format before; the same. */
const char *schema_step(int format);

#endif
