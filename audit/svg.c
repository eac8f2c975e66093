/* SPDX-License-Identifier: Apache-2.0 */
#include "svg.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

void svg_escape(const struct svg *svg, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", svg->file);
            break;
        case '<':
            fputs("&lt;", svg->file);
            break;
        case '>':
            fputs("&gt;", svg->file);
            break;
        case '"':
            fputs("&quot;", svg->file);
            break;
        default:
            fputc(*text, svg->file);
        }
    }
}

void svg_text(const struct svg *svg, double x, double y, const char *class, const char *format, ...)
{
    char text[SVG_LABEL_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(svg->file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_escape(svg, text);
    fputs("</text>\n", svg->file);
}

void svg_rect(const struct svg *svg, const struct box *box, const char *class)
{
    fprintf(svg->file,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"/>\n", box->x,
            box->y, box->width, box->height, class);
}

void svg_line(const struct svg *svg, double x1, double y1, double x2, double y2, const char *class)
{
    fprintf(svg->file, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"%s\"/>\n", x1,
            y1, x2, y2, class);
}

void draw_cross(const struct svg *svg, double x, double y)
{
    svg_line(svg, x - 7, y - 7, x + 7, y + 7, "cross");
    svg_line(svg, x - 7, y + 7, x + 7, y - 7, "cross");
}

static bool svg_continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The width as a part of the font's size, after DejaVu Sans, which is a wide font. */
static double character_width(const char *at)
{
    if ((unsigned char)*at >= 0x80)
        return 1.0;
    if (strchr("mwMW@%", *at) != NULL)
        return 1.0;
    if (strchr("ijl.,:;|!' ()[]", *at) != NULL)
        return 0.4;
    return *at >= 'A' && *at <= 'Z' ? 0.75 : 0.64;
}

/* How many bytes from the beginning of the text fit into that width. */
static size_t bytes_within(const char *text, double width, double font_size)
{
    size_t bytes = 0;
    double used = 0;
    for (; text[bytes] != '\0'; bytes++) {
        if (svg_continues(text[bytes]))
            continue;
        used += character_width(text + bytes) * font_size;
        if (used > width)
            break;
    }
    return bytes;
}

double svg_width(const char *text, double font_size)
{
    double width = 0;
    for (; *text != '\0'; text++)
        width += svg_continues(*text) ? 0 : character_width(text) * font_size;
    return width;
}

const char *shortened(const char *text, double width, double font_size, char buffer[SVG_LABEL_MAX])
{
    if (text[bytes_within(text, width, font_size)] == '\0')
        return text;
    size_t bytes = bytes_within(text, width - font_size, font_size);
    snprintf(buffer, SVG_LABEL_MAX, "%.*s…", (int)bytes, text);
    return buffer;
}

double svg_paragraph(const struct svg *svg, const struct paragraph *paragraph, const char *text)
{
    char buffer[SVG_LABEL_MAX];
    double y = paragraph->y;
    for (size_t line = 0; line < paragraph->lines_max && *text != '\0'; line++) {
        size_t bytes = bytes_within(text, paragraph->width, paragraph->font_size);
        bool more = text[bytes] != '\0';
        bool last = line + 1 == paragraph->lines_max;
        /* Break the line at a space, if one is near. */
        for (size_t at = bytes; more && !last && at > bytes / 2; at--) {
            if (text[at] == ' ') {
                bytes = at;
                break;
            }
        }
        if (more && last)
            svg_text(svg, paragraph->x, y, paragraph->class, "%s",
                     shortened(text, paragraph->width, paragraph->font_size, buffer));
        else
            svg_text(svg, paragraph->x, y, paragraph->class, "%.*s", (int)bytes, text);
        text += bytes;
        text += strspn(text, " ");
        y += paragraph->line_height;
    }
    return y;
}
