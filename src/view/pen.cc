#include "view/pen.h"

#include <pango/pangocairo.h>

#include <algorithm>

namespace qkv::view {
namespace {

void SetColor(cairo_t* cairo, Rgb color, double alpha) {
  cairo_set_source_rgba(cairo, color.r / 255.0, color.g / 255.0, color.b / 255.0, alpha);
}

PangoAlignment AlignmentOf(Align align) {
  switch (align) {
    case Align::kCenter: return PANGO_ALIGN_CENTER;
    case Align::kRight: return PANGO_ALIGN_RIGHT;
    case Align::kLeft: break;
  }
  return PANGO_ALIGN_LEFT;
}

double ShareBeforeAnchor(Align align) {
  switch (align) {
    case Align::kCenter: return 0.5;
    case Align::kRight: return 1;
    case Align::kLeft: break;
  }
  return 0;
}

}  // namespace

Pen::Pen(cairo_surface_t* surface) : cairo_(cairo_create(surface)), layout_(pango_cairo_create_layout(cairo_)) {
  // Hinting fits glyphs to one surface's pixels, so that text would be wider on one format than on another.
  cairo_font_options_t* options = cairo_font_options_create();
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  PangoContext* context = pango_layout_get_context(layout_);
  pango_cairo_context_set_font_options(context, options);
  pango_cairo_context_set_resolution(context, 72);  // a point is a unit of the figure
  pango_context_set_round_glyph_positions(context, FALSE);
  cairo_font_options_destroy(options);
}

Pen::~Pen() {
  g_object_unref(layout_);
  cairo_destroy(cairo_);
}

void Pen::Prepare(const std::string& text, const TextStyle& style) {
  PangoFontDescription* font = pango_font_description_new();
  pango_font_description_set_family(font, "DejaVu Sans, sans-serif");
  pango_font_description_set_absolute_size(font, style.size * PANGO_SCALE);
  if (style.weight == Weight::kBold) pango_font_description_set_weight(font, PANGO_WEIGHT_BOLD);
  if (style.slant == Slant::kItalic) pango_font_description_set_style(font, PANGO_STYLE_ITALIC);
  pango_layout_set_font_description(layout_, font);
  pango_font_description_free(font);
  pango_layout_set_alignment(layout_, AlignmentOf(style.align));
  pango_layout_set_ellipsize(layout_, style.max_width > 0 ? PANGO_ELLIPSIZE_END : PANGO_ELLIPSIZE_NONE);
  pango_layout_set_wrap(layout_, PANGO_WRAP_WORD_CHAR);
  pango_layout_set_height(layout_, -style.max_lines);  // negative: lines a paragraph
  pango_layout_set_width(layout_, -1);
  pango_layout_set_text(layout_, text.data(), static_cast<int>(text.size()));
  // A width also aligns and wraps, so it is set only for text that is too long without.
  int width = 0;
  pango_layout_get_size(layout_, &width, nullptr);
  const int limit = static_cast<int>(style.max_width * PANGO_SCALE);
  if (limit > 0 && width > limit) pango_layout_set_width(layout_, limit);
}

Extent Pen::Measure(const std::string& text, const TextStyle& style) {
  Prepare(text, style);
  int width = 0, height = 0;
  pango_layout_get_size(layout_, &width, &height);
  if (const int set = pango_layout_get_width(layout_); set > 0) width = set;
  return {width / static_cast<double>(PANGO_SCALE), height / static_cast<double>(PANGO_SCALE)};
}

Extent Pen::Text(const std::string& text, double x, double y, const TextStyle& style) {
  const Extent extent = Measure(text, style);
  unknown_glyphs_ += pango_layout_get_unknown_glyphs_count(layout_);
  cairo_save(cairo_);
  cairo_translate(cairo_, x, y);
  if (style.angle != 0) {
    cairo_rotate(cairo_, style.angle);
    cairo_translate(cairo_, 0, -extent.height / 2);
  }
  cairo_translate(cairo_, -extent.width * ShareBeforeAnchor(style.align), 0);
  SetColor(cairo_, style.color, 1);
  cairo_move_to(cairo_, 0, 0);
  pango_cairo_update_layout(cairo_, layout_);
  pango_cairo_show_layout(cairo_, layout_);
  cairo_restore(cairo_);
  return extent;
}

void Pen::Apply(const Stroke& stroke) {
  SetColor(cairo_, stroke.color, stroke.alpha);
  cairo_set_line_width(cairo_, stroke.width);
  cairo_stroke(cairo_);
}

void Pen::Fill(double x, double y, double width, double height, Rgb color) {
  SetColor(cairo_, color, 1);
  cairo_rectangle(cairo_, x, y, width, height);
  cairo_fill(cairo_);
}

void Pen::Frame(double x, double y, double width, double height, const Stroke& stroke) {
  cairo_rectangle(cairo_, x, y, width, height);
  Apply(stroke);
}

void Pen::Line(double x0, double y0, double x1, double y1, const Stroke& stroke) {
  cairo_move_to(cairo_, x0, y0);
  cairo_line_to(cairo_, x1, y1);
  Apply(stroke);
}

void Pen::Ribbon(double x0, double y0, double x1, double y1, const Stroke& stroke) {
  const double bend = (x1 - x0) / 3;
  cairo_move_to(cairo_, x0, y0);
  cairo_curve_to(cairo_, x0 + bend, y0, x1 - bend, y1, x1, y1);
  Apply(stroke);
}

}  // namespace qkv::view
