/* Rotation of files of lines: FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on. */
#ifndef PARENT_ROTATION_H
#define PARENT_ROTATION_H

#include <stdbool.h>
#include <stdint.h>

/* Has the file more than `size` bytes, and was it renamed? Then its writers must open a new one.
 * The `count` previous files are renamed too, and the oldest is removed. A failure is logged, and
 * the file stays. */
bool rotation_due(const char *path, uint64_t size, unsigned count);

#endif
