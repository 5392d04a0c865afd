// One element of each step worked out: the marked token's, towards the key that gets most of its weight.
#pragma once

#include <string>
#include <vector>

#include "qkv/explanation.h"

namespace qkv::view {

std::string WorkedNorm(const Explanation& e);
std::string WorkedProjection(const Explanation& e);
std::string WorkedTurn(const Explanation& e);
std::string WorkedScore(const Explanation& e);
std::string WorkedScale(const Explanation& e);
std::vector<std::string> WorkedSoftmax(const Explanation& e);
std::vector<std::string> WorkedSaturation(const Explanation& e);
std::vector<std::string> WorkedOtherOrder(const Explanation& e);
std::vector<std::string> WorkedDropout(const Explanation& e);
std::string WorkedSum(const Explanation& e);
std::string WorkedOutput(const Explanation& e);

}  // namespace qkv::view
