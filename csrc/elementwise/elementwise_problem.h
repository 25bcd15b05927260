// An element-wise operation on strided operands, and its merged dimensions. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "common/describe.h"
#include "common/strided.h"
#include "elementwise/elementwise_args.h"

namespace gpuopt::elementwise {

// One operand over the problem's iteration space. Broadcast dimensions have stride 0.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t strides[kMaxDims] = {};  // in elements, innermost dimension first
};

// operands[0] is written, the others are read. An input may be the output itself (in-place), but
// must not overlap it in part. No two elements of the output share an address.
template <int kInputs>
struct Problem {
  int num_dims = 0;
  int64_t sizes[kMaxDims] = {};  // innermost dimension first, all positive
  // Inputs are converted to it before the operation, and its values to the output's dtype, never to
  // a lower category.
  DType dtype = DType::kFloat32;
  Operand operands[kInputs + 1];
};

// A problem's members, with the dimensions that it has.
template <typename P, typename F>
  requires requires(P& problem) { problem.operands[0].strides; }
void describe(P& problem, F&& f) {
  f("num_dims", problem.num_dims);
  f("sizes", std::span(problem.sizes, problem.num_dims));
  f("dtype", problem.dtype);
  int k = 0;
  for (auto& operand : problem.operands) {
    const std::string name = "operand" + std::to_string(k++);
    f((name + ".data").c_str(), operand.data);
    f((name + ".dtype").c_str(), operand.dtype);
    f((name + ".strides").c_str(), std::span(operand.strides, problem.num_dims));
  }
}

// Whether the dtypes obey type promotion.
template <int kInputs>
bool promotes(const Problem<kInputs>& problem) {
  const Category category = category_of(problem.dtype);
  for (int k = 1; k <= kInputs; ++k) {
    if (category_of(problem.operands[k].dtype) > category) return false;
  }
  return category_of(problem.operands[0].dtype) >= category;
}

// ---------------------------------------------------------------- merged dimensions

// A dimension of all operands.
template <int kOperands>
struct Dim {
  int64_t size = 1;
  int64_t strides[kOperands] = {};

  static constexpr int kStrides = kOperands;
  int64_t stride(int k) const { return strides[k]; }
};

// The dimensions of a problem, merged as far as every operand allows. At least one is left.
template <int kInputs>
struct Layout {
  Dim<kInputs + 1> dims[kMaxDims];
  int num_dims = 0;
  int64_t numel = 1;
  int64_t values;             // of a vector
  bool linear[kInputs + 1];   // element i of the iteration space is at data + i
  bool one_type = true;       // all operands have the problem's dtype
  bool inputs_repeat = true;  // every input is broadcast: the output is most of the traffic

  explicit Layout(const Problem<kInputs>& problem)
      : values(kAccessBytes / static_cast<int64_t>(size_of(problem.dtype))) {
    for (int d = 0; d < problem.num_dims; ++d) {
      numel *= dims[d].size = problem.sizes[d];
      for (int k = 0; k <= kInputs; ++k) dims[d].strides[k] = problem.operands[k].strides[d];
    }
    num_dims = merge_neighbours(dims, problem.num_dims);
    if (num_dims == 0) {  // one element
      dims[0].size = num_dims = 1;
      for (int64_t& stride : dims[0].strides) stride = 1;
    }
    for (int k = 0; k <= kInputs; ++k) {
      int64_t dense = 1;
      bool repeats = false;
      linear[k] = true;
      for (int d = 0; d < num_dims; ++d) {
        linear[k] = linear[k] && dims[d].strides[k] == dense;
        repeats = repeats || dims[d].strides[k] == 0;
        dense *= dims[d].size;
      }
      one_type = one_type && problem.operands[k].dtype == problem.dtype;
      if (k > 0) inputs_repeat = inputs_repeat && repeats;
    }
  }
};

// Whether vectors may be accessed from the start of every row along `dim` of operand k. A vector is
// aligned to its size, or to 16 bytes if it is larger.
template <int kInputs>
bool has_aligned_rows(const Problem<kInputs>& problem, const Layout<kInputs>& layout, int k,
                      int dim) {
  const Operand& operand = problem.operands[k];
  const size_t bytes = size_of(operand.dtype) * static_cast<size_t>(layout.values);
  if (!is_aligned(operand.data, std::min<size_t>(bytes, kAccessBytes))) return false;
  for (int d = 0; d < layout.num_dims; ++d) {
    if (d != dim && layout.dims[d].strides[k] % layout.values != 0) return false;
  }
  return true;
}

// Whether every operand is one aligned run of vectors.
template <int kInputs>
bool is_one_run(const Problem<kInputs>& problem, const Layout<kInputs>& layout) {
  for (int k = 0; k <= kInputs; ++k) {
    if (!layout.linear[k] || !is_aligned(problem.operands[k].data, kAccessBytes)) return false;
  }
  return layout.one_type;
}

// Whether counts and offsets fit 32 bits, and dimensions the arguments of a kernel.
template <int kInputs>
bool fits_one_launch(const Layout<kInputs>& layout) {
  if (layout.numel > kMaxIndex32 || layout.num_dims > kKernelDims) return false;
  for (int k = 0; k <= kInputs; ++k) {
    int64_t extent = 0;
    for (int d = 0; d < layout.num_dims; ++d) {
      extent += (layout.dims[d].size - 1) * layout.dims[d].strides[k];
    }
    if (extent > kMaxIndex32) return false;
  }
  return true;
}

// Splits along the dimension that reaches farthest in any operand, or along the smallest one if
// there are too many. The parts of a problem whose offsets need more than 32 bits stay so large
// that the extra launches cost nothing.
template <int kInputs>
void halve(const Problem<kInputs>& problem, Problem<kInputs>& first, Problem<kInputs>& second) {
  const Layout<kInputs> layout(problem);
  const auto& dims = layout.dims;
  const auto reach = [](const Dim<kInputs + 1>& dim) {
    return (dim.size - 1) * *std::max_element(std::begin(dim.strides), std::end(dim.strides));
  };
  const auto* const end = dims + layout.num_dims;
  const auto* const chosen =
      layout.num_dims > kKernelDims
          ? std::min_element(dims, end, [](auto& a, auto& b) { return a.size < b.size; })
          : std::max_element(dims, end, [&](auto& a, auto& b) { return reach(a) < reach(b); });
  first = problem;
  first.num_dims = layout.num_dims;
  for (int d = 0; d < layout.num_dims; ++d) {
    first.sizes[d] = dims[d].size;
    for (int k = 0; k <= kInputs; ++k) first.operands[k].strides[d] = dims[d].strides[k];
  }
  second = first;
  const auto d = chosen - dims;
  const int64_t half = half_of(chosen->size);
  first.sizes[d] = half;
  second.sizes[d] -= half;
  for (Operand& operand : second.operands) {
    operand.data = moved(operand.data, operand.strides[d] * half, operand.dtype);
  }
}

}  // namespace gpuopt::elementwise
