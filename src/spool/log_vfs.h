/*
 * SQLite's write-ahead log, written in large pieces.
 *
 * SQLite writes each frame of the log by two calls, for 24 bytes and for a page, one after the
 * other. A commit of passing mail has some 20 frames, so a tenth of the queue process's time would
 * go into these calls. This VFS wraps the default one and passes every file except a log straight
 * on. For a log it buffers the written bytes, as long as each write begins where the last one
 * ended. It passes them to the default VFS in one piece
 *
 *   - before the log is synced, read, truncated or asked for its size
 *   - before a write elsewhere
 *   - when LOG_VFS_BYTES are full
 *
 * So everything that a sync makes durable is in the file before the sync, in the order in which it
 * was written. Other processes read the frames that the log's index names, and SQLite adds those of
 * a commit to the index after the sync (synchronous = FULL).
 *
 * Where a torn write may damage neighbouring bytes, SQLite fills the last sector of a commit after
 * its sync. On such a disk nothing is buffered; the default VFS reports none.
 *
 * A failed write is reported by a later call in the same transaction: the sync of the commit, or
 * another write. SQLite then undoes the transaction, as it would have anyway. The buffer is
 * dropped, as it is when the log is closed without a sync.
 */
#ifndef SPOOL_LOG_VFS_H
#define SPOOL_LOG_VFS_H

/* Size of the buffer. Longer writes are hardly cheaper. They also put the log into the page cache
 * in long pieces, each of which counts as written (/proc/PID/io) when a part of it is. SQLite's own
 * VFS accepts less than 128 KiB in a call. */
#define LOG_VFS_BYTES (16 << 10)

/* Returns the name to open a database with. The first call registers the VFS over the current
 * default one. NULL: registering failed, and the default VFS works, too. */
const char *log_vfs(void);

#endif
