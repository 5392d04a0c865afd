// What a model file holds, as text for a reader: `qkv inspect FILE`.
#pragma once

#include <filesystem>
#include <string>

namespace qkv {

// Metadata, then a table of the tensors as they lie in the file: name, type, shape, size; then totals. A model
// directory shows all its files. The same text for the same file, always; control characters are escaped.
// Error{kFile}: missing, damaged, or of a kind that is not known.
std::string InspectFile(const std::filesystem::path& path);

}  // namespace qkv
