/*
 * The tables of a cluster's spool.
 */
#ifndef CLUSTER_SCHEMA_H
#define CLUSTER_SCHEMA_H

#define SCHEMA_FORMAT 1

/* Statements that make it, in an empty schema that is the first of search_path; one transaction. */
extern const char schema_sql[];

#endif
