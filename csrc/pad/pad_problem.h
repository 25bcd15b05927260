// Tensors as problems of pad_plan.h.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "pad/pad_check.h"

namespace gpuopt::pad {

// The dimensions of `written` in the order of its memory, innermost first.
inline at::DimVector dims_in_memory(const at::Tensor& written) {
  at::DimVector order;
  for (int64_t d = written.dim() - 1; d >= 0; --d) order.push_back(d);
  // A dimension of size 1 takes no part in the order.
  const auto key = [&](int64_t d) { return written.size(d) == 1 ? INT64_MAX : written.stride(d); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return key(a) < key(b); });
  return order;
}

// Reads `in` and writes `out`. `before` has a number for each dimension. `reads_padded`: in has the
// padded sizes, else out has.
inline std::optional<Problem> problem_of(Mode mode, const at::Tensor& in, const at::Tensor& out,
                                         at::IntArrayRef before, bool reads_padded = false) {
  if (in.dim() > kMaxDims) return std::nullopt;
  Problem problem;
  problem.mode = mode;
  problem.item = static_cast<int64_t>(in.element_size());
  problem.in = in.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  for (const int64_t d : dims_in_memory(out)) {
    problem.dims[problem.num_dims++] = {(reads_padded ? in : out).size(d),
                                        (reads_padded ? out : in).size(d), before[d], in.stride(d)};
  }
  return problem;
}

// A concatenation into `out`, or nothing if there are too many tensors or a slice has gaps.
inline std::optional<CopyPlan> plan_of(const at::MaterializedITensorListRef& tensors, int64_t dim,
                                       const at::Tensor& out) {
  const at::DimVector order = dims_in_memory(out);
  const auto joined =
      static_cast<size_t>(std::find(order.begin(), order.end(), dim) - order.begin());
  c10::SmallVector<Source, kMaxRuns> sources;
  at::DimVector sizes;
  for (size_t k = joined + 1; k < order.size(); ++k) sizes.push_back(out.size(order[k]));
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (sources.size() == kMaxRuns || tensor.dim() > kMaxDims) return std::nullopt;
    Source source;
    source.data = tensor.const_data_ptr();
    source.row = 1;
    for (size_t k = 0; k <= joined; ++k) {
      const int64_t d = order[k];
      if (tensor.size(d) > 1 && tensor.stride(d) != source.row) return std::nullopt;
      source.row *= tensor.size(d);
    }
    for (size_t k = joined + 1; k < order.size(); ++k) {
      source.strides[k - joined - 1] = tensor.stride(order[k]);
    }
    sources.push_back(source);
  }
  return make_plan(sources, {sizes.data(), sizes.size()}, static_cast<int64_t>(out.element_size()),
                   out.mutable_data_ptr());
}

}  // namespace gpuopt::pad
