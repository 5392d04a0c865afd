#include "models/store.h"

#include <dlfcn.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "models/known_models.h"
#include "qkv/error.h"
#include "qkv/model.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Rows of one kind of the table that the build took from known_models.tsv, without the kind.
template <size_t N>
std::vector<std::array<std::string_view, N>> Rows(std::string_view kind) {
  std::vector<std::array<std::string_view, N>> rows;
  for (std::string_view line : Split(kKnownModelsTable, '\n')) {
    const std::vector<std::string_view> fields = Split(line, '\t');
    if (fields.front() != kind || fields.size() != N + 1) continue;
    std::copy(fields.begin() + 1, fields.end(), rows.emplace_back().begin());
  }
  return rows;
}

fs::path HomeFolder() {
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return home;
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? user->pw_dir : "/";
}

// Beside the program or library that this code is in, wherever that was moved to: share/qkv/models in the
// nearest of the folders above it, PREFIX for PREFIX/bin/qkv, PREFIX/lib/libqkv.so and
// PREFIX/lib/ARCHITECTURE/libqkv.so.
fs::path ShippedFolder() {
  constexpr int kFoldersAbove = 3;
  Dl_info own{};
  std::error_code failed;
  if (dladdr(reinterpret_cast<const void*>(&ShippedFolder), &own) == 0) return {};
  // A program's own name is what it was called by, perhaps without a folder.
  fs::path file =
      fs::path(own.dli_fname).has_parent_path() ? fs::path(own.dli_fname) : fs::path("/proc/self/exe");
  fs::path above = fs::canonical(file, failed).parent_path();
  const fs::path first = above / "share/qkv/models";
  for (int i = 0; i < kFoldersAbove; ++i, above = above.parent_path()) {
    if (fs::is_directory(above / "share/qkv/models", failed)) return above / "share/qkv/models";
  }
  return first;
}

bool HasSize(const fs::path& path, std::string_view bytes) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  return !failed && std::to_string(size) == bytes;
}

std::string KnownNames() {
  std::string names;
  for (const KnownModel& model : KnownModels()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace

fs::path ModelsFolder() {
  const char* chosen = std::getenv("QKV_MODELS");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* data = std::getenv("XDG_DATA_HOME");  // the specification says to ignore a relative one
  const fs::path base = data != nullptr && *data == '/' ? fs::path(data) : HomeFolder() / ".local" / "share";
  return base / "qkv" / "models";
}

std::vector<KnownModel> KnownModels() {
  const fs::path folder = ModelsFolder();
  const auto files = Rows<5>("file");
  std::vector<KnownModel> models;
  for (const auto& [name, package, version, package_checksum, licence, path, weights, description] :
       Rows<8>("model")) {
    KnownModel& model = models.emplace_back();
    model = {std::string(name), std::string(description), std::string(licence), {}, folder / path, true, false};
    for (const auto& [owner, file, member, bytes, checksum] : files) {
      if (owner != name) continue;
      if (file == weights) model.checksum = checksum;
      model.installed = model.installed && HasSize(folder / file, bytes);
    }
  }
  for (const auto& [name, weights, bytes, checksum, licence, description] : Rows<6>("shipped")) {
    const fs::path path = ShippedFolder() / name;
    models.push_back({std::string(name), std::string(description), std::string(licence), std::string(checksum),
                      path, HasSize(path / weights, bytes), true});
  }
  return models;
}

std::string DefaultModel(ModelUse use) {
  const std::vector<std::string> wanted =
      use == ModelUse::kLook ? std::vector<std::string>{std::string(kDefaultModel), "smollm2", "tiny"}
                             : std::vector<std::string>{"smollm2", "tiny"};
  const std::vector<KnownModel> models = KnownModels();
  for (const std::string& name : wanted) {
    const auto found =
        std::find_if(models.begin(), models.end(), [&](const auto& m) { return m.name == name; });
    if (found != models.end() && found->installed) return name;
  }
  return wanted.front();
}

fs::path FindModel(const std::string& name_or_path) {
  for (const KnownModel& model : KnownModels()) {
    if (model.name != name_or_path) continue;
    if (model.installed) return model.path;
    if (model.ships) {
      throw Error(ErrorCode::kInvalidArgument, "the model ships with qkv but is not where it should be",
                  model.name, model.path.string());
    }
    throw Error(ErrorCode::kInvalidArgument,
                "the model is not installed in " + ModelsFolder().string() +
                    "; get it with `make models` or `scripts/models " + model.name + "`",
                model.name);
  }
  std::error_code failed;
  if (fs::exists(name_or_path, failed)) return name_or_path;
  if (name_or_path.find('/') != std::string::npos || failed) {
    throw Error(ErrorCode::kFile, "no such file or folder", name_or_path);
  }
  throw Error(ErrorCode::kInvalidArgument, "no such model", name_or_path, "a path or one of " + KnownNames());
}

}  // namespace qkv
