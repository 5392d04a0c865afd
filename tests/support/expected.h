// What is right for a call, and the comparison of an answer with it: out, lse and captures.
#pragma once

#include <string>

#include "qkv/capture.h"
#include "support/oracle_case.h"
#include "support/plain_attention.h"

namespace qkv::test {

struct RowAt {
  int64_t b, h, i;
  size_t plain;     // in arrays of (B, Hq, Tq)
  size_t captured;  // in arrays of a capture, which hold the longest sequence's rows
};

// What is right for a call, and how far from it an answer may be.
class Expected {
 public:
  // type: whose naive attention bounds the error.
  Expected(const PlainCall& call, DType type);
  // Empty, or the first thing that is wrong.
  std::string Compare(const Outputs& got) const;
  std::string CompareCapture(const CaptureRequest& request, const Capture& got) const;

 private:
  enum class Draws { kOne, kForty };
  // Naive attention is one draw of rounding errors, which a small set may have few of: where the first draw
  // does not suffice, its error is the largest of forty, orders in which it may scale, add and sum.
  double OutBound(Draws draws) const;
  std::string CompareOut(const Outputs& got, double bound) const;
  double WeightTolerance(size_t row, double weight) const;
  std::string CompareTop(const Capture& got, const RowAt& at) const;
  std::string CompareReceived(const Capture& got) const;
  std::string CompareRows(const CaptureRequest& request, const Capture& got) const;
  double RowValue(RowKind kind, const RowAt& at, int64_t j) const;

  const PlainCall& call_;
  DType type_;
  PlainResult exact_;
  double largest_value_ = 0;
};

}  // namespace qkv::test
