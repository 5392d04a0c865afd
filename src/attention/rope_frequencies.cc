// The frequencies that a model's config states: the formulas are cited in qkv/rope.h.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "attention/validate.h"
#include "qkv/rope.h"

namespace qkv {
namespace {

using Frequencies = std::vector<double>;

void CheckPositive(const char* argument, double value) {
  if (!(value > 0 && std::isfinite(value))) {
    FailArgument(argument, "not positive", "a finite number above 0", std::to_string(value));
  }
}

void CheckLength(const char* argument, int64_t length) {
  if (length <= 0) FailArgument(argument, "not positive", "1 or more tokens", std::to_string(length));
}

// Pair i turns base^(-2i / R) radians a token.
Frequencies Geometric(double base, int64_t rotary_dim) {
  Frequencies frequencies;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  return frequencies;
}

// The base under which the slowest pair is `stretch` times slower.
double StretchedBase(const RopeConfig& config, double stretch) {
  if (config.rotary_dim < 4) {
    FailArgument("config.rotary_dim", "too small to scale the base", "4 or more",
                 std::to_string(config.rotary_dim));
  }
  const double r = static_cast<double>(config.rotary_dim);
  return config.base * std::pow(stretch, r / (r - 2));
}

// The (fractional) pair that turns `turns` times in the trained length.
double PairThatTurns(const RopeConfig& config, int64_t trained_length, double turns) {
  const double length = static_cast<double>(trained_length), r = static_cast<double>(config.rotary_dim);
  return r * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.base));
}

double YarnAmplitude(const YarnRope& yarn) {
  if (yarn.amplitude) return *yarn.amplitude;
  const double log_factor = yarn.factor <= 1 ? 0 : std::log(yarn.factor);
  const auto amplitude = [&](double mscale) { return 0.1 * mscale * log_factor + 1; };
  if (yarn.mscale.value_or(0) != 0 && yarn.mscale_all_dim.value_or(0) != 0) {
    return amplitude(*yarn.mscale) / amplitude(*yarn.mscale_all_dim);
  }
  return amplitude(1);
}

// Each kind of scaling.
struct Scale {
  const RopeConfig& config;

  RopeFrequencies operator()(std::monostate) const { return {Geometric(config.base, config.rotary_dim)}; }

  RopeFrequencies operator()(const LinearRope& linear) const {
    CheckPositive("config.scaling.factor", linear.factor);
    Frequencies frequencies = Geometric(config.base, config.rotary_dim);
    for (double& frequency : frequencies) frequency /= linear.factor;
    return {frequencies};
  }

  RopeFrequencies operator()(const NtkRope& ntk) const {
    CheckPositive("config.scaling.factor", ntk.factor);
    return {Geometric(StretchedBase(config, ntk.factor), config.rotary_dim)};
  }

  RopeFrequencies operator()(const DynamicNtkRope& ntk) const {
    CheckPositive("config.scaling.factor", ntk.factor);
    CheckLength("config.scaling.trained_length", ntk.trained_length);
    if (ntk.length < 0) {
      FailArgument("config.scaling.length", "negative", "0 or more tokens", std::to_string(ntk.length));
    }
    const double trained = static_cast<double>(ntk.trained_length);
    const double length = std::max(trained, static_cast<double>(ntk.length));
    return {
        Geometric(StretchedBase(config, ntk.factor * length / trained - (ntk.factor - 1)), config.rotary_dim)};
  }

  RopeFrequencies operator()(const YarnRope& yarn) const {
    CheckYarn(yarn);
    double low = PairThatTurns(config, yarn.trained_length, yarn.beta_fast);
    double high = PairThatTurns(config, yarn.trained_length, yarn.beta_slow);
    if (yarn.ramp == YarnRope::Ramp::kWholePairs) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(config.rotary_dim - 1));
    Frequencies frequencies = Geometric(config.base, config.rotary_dim);
    for (size_t pair = 0; pair < frequencies.size(); ++pair) {
      const double i = static_cast<double>(pair);
      const double slow = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
      frequencies[pair] *= slow / yarn.factor + (1 - slow);
    }
    return {frequencies, YarnAmplitude(yarn)};
  }

  RopeFrequencies operator()(const Llama3Rope& llama) const {
    CheckPositive("config.scaling.factor", llama.factor);
    CheckPositive("config.scaling.low_factor", llama.low_factor);
    CheckLength("config.scaling.trained_length", llama.trained_length);
    if (!(llama.high_factor > llama.low_factor && std::isfinite(llama.high_factor))) {
      FailArgument("config.scaling.high_factor", "too low", "above low_factor",
                   std::to_string(llama.high_factor));
    }
    const double length = static_cast<double>(llama.trained_length);
    Frequencies frequencies = Geometric(config.base, config.rotary_dim);
    for (double& frequency : frequencies) {
      const double turns = length * frequency / (2 * std::numbers::pi);  // in the trained length
      const double fast =
          std::clamp((turns - llama.low_factor) / (llama.high_factor - llama.low_factor), 0.0, 1.0);
      frequency *= (1 - fast) / llama.factor + fast;
    }
    return {frequencies};
  }

 private:
  void CheckYarn(const YarnRope& yarn) const {
    CheckPositive("config.scaling.factor", yarn.factor);
    CheckPositive("config.scaling.beta_slow", yarn.beta_slow);
    CheckLength("config.scaling.trained_length", yarn.trained_length);
    if (!(yarn.beta_fast > yarn.beta_slow && std::isfinite(yarn.beta_fast))) {
      FailArgument("config.scaling.beta_fast", "too low", "above beta_slow", std::to_string(yarn.beta_fast));
    }
    if (!(config.base > 1)) {
      FailArgument("config.base", "too small for YaRN", "above 1", std::to_string(config.base));
    }
    for (const auto& [name, value] : {std::pair{"config.scaling.amplitude", yarn.amplitude},
                                      std::pair{"config.scaling.mscale", yarn.mscale},
                                      std::pair{"config.scaling.mscale_all_dim", yarn.mscale_all_dim}}) {
      if (value && !(*value >= 0 && std::isfinite(*value))) {
        FailArgument(name, "negative or not finite", "0 or more", std::to_string(*value));
      }
    }
  }
};

}  // namespace

RopeFrequencies MakeRopeFrequencies(const RopeConfig& config) {
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0) {
    FailArgument("config.rotary_dim", "not an even number of channels", "2, 4, 6, ...",
                 std::to_string(config.rotary_dim));
  }
  CheckPositive("config.base", config.base);
  return std::visit(Scale{config}, config.scaling);
}

}  // namespace qkv
