/*
 * SQLite's write-ahead log, written in large pieces.
 *
 * SQLite writes each frame of the log by two calls, 24 bytes and a page, one behind the other. A
 * commit of mail that passes has some 20 frames, and a tenth of the queue process's time would go
 * into these calls. This VFS lies over the default one and hands every file but a log straight to
 * it. Of a log it keeps what is written, as long as each write begins where the last one ended, and
 * gives it to the default VFS in one piece
 *
 *   - before the log is synced, read, truncated or asked for its size
 *   - before a write elsewhere
 *   - when LOG_VFS_BYTES are full
 *
 * So whatever a sync makes durable is in the file before it, in the order in which it was written.
 * Other processes read frames that the log's index names, and SQLite puts those of a commit there
 * after the sync (synchronous = FULL).
 *
 * Where a torn write may harm bytes beside it, which the default VFS says of no disk, SQLite fills
 * the last sector behind a commit after its sync. There nothing is kept.
 *
 * A write that fails is told by the call that it was put off to, which is part of the same
 * transaction: the sync of the commit, or a later write. SQLite undoes the transaction then, as it
 * would have; what was kept is dropped, as it is when the log is closed without a sync.
 */
#ifndef SPOOL_LOG_VFS_H
#define SPOOL_LOG_VFS_H

/* Longer writes cost hardly less, and the page cache would then have the log in long pieces, each
 * of which counts as written (/proc/PID/io) when a part of it is. SQLite's own VFS takes less than
 * 128 KiB in a call. */
#define LOG_VFS_BYTES (16 << 10)

/* The name to open a database with. The VFS is registered at the first call, over the one that is
 * the default then. NULL: that was not possible, and the default one will do. */
const char *log_vfs(void);

#endif
