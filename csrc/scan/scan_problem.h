// A scan as the bindings describe it, and its parts if it is too large. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "common/describe.h"
#include "common/strided.h"
#include "scan/scan_args.h"

namespace gpuopt::scan {

// No tensor has more dimensions of size 2 or more, because it has less than 2^63 values.
constexpr int kMaxDims = 62;

// A dimension. Strides are in elements.
struct Dim {
  int64_t size = 1;
  int64_t in_stride = 0;
  int64_t out_stride = 0;
  int64_t second_stride = 0;
  int64_t initial_stride = 0;  // unused in the scanned dimension

  static constexpr int kStrides = 4;
  int64_t stride(int k) const {
    return k == 0 ? in_stride : k == 1 ? out_stride : k == 2 ? second_stride : initial_stride;
  }

  GPUOPT_DESCRIBE(size, in_stride, out_stride, second_stride, initial_stride)
};

// Values are converted to `dtype` when they are loaded. `in` and `out` are the same memory with the
// same strides, or do not overlap. Operators of two inputs also read `second`, whose dtype is
// in_dtype, and `initial`, which has one value per row.
struct Problem {
  const void* in = nullptr;
  void* out = nullptr;
  const void* second = nullptr;   // nullptr if there is no second input
  const void* initial = nullptr;  // nullptr if there are no initial values
  DType in_dtype = DType::kFloat32;
  DType dtype = DType::kFloat32;
  bool reverse = false;    // from the last value to the first
  bool exclusive = false;  // a value's result is that of the values before it
  Dim scanned;
  int num_dims = 0;
  Dim dims[kMaxDims];  // the other dimensions, in any order, sizes positive

  // A tensor, in the order of Dim::stride, and the bytes of its elements.
  const void* data(int k) const { return k == 0 ? in : k == 1 ? out : second; }
  size_t item(int k) const { return size_of(k == 1 ? dtype : in_dtype); }

  // If all scanned values are one value in memory, only the result has an order.
  bool is_ordered_by_out() const { return scanned.in_stride == 0; }
};

template <Described<Problem> P, typename F>
void describe(P& problem, F&& f) {
  f("in", problem.in);
  f("out", problem.out);
  f("second", problem.second);
  f("initial", problem.initial);
  f("in_dtype", problem.in_dtype);
  f("dtype", problem.dtype);
  f("reverse", problem.reverse);
  f("exclusive", problem.exclusive);
  f("scanned", problem.scanned);
  f("num_dims", problem.num_dims);
  f("dims", std::span(problem.dims, problem.num_dims));
}

// Sorts the dimensions of the rows, innermost first, and merges them. Returns how many are left.
inline int merge_dims(const Problem& problem, Dim (&dims)[kMaxDims]) {
  std::copy_n(problem.dims, problem.num_dims, dims);
  const auto order = [by_out = problem.is_ordered_by_out()](const Dim& dim) {
    return std::pair(memory_order(dim.stride(by_out)), dim.out_stride);
  };
  return gpuopt::merge_dims(dims, problem.num_dims,
                            [&](const Dim& a, const Dim& b) { return order(a) < order(b); });
}

// Splits a problem that is too large into two with separate results.
inline void halve(const Problem& problem, Problem& first, Problem& second) {
  first = problem;
  first.num_dims = merge_dims(problem, first.dims);
  second = first;
  const int chosen = dim_to_halve(first.dims, first.num_dims, first.num_dims > kMaxKernelDims,
                                  [](const Dim&) { return true; });
  const Dim dim = first.dims[chosen];
  const int64_t half = half_of(dim.size);
  first.dims[chosen].size = half;
  second.dims[chosen].size = dim.size - half;
  second.in = moved(problem.in, half * dim.in_stride, problem.in_dtype);
  second.out = moved(problem.out, half * dim.out_stride, problem.dtype);
  second.second = moved(problem.second, half * dim.second_stride, problem.in_dtype);
  second.initial = moved(problem.initial, half * dim.initial_stride, problem.in_dtype);
}

}  // namespace gpuopt::scan
