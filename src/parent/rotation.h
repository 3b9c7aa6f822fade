/* Files of lines that grow: FILE becomes FILE.1, that FILE.2, and so on. */
#ifndef PARENT_ROTATION_H
#define PARENT_ROTATION_H

#include <stdbool.h>
#include <stdint.h>

/* Has the file more than `size` bytes? Then rename it and the `count` files of before, of which the
 * oldest goes, and true: its writers are to open a new one. What fails is logged, and the file
 * stays where it is. */
bool rotation_due(const char *path, uint64_t size, unsigned count);

#endif
