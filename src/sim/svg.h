/*
 * Pictures: the few elements of SVG that charts need, written into a buffer.
 *
 * Appending is sticky in the buffer, which its owner looks at in the end. Lengths are in pixels.
 * Looks come from classes; svg_add_style has them all, for light and dark, so that a picture works
 * alone and within a page.
 */
#ifndef SIM_SVG_H
#define SIM_SVG_H

#include "buf.h"
#include "slice.h"

/* Text from outside, as content or within quotes. */
void svg_add_escaped(struct buf *out, struct slice text);

/* The declarations of the classes below. They also serve an HTML page (`body`, `table`). */
void svg_add_style(struct buf *out);

/* `label` is what a reader hears who cannot see it. */
void svg_open(struct buf *out, double width, double height, const char *label);
void svg_close(struct buf *out);

/* Classes of text: "h" heading, "l" label, "m" muted, "note" muted and readable upon
 * anything; with "e" it ends at x, with "c" it is centred
 * there, else it begins there. */
void svg_text(struct buf *out, double x, double y, const char *classes, struct slice text);

/* Classes of lines: "g" grid, "a" axis, or a series'. */
void svg_line(struct buf *out, double x1, double y1, double x2, double y2, const char *classes);

/* `title` (may be empty) is shown where the pointer rests. */
void svg_rect(struct buf *out, double x, double y, double width, double height, const char *classes,
              struct slice title);
void svg_circle(struct buf *out, double x, double y, double radius, const char *classes,
                struct slice title);

#endif
