// The tensors of a causal model, found by what they are for: names differ from family to family and from format to
// format, what they hold does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_files.h"

namespace qkv {

// How a file names its tensors: modules, to which ".weight" or ".bias" is added; a layer's have {} for its number.
// An empty name: the family has no such module.
struct CausalNames {
  const char* prefix = "";  // of every name but `output`, left out in files that hold the layers alone
  const char *embeddings = "", *positions = "", *final_norm = "", *output = "";
  const char *attention_norm = "", *q = "", *k = "", *v = "", *qkv = "", *q_norm = "", *k_norm = "";
  const char *attention_output = "", *feed_forward_norm = "", *gate = "", *up = "", *down = "";
  enum class Rows { kOutputs, kInputs } rows = Rows::kOutputs;  // of layers' matrices; kInputs: transposed
};

extern const CausalNames kLlamaNames, kGpt2Names;          // transformers' classes
extern const CausalNames kGgufLlamaNames, kGgufGpt2Names;  // llama.cpp's

// Rows of a matrix among those that share a multiply.
struct NamedPart {
  std::string module;
  int64_t outputs;
};

class CausalTensors {
 public:
  using Find = std::function<const TensorEntry*(std::string_view)>;

  // `where` names the file or folder in errors. `find` keeps alive what its entries point into.
  CausalTensors(const CausalNames& names, Find find, std::string where);

  const CausalNames& names() const { return names_; }
  const std::string& where() const { return where_; }

  // A module's name in the file; `layer` counts from 0.
  std::string Module(const char* name) const;
  std::string Module(const char* name, int64_t layer) const;

  const TensorEntry* Entry(const std::string& tensor) const { return find_(tensor); }  // nullptr where there is none
  bool Has(const std::string& tensor) const { return Entry(tensor) != nullptr; }
  // Error{kFile} naming file and tensor: missing, another shape, and for floats another type.
  // Error{kFile} where there is a layer beyond those that the configuration gives.
  void CheckLayers(int64_t layers) const;
  const TensorEntry& Require(const std::string& tensor, const std::vector<int64_t>& shape) const;
  Floats RequireFloats(const std::string& tensor, const std::vector<int64_t>& shape) const;

 private:
  CausalNames names_;
  Find find_;
  std::string where_;
  std::string prefix_;
};

}  // namespace qkv
