// A reduction, the order of its dimensions in memory, and its halves if it is too large for one
// launch. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "common/describe.h"
#include "common/strided.h"

namespace gpuopt::reduce {

enum class Operation : uint8_t { kSum, kMax, kMin };

// No tensor has more dimensions of size 2 or more, because it has less than 2^63 values.
constexpr int kMaxDims = 62;
// One launch walks at most so many kept and so many reduced dimensions. Problems with more are
// split into several launches.
constexpr int kMaxKernelDims = 6;

// A dimension of the input. Strides are in elements. A reduced dimension has out_stride 0. Members
// have no defaults, because arrays of dimensions are large and mostly unused.
struct Dim {
  int64_t size, in_stride, out_stride;
  bool reduced;

  static constexpr int kStrides = 2;
  int64_t stride(int k) const { return k == 0 ? in_stride : out_stride; }

  GPUOPT_DESCRIBE(size, in_stride, out_stride, reduced)
};

// Each value is converted to `dtype` when it is loaded. Values are combined in a type that is at
// least as wide, and results are stored as `dtype`.
struct Problem {
  Operation operation = Operation::kSum;
  double divisor = 1;  // of sums; 1 for integers
  const void* in = nullptr;
  void* out = nullptr;
  DType in_dtype = DType::kFloat32;
  DType dtype = DType::kFloat32;
  int num_dims = 0;
  Dim dims[kMaxDims];  // any order, sizes positive
};

template <Described<Problem> P, typename F>
void describe(P& problem, F&& f) {
  f("operation", problem.operation);
  f("divisor", problem.divisor);
  f("in", problem.in);
  f("out", problem.out);
  f("in_dtype", problem.in_dtype);
  f("dtype", problem.dtype);
  f("num_dims", problem.num_dims);
  f("dims", std::span(problem.dims, problem.num_dims));
}

// The dimensions of size 2 or more, innermost first. Neighbours that are both reduced or both kept
// are merged where strides allow.
struct Layout {
  int count = 0;
  Dim dims[kMaxDims];
  // The same dimensions, kept and reduced. The first ones have size 1 if there are none.
  int num_kept = 0, num_reduced = 0;
  Dim kept[kMaxDims], reduced[kMaxDims];
  int64_t outputs = 1;
  bool linear_out = true;  // output i lies at out + i
};

inline Layout layout_of(const Problem& problem) {
  Layout layout;
  std::copy_n(problem.dims, problem.num_dims, layout.dims);
  // Of two dimensions with equal strides, the one with the larger output stride is the outer one.
  const auto is_inner = [](const Dim& a, const Dim& b) {
    return std::pair(memory_order(a.in_stride), a.out_stride) <
           std::pair(memory_order(b.in_stride), b.out_stride);
  };
  layout.count = merge_dims(layout.dims, problem.num_dims, is_inner,
                            [](const Dim& a, const Dim& b) { return a.reduced == b.reduced; });
  layout.kept[0] = {1, 0, 0, false};
  layout.reduced[0] = {1, 0, 0, true};
  for (int d = 0; d < layout.count; ++d) {
    const Dim& dim = layout.dims[d];
    if (dim.reduced) {
      layout.reduced[layout.num_reduced++] = dim;
      continue;
    }
    layout.kept[layout.num_kept++] = dim;
    layout.linear_out = layout.linear_out && dim.out_stride == layout.outputs;
    layout.outputs *= dim.size;
  }
  return layout;
}

// Halves a problem along a kept or a reduced dimension: it becomes the first half, and the second
// one is returned. Halves along a reduced dimension have the outputs of the whole problem, in its
// order.
inline Problem halve(Problem& problem, const Layout& layout, bool reduced) {
  const int same = reduced ? layout.num_reduced : layout.num_kept;
  const int chosen = dim_to_halve(layout.dims, layout.count, same > kMaxKernelDims,
                                  [&](const Dim& dim) { return dim.reduced == reduced; });
  problem.num_dims = layout.count;
  std::copy_n(layout.dims, layout.count, problem.dims);
  Problem second = problem;
  const Dim& dim = layout.dims[chosen];
  const int64_t half = half_of(dim.size);
  problem.dims[chosen].size = half;
  second.dims[chosen].size = dim.size - half;
  second.in = moved(problem.in, half * dim.in_stride, problem.in_dtype);
  second.out = moved(problem.out, half * dim.out_stride, problem.dtype);
  return second;
}

// The number of parts into which a problem is split because of its number of dimensions alone.
inline int64_t slices_of(const Problem& problem) {
  if (problem.num_dims <= kMaxKernelDims) return 1;
  const Layout layout = layout_of(problem);
  int64_t slices = 1;
  const auto count = [&](const Dim* dims, int n) {
    int64_t sizes[kMaxDims];
    for (int d = 0; d < n; ++d) sizes[d] = dims[d].size;
    std::sort(sizes, sizes + n);
    for (int d = 0; d < n - kMaxKernelDims; ++d) slices *= sizes[d];
  };
  count(layout.kept, layout.num_kept);
  count(layout.reduced, layout.num_reduced);
  return slices;
}

}  // namespace gpuopt::reduce
