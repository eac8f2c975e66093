/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a few shapes on an SVG canvas. Texts are escaped here and nowhere else.
 */
#ifndef SVG_H
#define SVG_H

#include <stddef.h>
#include <stdio.h>

enum { SVG_LABEL_MAX = 512 };

struct svg {
    FILE *file;
};

struct box {
    double x, y, width, height;
};

/* class: a style class of the picture. */
void svg_text(const struct svg *svg, double x, double y, const char *class, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void svg_rect(const struct svg *svg, const struct box *box, const char *class);
void svg_line(const struct svg *svg, double x1, double y1, double x2, double y2, const char *class);
void draw_cross(const struct svg *svg, double x, double y);
/* Writes escaped text into the element that is open. */
void svg_escape(const struct svg *svg, const char *text);

/* Upper estimate of a text's width in a sans-serif font of that size. */
double svg_width(const char *text, double font_size);

/* A paragraph: text is broken into lines. The last line is cut if the text is longer. */
struct paragraph {
    double x, y, width;
    double line_height;
    double font_size;
    size_t lines_max;
    const char *class;
};
/* Returns the y below. */
double svg_paragraph(const struct svg *svg, const struct paragraph *paragraph, const char *text);

enum { SEEN_WIDTH = 600 }; /* of an observer's text */

/* The text, cut to that width; an ellipsis marks the cut. */
const char *shortened(const char *text, double width, double font_size, char buffer[SVG_LABEL_MAX]);

#endif
