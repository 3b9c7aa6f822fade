/*
 * Marker file: stores the node's marker (member_link.h) in the state directory, so that a restarted
 * daemon still knows which commit the database must have.
 *
 * sluice-marker 1 QUEUE NODE NUMBER ACCEPTED TIME\n numbers in hexadecimal digits, 16 each
 *
 * QUEUE is a hash of the database, the schema and the node's name; the marker of another queue is
 * ignored. Each commit writes the file, with one write that waits for no disk. So the marker
 * survives any end of the daemon. After a crash of the machine it may be older, and then reveals
 * less. The caller logs errors of the file; they have no other consequence.
 */
#ifndef CLUSTER_MARKER_FILE_H
#define CLUSTER_MARKER_FILE_H

#include "member_link.h"

struct marker_file {
    int fd; /* owned; -1 if there is none */
    uint64_t queue;
};

/* Opens `marker` in the directory and reads it into *ret_marker, which is all zeros if the file has
 * no marker of that queue. Returns 0, or a negative errno without an open file. */
int marker_file_open(struct marker_file *f, const char *directory, const char *database,
                     const char *schema, const char *node, struct member_marker *ret_marker);
/* Writes the marker. Returns 0 or a negative errno. */
int marker_file_write(const struct marker_file *f, const struct member_marker *marker);
void marker_file_close(struct marker_file *f);

#endif
