// What the decisions of several operators have in common. Each costs some nanoseconds.
#pragma once

#include <ATen/ATen.h>

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

inline int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

inline bool is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace gpuopt::overriding
