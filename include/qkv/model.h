// Models read from files: what they compute, and what their heads attend to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/capture.h"
#include "qkv/explanation.h"
#include "qkv/export.h"
#include "qkv/layers.h"
#include "qkv/progress.h"
#include "qkv/rope.h"
#include "qkv/tensor.h"
#include "qkv/tokenizer.h"

namespace qkv {

// How a model knows where a token stands: by a table with a row for each of max_tokens positions, beyond which it has
// none, or by turning queries and keys, which works for any position.
enum class Positions { kLearned, kRotary };

struct ModelInfo {
  std::string name;          // as the user named it
  std::string architecture;  // "bert", "llama", "gpt2", ...
  int64_t layers = 0, heads = 0, kv_heads = 0, width = 0, vocab = 0;
  int64_t max_tokens = 0;  // positions that the model knows
  Positions positions = Positions::kLearned;
  int64_t parameters = 0;
  bool causal = false;
  std::vector<int64_t> end_ids;  // tokens that end a text, where the model is causal
  std::string chat_template;     // the program (Jinja) that its files carry, where they do
};

// Texts longer than a model was trained for: refused, or looked at where its positions allow it (rotary ones
// do).
enum class LengthRule { kTrained, kAny };

// What to capture: empty lists mean all of them. Indexes count from 0.
struct LookRequest {
  std::vector<int64_t> layers, heads, queries;
  int64_t top_k = 0;  // 0: full rows
  LengthRule length = LengthRule::kTrained;
  Progress progress;
};

// What stands before the projections in layers that normalise first: input = the norm of hidden.
struct OpenNorm {
  ExplainedNorm kind = ExplainedNorm::kRms;
  float epsilon = 0;
  std::vector<float> hidden;       // (T, d_in)
  std::vector<float> gain, shift;  // (d_in); shift empty: zeros
};

// RMS norms of each head's q and k, before they turn.
struct OpenHeadNorms {
  std::vector<float> q, k;  // gains, (d_k)
  float epsilon = 0;
};

// How q and k turn: cos and sin (T, R / 2), a row for each token.
struct OpenRope {
  RopePairing pairing = RopePairing::kHalf;
  RopeTable table;
};

// One attention layer laid open: what comes in for a text, and the parameters that it meets. Beyond what
// MultiHeadAttention knows, decoders have the optional parts.
struct OpenLayer {
  std::string model;                // its name or path; empty: none, random parameters
  int64_t layer = 0;                // counts from 0
  std::vector<std::string> tokens;  // labels, one for each row of the input
  MultiHeadConfig config;
  MultiHeadParameters parameters;
  std::vector<float> input;  // (T, d_in), as the projections get it
  std::optional<OpenNorm> norm;
  std::optional<OpenHeadNorms> head_norms;
  std::optional<OpenRope> rope;
  std::optional<float> scale;     // of scores; none: 1 / sqrt(d_k)
  std::optional<int64_t> window;  // a token sees so many, itself among them; none: all
  uint64_t seed = 0;              // of random parameters
};

// Const after loading and usable from many threads at once.
class QKV_API Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;

  // Last hidden states (B, T, C), row-major, of B sequences of T ids each (ids: B * T); `lengths` (B), where
  // given, says how many of each sequence's ids are real. Rows past a length are written, but mean nothing.
  // Error{kInvalidArgument}: an id outside the vocabulary, T = 0, T > max_tokens.
  virtual std::vector<float> Forward(const std::vector<int64_t>& ids, int64_t batch,
                                     const std::vector<int64_t>* lengths = nullptr,
                                     const Progress& progress = {}) const = 0;

  // The attention weights of one sequence. `hidden`, where given, receives its last hidden states (T, C).
  // Errors as Forward's; kInvalidArgument: a layer, head or query out of range; kFile: weights that are NaN (damage).
  virtual ModelCapture Look(const Encoding& text, const LookRequest& request,
                            std::vector<float>* hidden = nullptr) const = 0;

  // One sequence's hidden states on their way, (L + 1, T, C): the embeddings, then what each layer makes of
  // them, the last of them as Forward's. Errors as Forward's.
  virtual std::vector<float> Layers(const std::vector<int64_t>& ids, const Progress& progress = {}) const = 0;

  // A layer's input for this text and a copy of its parameters, in float32 (what files hold quantised, made
  // float32). Errors as Look's.
  virtual OpenLayer Open(const Encoding& text, int64_t layer) const = 0;
};

struct ModelOptions {
  // What parameters and activations are kept and multiplied in: kF32 or kBF16. bfloat16 halves the memory and
  // is several times faster where the machine has instructions for it; sums, norms and softmax stay float32.
  // None: float32; matrices that the file holds quantised stay so in memory, decoding multiplies with them as
  // they are, and prompts in bfloat16.
  std::optional<DType> dtype = {};
};

// A model directory (config.json, model.safetensors, tokenizer files), a GGUF file or a folder with one, or an installed
// model's name.
// Error{kInvalidArgument}: no such name, and how to get it, another dtype; kFile: what is missing, damaged or
// unsupported, by name.
QKV_API std::unique_ptr<const Model> LoadModel(const std::string& name_or_path,
                                               const ModelOptions& options = {});

// Models that are known by name, present or not. `make models` installs them in $QKV_MODELS, else
// $XDG_DATA_HOME/qkv/models, else ~/.local/share/qkv/models; those that ship with qkv are in share/qkv/models
// beside it.
struct KnownModel {
  std::string name, description, licence, checksum;  // SHA-256 of its weights file
  std::filesystem::path path;                        // where it is or would be
  bool installed = false;
  bool ships = false;
};
QKV_API std::vector<KnownModel> KnownModels();
QKV_API std::filesystem::path ModelsFolder();
inline constexpr std::string_view kDefaultModel = "minilm";

// What a model is wanted for: only causal ones can generate.
enum class ModelUse { kLook, kGenerate };

// The model for those who name none: the first of minilm (not for kGenerate) and smollm2 that is installed,
// else tiny, which ships with qkv. Where that is missing, too: the first one, which LoadModel says how to get.
QKV_API std::string DefaultModel(ModelUse use);

}  // namespace qkv
