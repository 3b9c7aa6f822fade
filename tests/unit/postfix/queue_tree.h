/*
 * A queue directory of Postfix for tests, below /tmp.
 */
#ifndef TEST_QUEUE_TREE_H
#define TEST_QUEUE_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "slice.h"

struct queue_tree {
    char path[64];
};

/* All directories of the queue, empty. */
void queue_tree_make(struct queue_tree *t);
void queue_tree_remove(struct queue_tree *t);

/* A file at `path` below it, with directories on its way there. */
void queue_tree_put(const struct queue_tree *t, const char *path, struct slice bytes, mode_t mode,
                    int64_t mtime_s);
void queue_tree_unlink(const struct queue_tree *t, const char *path);
void queue_tree_rename(const struct queue_tree *t, const char *from, const char *to);

bool queue_tree_has(const struct queue_tree *t, const char *path);
mode_t queue_tree_mode(const struct queue_tree *t, const char *path);
int64_t queue_tree_mtime(const struct queue_tree *t, const char *path);
/* One byte of a file. */
char queue_tree_byte(const struct queue_tree *t, const char *path, uint64_t at);

/* A queue file: recipients `prefix`1@example.org to `count`, with this content. */
void queue_tree_message(struct buf *ret_bytes, const char *sender, const char *prefix,
                        unsigned count);

#endif
