// Dimensions that operands of one shape share: merging, halving and alignment. Plain host C++.
//
// A dimension is a struct with a `size`, and with a stride for each of kStrides operands:
//
//   struct Dim {
//     static constexpr int kStrides = 2;
//     int64_t size = 1, in_stride = 0, out_stride = 0;
//     int64_t stride(int k) const { return k == 0 ? in_stride : out_stride; }
//   };
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"

namespace gpuopt {

// The position of a stride in the order of memory. Expanded dimensions (stride 0) are outermost.
inline int64_t memory_order(int64_t stride) { return stride == 0 ? INT64_MAX : stride; }

// Whether each operand steps through `inner`, and then to the next index of `outer`, with one
// stride.
template <typename Dim>
bool continues(const Dim& inner, const Dim& outer) {
  for (int k = 0; k < Dim::kStrides; ++k) {
    if (outer.stride(k) != inner.stride(k) * inner.size) return false;
  }
  return true;
}

// Drops dimensions of size 1, and merges each dimension into its inner neighbour where
// may_merge(inner, outer) and strides allow. Dimensions are in order, innermost first. Returns how
// many are left.
template <typename Dim, typename MayMerge>
int merge_neighbours(Dim* dims, int count, MayMerge may_merge) {
  int left = 0;
  for (int d = 0; d < count; ++d) {
    const Dim dim = dims[d];
    if (dim.size == 1) continue;
    if (left > 0 && may_merge(dims[left - 1], dim) && continues(dims[left - 1], dim)) {
      dims[left - 1].size *= dim.size;
    } else {
      dims[left++] = dim;
    }
  }
  return left;
}
template <typename Dim>
int merge_neighbours(Dim* dims, int count) {
  return merge_neighbours(dims, count, [](const Dim&, const Dim&) { return true; });
}

// The same, after sorting by is_inner(a, b).
template <typename Dim, typename IsInner, typename... MayMerge>
int merge_dims(Dim* dims, int count, IsInner is_inner, MayMerge... may_merge) {
  count = static_cast<int>(
      std::remove_if(dims, dims + count, [](const Dim& dim) { return dim.size == 1; }) - dims);
  std::stable_sort(dims, dims + count, is_inner);
  return merge_neighbours(dims, count, may_merge...);
}

// ---------------------------------------------------------------- problems that are too large

// The dimension to halve: the largest, or the smallest one if there are too many, since it shrinks
// to size 1 in the fewest halvings. Among equal ones, the first. `may` says which may be halved.
template <typename Dim, typename May>
int dim_to_halve(const Dim* dims, int count, bool too_many, May may) {
  int chosen = -1;
  for (int d = 0; d < count; ++d) {
    if (!may(dims[d])) continue;
    const bool larger = chosen >= 0 && dims[d].size > dims[chosen].size;
    if (chosen < 0 || larger != too_many) chosen = d;
  }
  return chosen;
}

// The size of the first half. Multiples of 16 values keep the second half as aligned as the whole.
inline int64_t half_of(int64_t size) {
  const int64_t half = size / 2;
  return half > kAccessBytes ? half - half % kAccessBytes : half;
}

// The address of the element that lies so many elements on. A missing operand stays missing.
template <typename Void>
Void* moved(Void* data, int64_t elements, DType dtype) {
  if (data == nullptr) return nullptr;
  const int64_t bytes = elements * static_cast<int64_t>(size_of(dtype));
  return reinterpret_cast<Void*>(reinterpret_cast<uintptr_t>(data) + bytes);
}

// ---------------------------------------------------------------- alignment

inline bool is_aligned(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace gpuopt
