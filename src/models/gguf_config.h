// A causal model's settings as GGUF files have them: keys behind the architecture's name, "llama.block_count".
#pragma once

#include <string>

#include "formats/config.h"
#include "models/causal_config.h"
#include "models/causal_tensors.h"

namespace qkv {

// `all` is the file's metadata (GgufMetadata::Settings). Error{kFile} naming the key or tensor that is missing, out of
// range or not supported; a model in several files is refused.
std::string GgufArchitecture(const JsonObject& all);
CausalTensors GgufTensors(const JsonObject& all, CausalTensors::Find find, std::string where);
CausalConfig ReadGgufConfig(const JsonObject& all, const CausalTensors& tensors);

}  // namespace qkv
