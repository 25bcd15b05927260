// Plans of the gradients of padding. Plain host C++.
#pragma once

#include "pad/pad_plan.h"

namespace gpuopt::pad {

constexpr int kMaxSumDims = 4;
constexpr int kNotedRows = 256;  // of a tile, that are looked at together
constexpr int kFewestLanes = 8;

struct SumDim {
  FastDiv size;
  int padded = 1, before = 0;
  int single_first = 0, single_last = 1;  // indices that have one copy
  int stride = 0;                         // of the gradient, in elements
};

struct SumArgs {
  const void* grad = nullptr;
  Mode mode = Mode::kReflect;
  int lanes = kWarp;  // threads at the ends of a row: a power of two
  SumDim dims[kMaxSumDims];
};

struct SumPlan {
  CopyPlan copy;  // of the elements that were padded
  SumArgs args;
};

// Sums the values of `in`, which has the padded sizes, whose index maps to the same element of
// `out`. Both are contiguous and have elements. Nothing if there are more than 2^31 elements or too
// many dimensions.
inline std::optional<SumPlan> make_sum_plan(Problem problem) {
  int64_t padded = 1, total = 1;
  for (int d = 0; d < problem.num_dims; ++d) {
    Dim& dim = problem.dims[d];
    dim.stride = total;  // merging compares the strides of the tensor that was padded
    total *= dim.size;
    padded *= dim.padded;
    if (std::max(padded, total) > kMaxIndex32 - kAccessBytes) return std::nullopt;
  }
  problem.merge();
  if (problem.num_dims > kMaxSumDims) return std::nullopt;
  SumPlan plan;
  SumArgs& args = plan.args;
  padded = 1;
  for (int d = 0; d < problem.num_dims; ++d) {
    const Dim& dim = problem.dims[d];
    const int64_t after = dim.padded - dim.before - dim.size;
    int64_t first = 0, last = dim.size;
    if (problem.mode == Mode::kReflect) {
      if (dim.before > 0) first = dim.before + 1;
      if (after > 0) last = dim.size - 1 - after;
    } else if (problem.mode == Mode::kReplicate) {
      if (dim.before > 0) first = 1;
      if (after > 0) last = dim.size - 1;
    } else {
      first = std::max<int64_t>(after, 0);
      last = dim.size - std::max<int64_t>(dim.before, 0);
    }
    first = std::max(first, -dim.before);
    last = std::min(last, dim.size + std::min<int64_t>(after, 0));
    args.dims[d] = {divide_by(dim.size),          static_cast<int>(dim.padded),
                    static_cast<int>(dim.before), static_cast<int>(first),
                    static_cast<int>(last),       static_cast<int>(padded)};
    padded *= dim.padded;
  }
  // The gradient, cropped to what was padded.
  Problem cropped = problem;
  cropped.mode = Mode::kConstant;
  for (int d = 0; d < problem.num_dims; ++d) {
    const Dim& dim = problem.dims[d];
    cropped.dims[d] = {dim.size, dim.padded, -dim.before, args.dims[d].stride};
  }
  args.grad = problem.in;
  args.mode = problem.mode;
  const auto copy = make_plan(cropped, /*is_fixed=*/true);
  if (!copy.has_value()) return std::nullopt;
  plan.copy = *copy;
  const int64_t rows =
      ceil_div<int64_t>(plan.copy.args.tile_bytes, problem.dims[0].size * problem.item);
  while (args.lanes > kFewestLanes && args.lanes * rows > kCopyThreads) args.lanes /= 2;
  return plan;
}

}  // namespace gpuopt::pad
