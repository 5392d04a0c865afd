// A program outside the project that uses the operator alone: one query, two keys, weights 1/4 and 3/4.
#include <qkv/attention.h>

#include <cmath>
#include <cstdio>

int main() {
  const float q[] = {1}, k[] = {0, std::log(3.0f)}, v[] = {10, 20};
  float out[1];
  qkv::AttentionOptions options;
  options.scale = 1.0f;
  qkv::Attention({q, {1, 1, 1, 1}}, {k, {1, 1, 2, 1}}, {v, {1, 1, 2, 1}}, options, {out, {1, 1, 1, 1}});
  std::printf("out %.3f\n", out[0]);
}
