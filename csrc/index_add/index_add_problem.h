// The problem that index_add solves, how its dimensions lie in memory, and the arguments that all
// kernels have. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "common/describe.h"
#include "common/device.h"
#include "common/index_reader.h"
#include "common/launch_shape.h"
#include "common/strided.h"
#include "index_add/index_add_tuning.h"

namespace gpuopt::index_add {

// No tensor has more than 62 dimensions of size 2 or more, because it has less than 2^63 values.
// The parts of complex numbers are one more dimension, and so is an inner dimension of size 1.
constexpr int kMaxDims = 64;
// Most outer dimensions of a launch. Problems with more are split into slices.
constexpr int kMaxOuterDims = 4;
constexpr int kMaxValues = 8;  // most values per access of a thread

// What a call guarantees (torch_ops/_index_add.py).
enum class Mode : uint8_t { kFast, kDeterministic, kAccurate };

// A dimension of self and source other than the indexed one. Strides are in elements.
struct Dim {
  int64_t size = 1;
  int64_t self_stride = 0;
  int64_t source_stride = 0;

  static constexpr int kStrides = 2;
  int64_t stride(int k) const { return k == 0 ? self_stride : source_stride; }

  GPUOPT_DESCRIBE(size, self_stride, source_stride)
};

// self[.., index[entry], ..] += alpha * source[.., entry, ..]
struct Problem {
  void* self = nullptr;           // [.., bins, ..]
  const void* source = nullptr;   // [.., entries, ..]
  const void* index = nullptr;    // [entries]
  DType dtype = DType::kFloat32;  // real: complex numbers are a dimension of two parts
  bool wide_self = false;         // self is float32 and source a half type, in mode fast
  bool long_index = true;         // int64, else int32
  Mode mode = Mode::kFast;
  ScalarValue alpha;
  int64_t bins = 0;     // self's size in the indexed dimension
  int64_t entries = 0;  // of the index
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t index_stride = 0;
  int num_dims = 0;
  Dim dims[kMaxDims];  // any order, sizes positive
};

// Without alpha, which no plan depends on, and wide_self, which has one plan.
template <Described<Problem> P, typename F>
void describe(P& problem, F&& f) {
  f("self", problem.self);
  f("source", problem.source);
  f("index", problem.index);
  f("dtype", problem.dtype);
  f("long_index", problem.long_index);
  f("mode", problem.mode);
  f("bins", problem.bins);
  f("entries", problem.entries);
  f("bin_stride", problem.bin_stride);
  f("entry_stride", problem.entry_stride);
  f("index_stride", problem.index_stride);
  f("num_dims", problem.num_dims);
  f("dims", std::span(problem.dims, problem.num_dims));
}

// The dimensions other than the indexed one. Neighbouring threads run along `inner`, or along the
// entries if the size of `inner` is 1. A row is the values of an entry along `inner`.
struct Layout {
  Dim inner;
  int num_outer = 0;
  Dim outer[kMaxDims];
  int64_t outer_size = 1;
};

// Bytes of a sum in shared memory or in the workspace, and the most that a path plans for it.
constexpr size_t accumulator_bytes(DType dtype) { return size_of(dtype) <= 4 ? 4 : 8; }
constexpr size_t sum_bytes(DType dtype) {
  return dtype == DType::kBool ? 1 : accumulator_bytes(dtype);
}

inline bool is_inexact(DType dtype) { return category_of(dtype) == Category::kFloat; }
inline bool is_half(DType dtype) { return is_inexact(dtype) && size_of(dtype) == 2; }

inline DType self_dtype(const Problem& problem) {
  return problem.wide_self ? DType::kFloat32 : problem.dtype;
}

// Whether sums must be added in a fixed order.
inline bool is_ordered(const Problem& problem) {
  return problem.mode == Mode::kDeterministic && is_inexact(problem.dtype);
}

inline Layout make_layout(const Problem& problem) {
  Layout layout;
  Dim merged[kMaxDims];
  std::copy_n(problem.dims, problem.num_dims, merged);
  const int num_merged = merge_dims(merged, problem.num_dims, [](const Dim& a, const Dim& b) {
    return std::pair(a.self_stride, a.source_stride) < std::pair(b.self_stride, b.source_stride);
  });
  // Threads run along the entries if these are closer together in memory, in self and in source.
  const bool has_inner =
      num_merged > 0 && (merged[0].self_stride < problem.bin_stride ||
                         merged[0].source_stride < problem.entry_stride || problem.bins == 1);
  if (has_inner) layout.inner = merged[0];
  for (int d = has_inner ? 1 : 0; d < num_merged; ++d) {
    layout.outer[layout.num_outer++] = merged[d];
    layout.outer_size *= merged[d].size;
  }
  return layout;
}

// Values of the widest access to which all rows of self and source are aligned: 16 bytes, 4 bytes
// or an element. Types of one byte have no 16-byte access, because their 16 sums of 32 bits would
// not stay in registers.
inline int values_per_access(const Problem& problem, const Layout& layout) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const Dim& inner = layout.inner;
  if (inner.size > 1 && (inner.self_stride != 1 || inner.source_stride != 1)) return 1;
  for (const int64_t bytes : {int64_t{kAccessBytes}, int64_t{4}}) {
    if (bytes <= size || bytes / size > kMaxValues || inner.size * size % bytes != 0) continue;
    const auto aligned = [&](int64_t stride) { return stride * size % bytes == 0; };
    bool all = is_aligned(problem.self, bytes) && is_aligned(problem.source, bytes) &&
               aligned(problem.bin_stride) && aligned(problem.entry_stride);
    for (int d = 0; d < layout.num_outer; ++d) {
      all = all && aligned(layout.outer[d].self_stride) && aligned(layout.outer[d].source_stride);
    }
    if (all) return static_cast<int>(bytes / size);
  }
  return 1;
}

// Whether the values of `count` neighbouring entries lie side by side, aligned to their total size,
// up to 16 bytes.
inline bool takes_neighbours(const Problem& problem, const Layout& layout, int count) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t bytes = std::min<int64_t>(count * size, kAccessBytes);
  bool all =
      layout.inner.size == 1 && problem.entry_stride == 1 && is_aligned(problem.source, bytes);
  for (int d = 0; d < layout.num_outer; ++d) {
    all = all && layout.outer[d].source_stride * size % bytes == 0;
  }
  return all;
}

// ---------------------------------------------------------------- arguments of kernels

struct OuterDims {
  int count = 0;
  FastDiv sizes[kMaxOuterDims];  // the last size is not used
  int64_t self_strides[kMaxOuterDims] = {};
  int64_t source_strides[kMaxOuterDims] = {};
};

inline Index make_index(const Problem& problem) {
  return {problem.index, problem.long_index, problem.index_stride, problem.bins};
}

// Sets the members that the arguments of all kernels have.
template <typename Args>
void set_operands(Args& args, const Problem& problem, const Layout& layout) {
  args.self = problem.self;
  args.source = problem.source;
  args.bin_stride = problem.bin_stride;
  args.entry_stride = problem.entry_stride;
  if constexpr (requires { args.self_inner_stride; }) {
    args.self_inner_stride = layout.inner.self_stride;
    args.source_inner_stride = layout.inner.source_stride;
  }
  args.outer.count = layout.num_outer;
  for (int d = 0; d < layout.num_outer; ++d) {
    args.outer.sizes[d] = divide_by(layout.outer[d].size);
    args.outer.self_strides[d] = layout.outer[d].self_stride;
    args.outer.source_strides[d] = layout.outer[d].source_stride;
  }
  args.alpha = problem.alpha;
}

}  // namespace gpuopt::index_add
