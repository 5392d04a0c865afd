#include "view/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "view/color.h"
#include "view/paper.h"

namespace qkv::view {
namespace {

constexpr double kMargin = 40, kLeft = 100, kTop = 100, kHeight = 420, kBottom = 80;
constexpr double kRight = kPaperWidth - kMargin;
constexpr Rgb kInk = {27, 31, 39}, kQuiet = {96, 104, 118}, kGrid = {222, 226, 232};
constexpr Rgb kTrain = kPaperRamp[3], kValidation = kPaperMark;
constexpr size_t kMostPoints = 2000;  // more than the paper has places
constexpr double kSmoothing = 0.02;   // share of the run that a smoothed point looks back on

struct Span {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value), high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
  double size() const { return high - low; }
};

// The largest of 1, 2 and 5 times a power of ten that gives at least `count` steps over the span.
double Tick(double span, int count) {
  const double least = span / count, power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

Curve Finite(const Curve& curve) {
  Curve kept{curve.name, {}, {}};
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (!std::isfinite(curve.y[i])) continue;
    kept.x.push_back(curve.x[i]);
    kept.y.push_back(curve.y[i]);
  }
  return kept;
}

// At most kMostPoints, each the mean of its neighbours.
Curve Thinned(const Curve& curve) {
  const size_t group = (curve.x.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return curve;
  Curve thin{curve.name, {}, {}};
  for (size_t first = 0; first < curve.x.size(); first += group) {
    const size_t last = std::min(first + group, curve.x.size());
    double x = 0, y = 0;
    for (size_t i = first; i < last; ++i) x += curve.x[i], y += curve.y[i];
    thin.x.push_back(x / static_cast<double>(last - first));
    thin.y.push_back(y / static_cast<double>(last - first));
  }
  return thin;
}

Curve Smoothed(const Curve& curve) {
  const double reach = std::max(1.0, kSmoothing * static_cast<double>(curve.x.size()));
  Curve smooth = curve;
  double mean = 0, weight = 0;
  for (double& y : smooth.y) {
    mean += (y - mean) * std::max(1 / reach, 1 / (weight + 1));
    weight += 1;
    y = mean;
  }
  return smooth;
}

class Plot {
 public:
  Plot(Pen& pen, Span x, Span y) : pen_(pen), x_(x), y_(y) {}

  void Axes(const std::string& unit) {
    const double step = Tick(y_.size(), 6);
    for (double value = std::ceil(y_.low / step) * step; value <= y_.high + step / 1e6; value += step) {
      pen_.Line(kLeft, Y(value), kRight, Y(value), {kGrid, 1});
      Label(fmt::format("{:.6g}", std::round(value / step) * step), kLeft - 10, Y(value) - 8, Align::kRight);
    }
    const double across = std::max(1.0, Tick(std::max(x_.size(), 1.0), 8));
    for (double value = std::ceil(x_.low / across) * across; value <= x_.high; value += across) {
      pen_.Line(X(value), kTop + kHeight, X(value), kTop + kHeight + 5, {kQuiet, 1});
      Label(fmt::format("{:.0f}", value), X(value), kTop + kHeight + 10, Align::kCenter);
    }
    pen_.Line(kLeft, kTop + kHeight, kRight, kTop + kHeight, {kQuiet, 1});
    Label("step", kRight, kTop + kHeight + 34, Align::kRight);
    Label(unit, kLeft, kTop - 26, Align::kLeft);
  }

  void Polyline(const Curve& curve, const Stroke& stroke) {
    for (size_t i = 1; i < curve.x.size(); ++i) {
      pen_.Line(X(curve.x[i - 1]), Y(curve.y[i - 1]), X(curve.x[i]), Y(curve.y[i]), stroke);
    }
  }

  void Points(const Curve& curve, Rgb color) {
    constexpr double kSize = 6;
    for (size_t i = 0; i < curve.x.size(); ++i) {
      pen_.Fill(X(curve.x[i]) - kSize / 2, Y(curve.y[i]) - kSize / 2, kSize, kSize, color);
    }
  }

 private:
  double X(double value) const {
    return kLeft + (x_.size() > 0 ? (value - x_.low) / x_.size() : 0.5) * (kRight - kLeft);
  }
  double Y(double value) const {
    return kTop + kHeight - (y_.size() > 0 ? (value - y_.low) / y_.size() : 0.5) * kHeight;
  }
  void Label(const std::string& text, double x, double y, Align align) {
    pen_.Text(text, x, y, {.size = 12, .color = kQuiet, .align = align});
  }

  Pen& pen_;
  Span x_, y_;
};

// Names and last values, from the right.
void Legend(Pen& pen, const Curve& train, const Curve& validation) {
  double right = kRight;
  for (const auto& [curve, color] : {std::pair{&validation, kValidation}, std::pair{&train, kTrain}}) {
    if (curve->y.empty()) continue;
    const TextStyle style{.size = 13, .color = color, .align = Align::kRight, .weight = Weight::kBold};
    const std::string text = fmt::format("{} {:.3f}", curve->name, curve->y.back());
    pen.Text(text, right, kTop - 28, style);
    right -= pen.Measure(text, style).width + 24;
  }
}

double DrawLoss(Pen& pen, const LossPicture& picture) {
  const Curve train = Thinned(Finite(picture.train)), smooth = Smoothed(train), validation = Finite(picture.validation);
  pen.Text(picture.title, kMargin, 28,
           {.size = 17, .color = kInk, .weight = Weight::kBold, .max_width = kPaperWidth - 2 * kMargin});
  Span x, y;
  for (const Curve* curve : {&train, &validation}) {
    for (const double value : curve->x) x.Add(value);
    for (const double value : curve->y) y.Add(value);
  }
  if (x.empty()) {
    pen.Text("no losses yet", kMargin, kTop, {.size = 13, .color = kQuiet});
    return kTop + kBottom;
  }
  x.Add(0);
  if (y.size() == 0) y.low -= 0.5, y.high += 0.5;
  Plot plot(pen, x, y);
  plot.Axes(picture.unit);
  plot.Polyline(train, {kTrain, 1, 0.3});
  plot.Polyline(smooth, {kTrain, 2.5});
  plot.Polyline(validation, {kValidation, 1.5, 0.6});
  plot.Points(validation, kValidation);
  Legend(pen, smooth, validation);
  return kTop + kHeight + kBottom;
}

}  // namespace

std::string WriteLossPicture(const LossPicture& picture, const std::filesystem::path& file) {
  return WritePaper([&](Pen& pen) { return DrawLoss(pen, picture); }, file);
}

}  // namespace qkv::view
