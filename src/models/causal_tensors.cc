#include "models/causal_tensors.h"

#include <utility>

#include "models/layer_count.h"
#include "qkv/error.h"

namespace qkv {

const CausalNames kLlamaNames{
    .prefix = "model.",
    .embeddings = "embed_tokens",
    .final_norm = "norm",
    .output = "lm_head",
    .attention_norm = "layers.{}.input_layernorm",
    .q = "layers.{}.self_attn.q_proj",
    .k = "layers.{}.self_attn.k_proj",
    .v = "layers.{}.self_attn.v_proj",
    .q_norm = "layers.{}.self_attn.q_norm",
    .k_norm = "layers.{}.self_attn.k_norm",
    .attention_output = "layers.{}.self_attn.o_proj",
    .feed_forward_norm = "layers.{}.post_attention_layernorm",
    .gate = "layers.{}.mlp.gate_proj",
    .up = "layers.{}.mlp.up_proj",
    .down = "layers.{}.mlp.down_proj",
};

const CausalNames kGpt2Names{
    .prefix = "transformer.",
    .embeddings = "wte",
    .positions = "wpe",
    .final_norm = "ln_f",
    .output = "lm_head",
    .attention_norm = "h.{}.ln_1",
    .qkv = "h.{}.attn.c_attn",
    .attention_output = "h.{}.attn.c_proj",
    .feed_forward_norm = "h.{}.ln_2",
    .up = "h.{}.mlp.c_fc",
    .down = "h.{}.mlp.c_proj",
    .rows = CausalNames::Rows::kInputs,
};

namespace {

// What llama.cpp names the same in every family.
CausalNames GgufNames() {
  return {
      .embeddings = "token_embd",
      .final_norm = "output_norm",
      .output = "output",
      .attention_norm = "blk.{}.attn_norm",
      .attention_output = "blk.{}.attn_output",
      .feed_forward_norm = "blk.{}.ffn_norm",
      .up = "blk.{}.ffn_up",
      .down = "blk.{}.ffn_down",
  };
}

CausalNames GgufLlamaNames() {
  CausalNames names = GgufNames();
  names.q = "blk.{}.attn_q";
  names.k = "blk.{}.attn_k";
  names.v = "blk.{}.attn_v";
  names.q_norm = "blk.{}.attn_q_norm";
  names.k_norm = "blk.{}.attn_k_norm";
  names.gate = "blk.{}.ffn_gate";
  return names;
}

CausalNames GgufGpt2Names() {
  CausalNames names = GgufNames();
  names.positions = "position_embd";
  names.qkv = "blk.{}.attn_qkv";
  return names;
}

}  // namespace

const CausalNames kGgufLlamaNames = GgufLlamaNames();
const CausalNames kGgufGpt2Names = GgufGpt2Names();

CausalTensors::CausalTensors(const CausalNames& names, Find find, std::string where)
    : names_(names), find_(std::move(find)), where_(std::move(where)), prefix_(names.prefix) {
  const std::string bare = std::string(names.embeddings) + ".weight";
  if (find_(bare) != nullptr && find_(prefix_ + bare) == nullptr) prefix_.clear();
}

std::string CausalTensors::Module(const char* name) const {
  return name == names_.output ? name : prefix_ + name;
}

std::string CausalTensors::Module(const char* name, int64_t layer) const {
  std::string module = prefix_ + name;
  const size_t place = module.find("{}");
  return module.replace(place, 2, std::to_string(layer));
}

const TensorEntry& CausalTensors::Require(const std::string& tensor, const std::vector<int64_t>& shape) const {
  const TensorEntry* entry = find_(tensor);
  const std::string place = where_ + ", tensor " + tensor;
  if (entry == nullptr) throw Error(ErrorCode::kFile, "no such tensor", place);
  if (entry->shape != shape) {
    throw Error(ErrorCode::kFile, "wrong shape", place, ShapeText(shape), ShapeText(entry->shape));
  }
  return *entry;
}

void CausalTensors::CheckLayers(int64_t layers) const {
  const auto name = [&](int64_t layer) { return Module(names_.attention_norm, layer) + ".weight"; };
  RefuseMoreLayers([&](int64_t layer) { return Has(name(layer)); }, layers, where_ + ", tensor " + name(layers));
}

Floats CausalTensors::RequireFloats(const std::string& tensor, const std::vector<int64_t>& shape) const {
  return FloatsOf(Require(tensor, shape), shape, where_);
}

}  // namespace qkv
