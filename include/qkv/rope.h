// Rotary position embeddings: pairs of channels of q and k turn by an angle that grows with the token's
// position, so that q . k depends on how far apart two tokens stand (Su et al. 2021, RoFormer, section 3.2,
// https://arxiv.org/abs/2104.09864).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// Which channels make pair i of the first R channels of a head; a model file fits one of the two only.
// With D = R = 4, position 1, frequencies 1 and 0.01, x = (1, 0, 0, 0):
//   kHalf      (i, i + R/2)     -> (.540, 0, .841, 0)    safetensors of Llama and its kin
//   kAdjacent  (2i, 2i + 1)     -> (.540, .841, 0, 0)    their GGUF files; the paper; ONNX's `interleaved`
enum class RopePairing { kHalf, kAdjacent };

// Ways to stretch the frequencies for texts longer than a model was first trained on, as configs state them.

// Every frequency / factor (Chen et al. 2023, https://arxiv.org/abs/2306.15595).
struct LinearRope {
  double factor = 1;
};
// base * factor^(R / (R - 2)): the slowest pair as linear, the fastest unchanged ("NTK-aware": Peng et al.
// 2023, https://arxiv.org/abs/2309.00071).
struct NtkRope {
  double factor = 1;
};
// The same, growing with the text: factor * length / trained_length - (factor - 1) in place of factor, and
// nothing while length <= trained_length ("dynamic": the same paper, as configs' `dynamic` has it).
struct DynamicNtkRope {
  double factor = 1;
  int64_t trained_length = 0;
  int64_t length = 0;  // tokens of the text
};
// Slow pairs as linear, fast pairs unchanged, a ramp between those that turn beta_slow and beta_fast times in
// trained_length tokens; cos and sin times an amplitude (YaRN: the same paper).
struct YarnRope {
  // The ramp's ends rounded outwards to whole pairs, as the paper's code has it, or not.
  enum class Ramp { kWholePairs, kExact };
  double factor = 1;
  int64_t trained_length = 0;
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> amplitude = {};  // default 0.1 ln(factor) + 1, or the ratio of the next two
  std::optional<double> mscale = {}, mscale_all_dim = {};  // (0.1 m ln(factor) + 1) of both: DeepSeek's configs
  Ramp ramp = Ramp::kWholePairs;
};
// Wavelengths over trained_length / low_factor as linear, under trained_length / high_factor unchanged, smooth
// between (Llama 3.1, as its published code scales them).
struct Llama3Rope {
  double factor = 1, low_factor = 1, high_factor = 4;
  int64_t trained_length = 0;
};

struct RopeConfig {
  int64_t rotary_dim = 0;  // R: how many of a head's channels turn, from the first; even
  double base = 10000;     // pair i turns base^(-2i / R) radians a token
  std::variant<std::monostate, LinearRope, NtkRope, DynamicNtkRope, YarnRope, Llama3Rope> scaling = {};
};

// What a config comes to: R/2 angles a token, in radians, and what cos and sin are multiplied with.
// A model that states its frequencies itself fills this in.
struct RopeFrequencies {
  std::vector<double> frequencies;
  double amplitude = 1;
};

// Error{kInvalidArgument}: R odd or under 2 (NTK: under 4), a base, factor, length or beta that is not
// positive, bounds that contradict.
QKV_API RopeFrequencies MakeRopeFrequencies(const RopeConfig& config);

// cos and sin, times the amplitude, of position * frequency: (positions, R/2). The angles are exact to double
// precision, so position 1,000,000 is as good as position 1; float32 angles would be off by 0.03 radians there.
struct RopeTable {
  std::vector<float> cos, sin;
  Shape shape;
};
// Error{kInvalidArgument}: a position over 2^53 either way, an amplitude or frequency that is not finite.
QKV_API RopeTable MakeRopeTable(const RopeFrequencies& frequencies, std::span<const int64_t> positions);

struct RopeOptions {
  RopePairing pairing = RopePairing::kHalf;
  std::optional<ConstTensor> positions = {};  // int64, broadcasts to (B, T): where each token stands
  // Else token t stands at t + offset: one, or one per sequence.
  std::optional<std::vector<int64_t>> offset = {};
};

// out = x with its first R channels turned, the others copied. x, out (B, H, T, D), float32, bfloat16 or
// float16, any strides; computed in float32. out may be x itself; else they may not overlap. A packed batch
// (total, H, D) is (1, H, total, D) with strides, and `positions` (1, total). The gradient, and the way back,
// is the same call with every frequency (or `sin`) negated. Errors: kInvalidArgument or kWrongType naming the
// argument, before anything is written; kOutOfMemory.
QKV_API void RotaryEmbed(const ConstTensor& x, const RopeFrequencies& frequencies, const RopeOptions& options,
                         const Tensor& out);

// The same from tables of cos and sin, float32 or x's type: (rows, R/2), of which a token takes the row of its
// position, or (B, T, R/2), a row for each token, without positions and offset.
QKV_API void RotaryEmbed(const ConstTensor& x, const ConstTensor& cos, const ConstTensor& sin,
                         const RopeOptions& options, const Tensor& out);

}  // namespace qkv
