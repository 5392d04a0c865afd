// Three tokens look at each other: q = k = x, v = the numbers 1, 2, 3.
#include <qkv/attention.h>

#include <cstdio>

int main() {
  const float x[] = {1, 0, 0, 1, 1, 1}, v[] = {1, 2, 3};
  float out[3];
  qkv::AttentionOptions options;
  options.causal = qkv::Causal::kBottomRight;
  qkv::Attention({x, {1, 1, 3, 2}}, {x, {1, 1, 3, 2}}, {v, {1, 1, 3, 1}}, options, {out, {1, 1, 3, 1}});
  std::printf("%.3f %.3f %.3f\n", out[0], out[1], out[2]);
}
