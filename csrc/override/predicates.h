// What the decisions of several operators have in common. Each costs some nanoseconds.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "binding/check.h"
#include "binding/plain.h"
#include "override/replacement.h"

namespace gpuopt::overriding {

using at::Tensor;

// What policy says, unless every supported call is taken.
template <typename Policy>
Reason unless_always(Policy policy) {
  return takes_always() ? Reason::kTaken : policy();
}

// The dtypes that the sweep measures.
inline bool is_measured(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16 ||
         (takes_always() && dtype == at::kDouble);
}

// Whether every element surely has an address of its own: each dimension steps over all that the
// dimensions of smaller strides reach. at::has_internal_overlap() does not know for tensors with
// gaps.
inline bool has_no_overlap(const Tensor& tensor) {
  std::array<std::pair<int64_t, int64_t>, 8> dims;  // strides and sizes
  size_t count = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 1) continue;
    if (count == dims.size()) return false;
    dims[count++] = {tensor.stride(d), tensor.size(d)};
  }
  std::sort(dims.begin(), dims.begin() + count);
  int64_t reach = 1;
  for (size_t d = 0; d < count; ++d) {
    const auto [stride, size] = dims[d];
    if (stride < reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

inline int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

inline bool is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace gpuopt::overriding
