// What the decisions of several operators have in common. Each costs some nanoseconds.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
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

// Whether ATen's kernels convert a number without an error, for every dtype, to a finite one.
inline bool is_simple(const at::Scalar& number) {
  if (number.isComplex() || number.isBoolean() || number.isSymbolic()) return false;
  return std::abs(number.toDouble()) < 65504;
}

// Whether surely no two elements share an address: each dimension steps over all that the
// dimensions of smaller strides reach. at::has_internal_overlap() does not know for tensors with
// gaps.
inline bool has_no_overlap(const Tensor& tensor) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> dims;  // strides and sizes
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) != 1) dims.push_back({tensor.stride(d), tensor.size(d)});
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

// Whether an out= argument has the sizes and the dtype of a result, different addresses for all
// elements, and no memory of the other arguments.
inline bool is_destination(const Tensor& out, at::IntArrayRef sizes, at::ScalarType dtype,
                           std::initializer_list<Tensor> arguments) {
  if (!is_plain(out) || out.layout() != at::kStrided || out.scalar_type() != dtype ||
      out.sizes() != sizes || !has_no_overlap(out)) {
    return false;
  }
  for (const Tensor& argument : arguments) {
    if (out.device() != argument.device() || out.is_alias_of(argument)) return false;
  }
  return true;
}

inline int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

// The type of sums.
inline at::ScalarType wide_type(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline bool is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace gpuopt::overriding
