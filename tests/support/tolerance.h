// Every tolerance of the tests, with its reason. A test that needs another one names it here.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "qkv/tensor.h"

namespace qkv::test {

// Attention weights of a real model against transformers (eager, float32), absolute. A weight is at most 1, so
// its own rounding is 6e-8; scores of size 30, after six layers of float32 sums of 384 terms in another order,
// differ by up to about 1e-5, and a softmax passes on at most half of a score's difference.
inline constexpr double kModelWeights = 2e-5;

// Last hidden states of the same, absolute. They are of size 1 to 10 and leave a layer norm; differences of the
// attention and feed-forward sums add up over the layers.
inline constexpr double kModelHidden = 1e-4;
// Of causal models' logits, a handful of units large: float32 rounding grows to ten times that in
// the 30 layers of SmolLM2.
inline constexpr double kModelLogits = 1e-4;
inline constexpr double kSmolLm2Logits = 1e-3;
inline constexpr double kSmolLm2Weights = 1e-4;
// Of sentence embeddings, whose elements are at most 0.2: means of the hidden states above.
inline constexpr double kSentence = 1e-5;

// A step of an explained layer that gives no weights, relative to the step's largest magnitude: against float64 from the
// step before, and against transformers after as many layers as the model has.
inline constexpr double kExplainedStep = 1e-4;

// The same model in bfloat16 beside float32: the cosine of sentence embeddings, and attention weights, absolute. Each
// of six layers rounds its rows and its parameters to 8 bits; a score of size 10 is then off by up to some 0.05.
inline constexpr double kBFloat16Cosine = 0.9995;
inline constexpr double kBFloat16Weights = 0.03;

// One attention layer against another way to compute it, float32, absolute: outputs of size 1 to 5 are sums of
// at most 512 products in another order.
inline constexpr float kLayerOutput = 2e-5f;

// An activation's own error, absolute: polynomials for erf and tanh; in bfloat16 a shorter one, far below the type's
// rounding of the values that matter.
inline constexpr double kActivation = 5e-7;
inline constexpr double kActivationBFloat16 = 2e-5;

// ONNX's cases, relative. In float32 a hundred times closer than ONNX asks: its expected values are themselves
// float32 sums of a few dozen terms. In bfloat16 as ONNX's test runner has it: two units in the last place,
// since the expected values are rounded at every step.
inline constexpr double kOnnxFloat32 = 1e-5;
inline constexpr double kOnnxBFloat16 = 0x1p-6;

// RoPE's frequencies against transformers', relative: its float32 pow, division and blend round a few times
// each.
inline constexpr double kFrequency = 1e-6;

// A vector of size 1 turned in float32, absolute: two products and a sum of rounded cos and sin, a few units.
inline constexpr float kRotation = 5e-7f;

// Two exact algorithms in float64 on the same numbers (the reference against sums in another order), relative
// to the largest value: a few hundred roundings of 1e-16.
inline constexpr double kDouble = 1e-12;

// Gradients against central differences of float64 attention, absolute, for losses of size 10: a step of 2^-16 cuts off
// 1e-10 of a cubic term and divides roundings of 1e-15 by itself. Sinks are float32: a step of 2^-7 cuts off 1e-5.
inline constexpr double kDifference = 1e-8;
inline constexpr double kFloatDifference = 5e-5;

// The step from 1 to the next number of the type.
constexpr double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64: return std::numeric_limits<double>::epsilon();
    case DType::kF32: return std::numeric_limits<float>::epsilon();
    case DType::kF16: return 0x1p-10;
    case DType::kBF16: return 0x1p-7;
    default: return 0;  // whole numbers are exact
  }
}

// How far a turned pair may be from the exact one: what kRotation is for, and the type's own rounding. `size`
// bounds a and b of the pair, times the amplitude; the result is at most sqrt(2) of it.
constexpr double RotationBound(DType dtype, double size) {
  return size * (kRotation + (dtype == DType::kF32 ? 0 : Epsilon(dtype)));
}

// How far attention's output may be from the double-precision reference: twice as far as naive attention of the
// same type is, plus four units in the last place of the largest value, for when naive attention happens to
// hit.
constexpr double AttentionBound(double naive_error, DType dtype, double largest_value) {
  return 2 * naive_error + 4 * Epsilon(dtype) * largest_value;
}

// The same for a gradient: besides the naive one's error, what the rounding of scores does to weights, and four units
// in the last place. `largest` bounds the sum of the magnitudes of an element's terms: gradients cancel. Below the
// type's range there is zero: float16's smallest number is 2^-24; weights below 2.4e-38 are zero whatever they multiply.
constexpr double GradientBound(double naive_error, DType dtype, double largest, double score_error) {
  const double weights = dtype == DType::kF64 ? kDouble : 4 * Epsilon(dtype) + 4 * score_error;
  const double least = dtype == DType::kF64 ? 0 : dtype == DType::kF16 ? 0x1p-24 : 1e-34;
  return 2 * naive_error + weights * largest + least;
}

// How far a float32 sum of `terms` products, in any order, may be from the exact one: gamma_n * sum |a_i b_i|
// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1); one more term for the
// bias.
constexpr double DotBound(int64_t terms, double sum_of_magnitudes) {
  const double n_u = static_cast<double>(terms + 1) * Epsilon(DType::kF32) / 2;
  return n_u / (1 - n_u) * sum_of_magnitudes;
}

// How far a float32 sum of `terms` numbers of one sign, in any order, may be from the exact one.
constexpr double SumBound(int64_t terms, double sum) {
  return static_cast<double>(terms) * Epsilon(DType::kF32) * (sum < 0 ? -sum : sum);
}

// How far a softmax's weight may be off when each of its row's scores is off by at most `score_error`:
// numerator and denominator both move by that factor, and exp, sum and division round (a few units each).
inline double WeightBound(double score_error, double weight) {
  constexpr double kUnits = 16;
  constexpr double kFlushed = 2.4e-38;  // twice the smallest normal number: exp gives zero below it
  if (weight == 0) return kFlushed;     // whatever the scores
  return weight * (std::expm1(2 * score_error) + kUnits * Epsilon(DType::kF32)) + kFlushed;
}

// The same for a row's log-sum-exp: it moves as its scores do, and exp, sum, logarithm and addition round.
inline double LseBound(double score_error, double lse) {
  constexpr double kUnits = 8;
  return score_error + kUnits * Epsilon(DType::kF32) * (1 + std::abs(lse));
}

}  // namespace qkv::test
