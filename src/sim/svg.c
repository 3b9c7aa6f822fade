#include "svg.h"

/* The palette is Okabe and Ito's, which most colour-blind people can distinguish, made lighter on a
 * dark background. Programs without support for variables (librsvg) use the plain colour before
 * each. */
static const char style[] =
    ":root{--paper:#fff;--ink:#1c2024;--mute:#5c6670;--grid:#e4e7eb;--shade:#d55e00;--s0:#0072b2;"
    "--s1:#56b4e9;--s2:#d55e00;--s3:#cc79a7;--busy:#009e73;--win:#1c2024}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14181c;--ink:#e6eaee;--mute:#98a4b0;"
    "--grid:#2b323a;--shade:#f0803c;--s0:#3d9fe0;--s1:#9ad6f7;--s2:#f0803c;--s3:#e0a3c6;"
    "--busy:#2fbf93;--win:#f2f4f6}}\n"
    "svg text{font:12px system-ui,sans-serif;fill:#1c2024;fill:var(--ink)}\n"
    "svg .h{font-weight:600;font-size:14px}\n"
    "svg .m{fill:#5c6670;fill:var(--mute)}\n"
    "svg .e{text-anchor:end}\n"
    "svg .c{text-anchor:middle}\n"
    "svg .bg{fill:#fff;fill:var(--paper)}\n"
    "svg .g{stroke:#e4e7eb;stroke:var(--grid)}\n"
    "svg .a{stroke:#5c6670;stroke:var(--mute)}\n"
    "svg .s0{fill:#0072b2;fill:var(--s0)}\n"
    "svg .s1{fill:#56b4e9;fill:var(--s1)}\n"
    "svg .s2{fill:#d55e00;fill:var(--s2)}\n"
    "svg .s3{fill:#cc79a7;fill:var(--s3)}\n"
    "svg .busy{fill:#009e73;fill:var(--busy);fill-opacity:.75}\n"
    "svg .busy{stroke:#009e73;stroke:var(--busy);stroke-width:.7}\n"
    "svg .note{fill:#5c6670;fill:var(--mute);paint-order:stroke}\n"
    "svg .note{stroke:#fff;stroke:var(--paper);stroke-width:4px}\n"
    "svg .win{stroke:#1c2024;stroke:var(--win);stroke-width:1.5;fill:none}\n"
    "svg .out{fill:#d55e00;fill:var(--shade);fill-opacity:.16}\n"
    "svg .span{stroke:#0072b2;stroke:var(--s0);stroke-width:2}\n"
    "svg .q{fill:#fff;fill:var(--paper);stroke:#0072b2;stroke:var(--s0);stroke-width:2}\n"
    "svg .tail{stroke:#d55e00;stroke:var(--s2)}\n"
    "svg .tailend{stroke:#d55e00;stroke:var(--s2);stroke-width:2}\n";

void svg_add_style(struct buf *out)
{
    (void)buf_add_string(out, style);
}

void svg_add_escaped(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'') {
            (void)buf_addf(out, "&#%d;", c);
        } else if ((unsigned char)c < ' ' || c == 0x7f) {
            (void)buf_add_byte(out, '?'); /* not allowed in XML */
        } else {
            (void)buf_add_byte(out, c);
        }
    }
}

void svg_open(struct buf *out, double width, double height, const char *label)
{
    (void)buf_addf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                   "width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-label=\"",
                   width, height, width, height);
    svg_add_escaped(out, slice_string(label));
    (void)buf_add_string(out, "\">\n");
}

void svg_close(struct buf *out)
{
    (void)buf_add_string(out, "</svg>\n");
}

void svg_text(struct buf *out, double x, double y, const char *classes, struct slice text)
{
    (void)buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, classes);
    svg_add_escaped(out, text);
    (void)buf_add_string(out, "</text>\n");
}

void svg_line(struct buf *out, double x1, double y1, double x2, double y2, const char *classes)
{
    (void)buf_addf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
                   x1, y1, x2, y2, classes);
}

/* Ends an element that may contain a title. */
static void add_title(struct buf *out, const char *element, struct slice title)
{
    if (title.len == 0) {
        (void)buf_add_string(out, "/>\n");
        return;
    }
    (void)buf_add_string(out, "><title>");
    svg_add_escaped(out, title);
    (void)buf_addf(out, "</title></%s>\n", element);
}

void svg_rect(struct buf *out, double x, double y, double width, double height, const char *classes,
              struct slice title)
{
    (void)buf_addf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"",
                   x, y, width, height, classes);
    add_title(out, "rect", title);
}

void svg_circle(struct buf *out, double x, double y, double radius, const char *classes,
                struct slice title)
{
    (void)buf_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"", x, y, radius,
                   classes);
    add_title(out, "circle", title);
}
