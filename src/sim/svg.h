/*
 * Pictures: the few elements of SVG that charts need, written into a buffer.
 *
 * The buffer's error is sticky, and its owner checks it at the end. Lengths are in pixels. Classes
 * determine the style; svg_add_style defines all of them, for light and dark, so that a picture can
 * be used alone and within a page.
 */
#ifndef SIM_SVG_H
#define SIM_SVG_H

#include "buf.h"
#include "slice.h"

/* Adds text from outside, as content or within quotes. */
void svg_add_escaped(struct buf *out, struct slice text);

/* Adds the declarations of the classes below. They also serve an HTML page (`body`, `table`). */
void svg_add_style(struct buf *out);

/* Opens a picture; `label` describes it for readers who cannot see it. */
void svg_open(struct buf *out, double width, double height, const char *label);
void svg_close(struct buf *out);

/* Adds text. Classes: "h" heading, "l" label, "m" muted, "note" muted and readable on any
 * background; with "e" the text ends at x, with "c" it is centred there, else it begins there. */
void svg_text(struct buf *out, double x, double y, const char *classes, struct slice text);

/* Adds a line. Classes: "g" grid, "a" axis, or that of a series. */
void svg_line(struct buf *out, double x1, double y1, double x2, double y2, const char *classes);

/* Adds a shape; `title` (may be empty) is shown under the pointer. */
void svg_rect(struct buf *out, double x, double y, double width, double height, const char *classes,
              struct slice title);
void svg_circle(struct buf *out, double x, double y, double radius, const char *classes,
                struct slice title);

#endif
