// Drawing with Cairo and Pango: shapes, and text of any script. The same calls give the same picture on every
// kind of surface.
#pragma once

#include <cairo.h>
#include <pango/pango.h>

#include <string>

#include "view/color.h"

namespace qkv::view {

enum class Align { kLeft, kCenter, kRight };
enum class Weight { kNormal, kBold };
enum class Slant { kUpright, kItalic };

struct TextStyle {
  double size = 12;  // points of the figure
  Rgb color = {27, 31, 39};
  Align align = Align::kLeft;
  Weight weight = Weight::kNormal;
  Slant slant = Slant::kUpright;
  double max_width = 0;  // cut with an ellipsis; 0: no limit
  int max_lines = 1;     // breaks between words
  double angle = 0;      // radians, about the text's anchor
};

struct Extent {
  double width = 0, height = 0;
};

// How strongly something is drawn over the paper.
struct Stroke {
  Rgb color;
  double width = 1;
  double alpha = 1;
};

class Pen {
 public:
  explicit Pen(cairo_surface_t* surface);
  ~Pen();
  Pen(const Pen&) = delete;
  Pen& operator=(const Pen&) = delete;

  // The anchor is the top of the text; for one line of turned text it is the middle of the line.
  Extent Text(const std::string& text, double x, double y, const TextStyle& style);
  Extent Measure(const std::string& text, const TextStyle& style);

  void Fill(double x, double y, double width, double height, Rgb color);
  void Frame(double x, double y, double width, double height, const Stroke& stroke);
  void Line(double x0, double y0, double x1, double y1, const Stroke& stroke);
  void Ribbon(double x0, double y0, double x1, double y1, const Stroke& stroke);  // an S-shaped curve

  int unknown_glyphs() const { return unknown_glyphs_; }  // characters that no installed font has
  cairo_status_t status() const { return cairo_status(cairo_); }

 private:
  void Prepare(const std::string& text, const TextStyle& style);
  void Apply(const Stroke& stroke);

  cairo_t* cairo_;
  PangoLayout* layout_;
  int unknown_glyphs_ = 0;
};

}  // namespace qkv::view
