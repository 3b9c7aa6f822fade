/*
 * Schema: the tables of a cluster's spool, and their formats:
 *
 * 1 the first 2 overrides are shared by all nodes; states of destinations are handed over
 *
 * A program works with its own format and the previous one, so that all nodes can be upgraded
 * before the tables are (`sluice cluster upgrade').
 */
#ifndef CLUSTER_SCHEMA_H
#define CLUSTER_SCHEMA_H

#define SCHEMA_FORMAT     2
#define SCHEMA_FORMAT_MIN 1 /* oldest format that this program works with */

/* Statements that create the tables, in one transaction, in an empty schema that is the first of
 * search_path. */
extern const char schema_sql[];

/* Returns statements that convert tables of the previous format to this one, in one transaction. */
const char *schema_step(int format);

#endif
