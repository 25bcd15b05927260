// The dimensions of two operands, merged as far as both allow. Plain host C++.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "common/strided.h"

namespace gpuopt {

struct Dim {
  int64_t size, a, b;  // strides of the operands a and b, in elements

  static constexpr int kStrides = 2;
  int64_t stride(int k) const { return k == 0 ? a : b; }
};

// At most kMax dimensions, ordered by the strides of a, ascending.
struct Dims {
  static constexpr int kMax = 8;

  bool push(Dim dim) {
    if (count == kMax) return false;
    dims[count++] = dim;
    return true;
  }
  void merge() {
    count = merge_dims(dims.data(), count, [](const Dim& x, const Dim& y) { return x.a < y.a; });
  }
  const Dim* begin() const { return dims.data(); }
  const Dim* end() const { return dims.data() + count; }

  std::array<Dim, kMax> dims{};
  int count = 0;
};

// Returns nothing for more than kMax dimensions of size 2 or more.
inline std::optional<Dims> merged_dims(std::span<const int64_t> sizes, std::span<const int64_t> a,
                                       std::span<const int64_t> b) {
  Dims dims;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && !dims.push({sizes[d], a[d], b[d]})) return std::nullopt;
  }
  dims.merge();
  return dims;
}

}  // namespace gpuopt
