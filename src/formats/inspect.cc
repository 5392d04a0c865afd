#include "formats/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <system_error>
#include <vector>

#include "formats/file_kind.h"
#include "formats/safetensors.h"
#include "formats/tensor_files.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

constexpr size_t kMaxCell = 100;  // bytes of a name or shape; longer ones are cut

// "1,234,567"
std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

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

  void Add(const TensorEntry& entry) {
    ++tensors;
    elements += static_cast<uint64_t>(entry.elements);
    bytes += entry.bytes.size();
    ++types[NameOf(entry.type)];
  }

  std::string Text() const {
    std::string kinds;
    for (const auto& [type, count] : types) {
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", Grouped(count), type);
    }
    return fmt::format("{}{}, {}, {}", Count(tensors, "tensor"), kinds.empty() ? "" : " (" + kinds + ")",
                       Count(elements, "element"), Size(bytes));
  }
};

std::string Metadata(const std::map<std::string, std::string>& metadata) {
  if (metadata.empty()) return {};
  std::string text = "\nmetadata\n";
  for (const auto& [key, value] : metadata) {
    text += fmt::format("  {}: {}\n", Printable(key, kMaxCell), Printable(value));
  }
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

std::string Section(const Safetensors& file, Totals& totals) {
  Totals own;
  for (const TensorEntry& entry : file.entries()) {
    own.Add(entry);
    totals.Add(entry);
  }
  std::string text = fmt::format("{}: safetensors, {}\n", Printable(file.path().string(), 4096), own.Text());
  text += Metadata(file.metadata());
  if (!file.entries().empty()) text += "\n" + Table(file.entries());
  return text;
}

std::string InspectSafetensors(const std::filesystem::path& path) {
  const TensorFiles model(path);
  Totals totals;
  std::string text;
  for (const Safetensors& file : model.files()) text += (text.empty() ? "" : "\n") + Section(file, totals);
  if (model.files().size() > 1) {
    text += fmt::format("\nin all: {}, {}\n", Count(model.files().size(), "file"), totals.Text());
  }
  return text;
}

}  // namespace

std::string InspectFile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return InspectSafetensors(path);
  const FileKind kind = DetectKind(MappedFile(path).bytes());
  // A damaged file that calls itself safetensors gets the parser's error, which says what is wrong with it.
  if (kind == FileKind::kSafetensors || path.extension() == ".safetensors") return InspectSafetensors(path);
  throw Error(ErrorCode::kFile, "cannot inspect this kind of file", path.string(),
              Describe(FileKind::kSafetensors), Describe(kind));
}

}  // namespace qkv
