#include "formats/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "formats/gguf_text.h"
#include "formats/safetensors.h"
#include "formats/tensor_files.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

constexpr size_t kMaxCell = 100;  // bytes of a name or shape; longer ones are cut

// "512 B", "1.5 KiB", "44.7 MiB"
std::string Size(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (size >= 1023.95 && unit + 1 < std::size(kUnits)) {  // what would print as 1024.0
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string Count(size_t number, const char* one) {
  return fmt::format("{} {}{}", Grouped(number), one, number == 1 ? "" : "s");
}

struct Totals {
  uint64_t tensors = 0, elements = 0, bytes = 0;
  std::map<std::string, uint64_t> types;
  bool quantised = false;

  void Add(const TensorEntry& entry) {
    ++tensors;
    elements += static_cast<uint64_t>(entry.elements);
    bytes += entry.bytes.size();
    ++types[NameOf(entry.type)];
    quantised = quantised || IsQuantised(entry.type);
  }

  std::string Text() const {
    std::string kinds;
    for (const auto& [type, count] : types) {
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", Grouped(count), type);
    }
    return fmt::format("{}{}, {}, {}{}", Count(tensors, "tensor"), kinds.empty() ? "" : " (" + kinds + ")",
                       Count(elements, "element"), Size(bytes), BitsAnElement());
  }

  // Worth saying where elements are no whole number of bytes.
  std::string BitsAnElement() const {
    if (!quantised) return {};
    return fmt::format(", {:.2f} bits an element",
                       8 * static_cast<double>(bytes) / static_cast<double>(elements));
  }
};

using Pairs = std::vector<std::pair<std::string, std::string>>;  // keys and values, printable

Pairs PairsOf(const Safetensors& file) {
  Pairs pairs;
  for (const auto& [key, value] : file.metadata()) {
    pairs.emplace_back(Printable(key, kMaxCell), Printable(value));
  }
  return pairs;
}

Pairs PairsOf(const Gguf& file) {
  Pairs pairs;
  for (const auto& [key, value] : file.metadata().pairs()) {
    pairs.emplace_back(Printable(key, kMaxCell), ValueText(value));
  }
  return pairs;
}

std::string Metadata(const Pairs& pairs) {
  if (pairs.empty()) return {};
  size_t width = 0;
  for (const auto& [key, value] : pairs) width = std::max(width, key.size());
  std::string text = "\nmetadata\n";
  for (const auto& [key, value] : pairs) text += fmt::format("  {:<{}}  {}\n", key, width, value);
  return text;
}

// Columns as wide as their widest cell in bytes, which no cell exceeds on the screen; sizes stand right.
std::string Table(std::span<const TensorEntry> entries) {
  struct Row {
    std::string name, type, shape, size;
  };
  std::vector<Row> rows{{"name", "type", "shape", "size"}};
  for (const TensorEntry& entry : entries) {
    rows.push_back({Printable(entry.name, kMaxCell), NameOf(entry.type),
                    Printable(ShapeText(entry.shape), kMaxCell), Size(entry.bytes.size())});
  }
  const auto width = [&](std::string Row::*cell) {
    size_t widest = 0;
    for (const Row& row : rows) widest = std::max(widest, (row.*cell).size());
    return widest;
  };
  const size_t name = width(&Row::name), type = width(&Row::type), shape = width(&Row::shape);
  const size_t size = width(&Row::size);
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}\n", row.name, name, row.type, type, row.shape, shape,
                        row.size, size);
  }
  return text;
}

std::string KindOf(const Safetensors&) { return "safetensors"; }
std::string KindOf(const Gguf& file) { return "GGUF version " + std::to_string(file.version()); }

template <class File>
std::string Section(const File& file, Totals& totals) {
  Totals own;
  for (const TensorEntry& entry : file.entries()) {
    own.Add(entry);
    totals.Add(entry);
  }
  std::string text =
      fmt::format("{}: {}, {}\n", Printable(file.path().string(), 4096), KindOf(file), own.Text());
  text += Metadata(PairsOf(file));
  if (!file.entries().empty()) text += "\n" + Table(file.entries());
  return text;
}

template <class File>
std::string Sections(std::span<const File> files) {
  Totals totals;
  std::string text;
  for (const File& file : files) text += (text.empty() ? "" : "\n") + Section(file, totals);
  if (files.size() > 1) {
    text += fmt::format("\nin all: {}, {}\n", Count(files.size(), "file"), totals.Text());
  }
  return text;
}

std::string InspectSafetensors(const std::filesystem::path& path) {
  const TensorFiles model(path);
  return Sections(model.files());
}

std::string InspectGguf(const std::vector<std::filesystem::path>& paths) {
  const std::vector<Gguf> files(paths.begin(), paths.end());
  return Sections(std::span(files));
}

}  // namespace

std::string InspectFile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::vector<std::filesystem::path> gguf = GgufFilesIn(path);
    return gguf.empty() ? InspectSafetensors(path) : InspectGguf(gguf);
  }
  const FileKind kind = DetectKind(MappedFile(path).bytes());
  // A damaged file that calls itself by its kind gets the parser's error, which says what is wrong with it.
  if (kind == FileKind::kSafetensors || path.extension() == ".safetensors") return InspectSafetensors(path);
  if (kind == FileKind::kGguf || path.extension() == ".gguf") return InspectGguf({path});
  throw Error(ErrorCode::kFile, "cannot inspect this kind of file", path.string(),
              std::string(Describe(FileKind::kSafetensors)) + " or " + Describe(FileKind::kGguf),
              Describe(kind));
}

}  // namespace qkv
