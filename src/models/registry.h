// From a model's folder to the code that runs its family.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "formats/config.h"
#include "qkv/model.h"

namespace qkv {

struct ModelSource {
  std::string name;  // as the user named it
  std::filesystem::path folder;
  JsonObject config;  // its config.json
  ModelOptions options;
};

// One loader a family; registry.cc lists them by config.json's model_type.
std::unique_ptr<const Model> LoadBert(const ModelSource& source);
std::unique_ptr<const Model> LoadLlama(const ModelSource& source);  // and its kin
std::unique_ptr<const Model> LoadGpt2(const ModelSource& source);

std::unique_ptr<const Model> LoadGguf(const std::string& name, const std::filesystem::path& file,
                                      const ModelOptions& options);

}  // namespace qkv
