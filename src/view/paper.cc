#include "view/paper.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <system_error>
#include <thread>

#include "qkv/error.h"
#include "runtime/write_file.h"

namespace qkv::view {
namespace {

namespace fs = std::filesystem;

enum class Format { kPng, kSvg, kPdf };

constexpr double kPixelsAPoint = 2;  // of a PNG: sharp on dense screens and in print

struct Destroy {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;

void Check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  const bool memory = status == CAIRO_STATUS_NO_MEMORY;
  throw Error(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal,
              std::string("cannot draw the figure: ") + cairo_status_to_string(status));
}

Format FormatOf(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (ending == ".png") return Format::kPng;
  if (ending == ".svg") return Format::kSvg;
  if (ending == ".pdf") return Format::kPdf;
  throw Error(ErrorCode::kInvalidArgument, "unknown kind of figure", file.string(), ".png, .svg or .pdf",
              ending);
}

cairo_status_t Append(void* bytes, const unsigned char* data, unsigned int size) noexcept {
  try {
    static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), size);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

Surface SurfaceFor(Format format, double height, std::string& bytes) {
  switch (format) {
    case Format::kPng: {
      Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                                 static_cast<int>(kPaperWidth * kPixelsAPoint),
                                                 static_cast<int>(std::ceil(height * kPixelsAPoint))));
      cairo_surface_set_device_scale(surface.get(), kPixelsAPoint, kPixelsAPoint);
      return surface;
    }
    case Format::kSvg:
      return Surface(cairo_svg_surface_create_for_stream(Append, &bytes, kPaperWidth, height));
    case Format::kPdf: break;
  }
  Surface surface(cairo_pdf_surface_create_for_stream(Append, &bytes, kPaperWidth, height));
  // Cairo would write the time of day: the same capture gives the same bytes.
  cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, "1970-01-01T00:00:00Z");
  return surface;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Cairo numbers the things in an SVG by a counter of the whole process (id="surface8", "#image12"). They are
// numbered anew in order of appearance: the same capture gives the same bytes.
std::string Renumbered(const std::string& svg) {
  static constexpr std::array<std::string_view, 4> kNames = {"surface", "image", "mask", "source-"};
  std::map<std::string, size_t> numbers;
  std::string out;
  out.reserve(svg.size());
  for (size_t at = 0; at < svg.size();) {
    const bool before = at > 0 && (svg[at - 1] == '"' || svg[at - 1] == '#');
    const auto found = std::find_if(kNames.begin(), kNames.end(), [&](std::string_view name) {
      return before && svg.compare(at, name.size(), name) == 0 && IsDigit(svg[at + name.size()]);
    });
    if (found == kNames.end()) {
      out += svg[at++];
      continue;
    }
    size_t end = at + found->size();
    while (IsDigit(svg[end])) ++end;
    const size_t number = numbers.try_emplace(svg.substr(at, end - at), numbers.size()).first->second;
    out.append(*found).append(std::to_string(number));
    at = end;
  }
  return out;
}

// Pango's library ends the whole process where a thread or its memory is refused, so both are tried beforehand.
void ExpectRoom() {
  constexpr size_t kBytes = size_t{192} << 20;  // addresses: the stacks and heaps of two threads, fonts, pixels
  void* room =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "out of memory", "figure");
  munmap(room, kBytes);
  try {
    std::thread([] {}).join();
  } catch (const std::system_error&) {
    throw Error(ErrorCode::kOutOfMemory, "no thread can be started", "figure");
  }
}

double HeightOf(const Drawing& drawing) {
  Surface nothing(cairo_recording_surface_create(CAIRO_CONTENT_COLOR, nullptr));
  Pen pen(nothing.get());
  const double height = drawing(pen);
  Check(pen.status());
  return std::ceil(height);
}

struct Drawn {
  std::string bytes;
  int unknown_glyphs = 0;
};

Drawn Draw(const Drawing& drawing, Format format) {
  ExpectRoom();
  const double height = HeightOf(drawing);
  Drawn drawn;
  Surface surface = SurfaceFor(format, height, drawn.bytes);
  Check(cairo_surface_status(surface.get()));
  {
    Pen pen(surface.get());
    pen.Fill(0, 0, kPaperWidth, height, {255, 255, 255});
    drawing(pen);
    Check(pen.status());
    drawn.unknown_glyphs = pen.unknown_glyphs();
  }
  if (format == Format::kPng) Check(cairo_surface_write_to_png_stream(surface.get(), Append, &drawn.bytes));
  cairo_surface_finish(surface.get());
  Check(cairo_surface_status(surface.get()));
  if (format == Format::kSvg) drawn.bytes = Renumbered(drawn.bytes);
  return drawn;
}

}  // namespace

std::string WritePaper(const Drawing& drawing, const fs::path& file) {
  const Drawn drawn = Draw(drawing, FormatOf(file));
  WriteWholeFile(file, drawn.bytes);
  if (drawn.unknown_glyphs == 0) return {};
  return fmt::format("{}: no installed font has some characters of the text; they are drawn as boxes",
                     file.string());
}

void CheckPaper(const fs::path& file) { FormatOf(file); }

}  // namespace qkv::view
