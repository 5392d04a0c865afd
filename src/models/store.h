// Where models live on this machine, and which ones scripts/models can fetch: known_models.tsv.
#pragma once

#include <filesystem>
#include <string>

namespace qkv {

// What to load for a known model's name or a path.
// Error{kInvalidArgument}: a known model that is absent or incomplete, and how to get it; a bare word that is
// neither a known name nor a path. Error{kFile}: a path that is not there.
std::filesystem::path FindModel(const std::string& name_or_path);

}  // namespace qkv
