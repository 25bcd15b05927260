// The dimensions of two operands, merged as far as both allow. Plain host C++.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace gpuopt {

struct Dim {
  int64_t size, a, b;  // strides of the operands a and b, in elements
};

// At most kMax dimensions, ordered by the strides of a, ascending.
struct Dims {
  static constexpr int kMax = 8;

  bool push(Dim dim) {
    if (count == kMax) return false;
    dims[count++] = dim;
    return true;
  }
  void sort() {
    std::stable_sort(dims.begin(), dims.begin() + count,
                     [](const Dim& x, const Dim& y) { return x.a < y.a; });
  }
  void merge() {
    int last = 0;
    for (int d = 1; d < count; ++d) {
      Dim& into = dims[last];
      if (dims[d].a == into.a * into.size && dims[d].b == into.b * into.size) {
        into.size *= dims[d].size;
      } else {
        dims[++last] = dims[d];
      }
    }
    if (count > 0) count = last + 1;
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
  dims.sort();
  dims.merge();
  return dims;
}

}  // namespace gpuopt
