#include "train/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "qkv/error.h"
#include "runtime/random.h"
#include "runtime/threads.h"

namespace qkv::train {
namespace {

constexpr int64_t kAlignedFloats = kAlignment / sizeof(float);

Decay DecayOf(const Shape& shape) { return shape.rank >= 2 ? Decay::kWeight : Decay::kNone; }

// What a block holds, in the order in which transformers' GPT-2 registers it.
std::vector<std::pair<std::string, Shape>> BlockParameters(int64_t width, int64_t inner) {
  return {{"ln_1.weight", {width}},
          {"ln_1.bias", {width}},
          {"attn.c_attn.weight", {width, 3 * width}},
          {"attn.c_attn.bias", {3 * width}},
          {"attn.c_proj.weight", {width, width}},
          {"attn.c_proj.bias", {width}},
          {"ln_2.weight", {width}},
          {"ln_2.bias", {width}},
          {"mlp.c_fc.weight", {width, inner}},
          {"mlp.c_fc.bias", {inner}},
          {"mlp.c_proj.weight", {inner, width}},
          {"mlp.c_proj.bias", {width}}};
}

std::vector<std::pair<std::string, Shape>> AllParameters(const DecoderConfig& c) {
  std::vector<std::pair<std::string, Shape>> all = {{"wte.weight", {c.vocab, c.width}},
                                                    {"wpe.weight", {c.context, c.width}}};
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    for (auto& [name, shape] : BlockParameters(c.width, c.inner())) {
      all.emplace_back("h." + std::to_string(layer) + "." + name, shape);
    }
  }
  all.emplace_back("ln_f.weight", Shape{c.width});
  all.emplace_back("ln_f.bias", Shape{c.width});
  if (c.head_weight == HeadWeight::kOwn) all.emplace_back("lm_head.weight", Shape{c.vocab, c.width});
  return all;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool IsGain(const ParameterEntry& entry) { return entry.shape.rank == 1 && EndsWith(entry.name, ".weight"); }

// A uniform number in (0, 1).
double Uniform(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

// Two normal numbers from the bits of one counter (Box & Muller 1958), four from both halves.
std::array<float, 4> FourNormals(PhiloxCounter counter, PhiloxKey key, double deviation) {
  const PhiloxCounter words = Philox4x32(counter, key);
  std::array<float, 4> normals{};
  for (size_t pair = 0; pair < 2; ++pair) {
    const double radius = deviation * std::sqrt(-2.0 * std::log(Uniform(words[2 * pair])));
    const double angle = 2.0 * std::numbers::pi * Uniform(words[2 * pair + 1]);
    normals[2 * pair] = static_cast<float>(radius * std::cos(angle));
    normals[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return normals;
}

// `number` tells the parameters apart: each draws from counters of its own.
void FillNormal(float* to, int64_t count, double deviation, uint64_t seed, uint32_t number) {
  constexpr int64_t kTask = 16384;
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  ParallelFor((count + kTask - 1) / kTask, [&](int64_t task, int) {
    const int64_t last = std::min(count, (task + 1) * kTask);
    for (int64_t i = task * kTask; i < last; i += 4) {
      const auto quarter = static_cast<uint64_t>(i / 4);
      const PhiloxCounter counter{static_cast<uint32_t>(quarter), static_cast<uint32_t>(quarter >> 32), number,
                                  0};
      const std::array<float, 4> normals = FourNormals(counter, key, deviation);
      std::copy_n(normals.begin(), std::min<int64_t>(4, last - i), to + i);
    }
  });
}

}  // namespace

ParameterTable::ParameterTable(const DecoderConfig& config) {
  CheckConfig(config);
  for (auto& [name, shape] : AllParameters(config)) {
    entries_.push_back({std::move(name), shape, total_, DecayOf(shape)});
    count_ += shape.elements();
    total_ += (shape.elements() + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }
}

const ParameterEntry& ParameterTable::Find(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.name == name; });
  if (found == entries_.end())
    throw Error(ErrorCode::kInvalidArgument, "the decoder has no such parameter", name);
  return *found;
}

AlignedBuffer<float> ZeroParameters(const ParameterTable& table) {
  AlignedBuffer<float> zeros(table.total());
  std::fill_n(zeros.data(), zeros.size(), 0.0f);
  return zeros;
}

AlignedBuffer<float> InitialParameters(const DecoderConfig& config, uint64_t seed) {
  const ParameterTable table(config);
  AlignedBuffer<float> parameters = ZeroParameters(table);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  uint32_t number = 0;
  for (const ParameterEntry& entry : table.entries()) {
    float* to = parameters.data() + entry.offset;
    const double deviation = EndsWith(entry.name, "c_proj.weight") ? residual : 0.02;
    if (entry.decay == Decay::kWeight) FillNormal(to, entry.size(), deviation, seed, number);
    if (IsGain(entry)) std::fill_n(to, entry.size(), 1.0f);
    ++number;
  }
  return parameters;
}

}  // namespace qkv::train
