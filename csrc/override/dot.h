// Dot products. ATen's vdot of real vectors calls dot.
#pragma once

#include <ATen/ops/dot_ops.h>
#include <ATen/ops/vdot_ops.h>

#include "dot/binding/dot_ops.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

// All sizes are taken. A call costs 5 us of host time less than ATen's, which calls cuBLAS. The
// kernel is 1.02 to 2.1 times as fast.
inline Reason decide_dot(const Tensor& self, const Tensor& tensor) {
  if (!is_plain(self) || !is_plain(tensor)) return Reason::kUnsupported;
  if (self.dim() != 1 || self.sizes() != tensor.sizes()) return Reason::kUnsupported;
  const at::ScalarType dtype = self.scalar_type();
  if (tensor.scalar_type() != dtype || !on_device_of(self, {tensor})) return Reason::kUnsupported;
  // benchmarks/results/nvidia-h200/dot.json has float64 and complex64.
  const bool more = dtype == at::kDouble || dtype == at::kComplexFloat;
  return is_measured(dtype) || more ? Reason::kTaken : Reason::kDtype;
}

struct Dot {
  using Aten = at::_ops::dot;
  static constexpr Operator kOperator = Operator::kDot;

  static Reason decide(const Tensor& self, const Tensor& tensor) {
    return decide_dot(self, tensor);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const Tensor& tensor) {
    return redispatch(gpuopt::Dot{self, tensor}, key);
  }
};

struct Vdot {
  using Aten = at::_ops::vdot;
  static constexpr Operator kOperator = Operator::kVdot;

  static Reason decide(const Tensor& self, const Tensor& other) {
    if (!self.is_complex()) return Reason::kDtype;
    return decide_dot(self, other);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const Tensor& other) {
    return redispatch(gpuopt::Vdot{self, other}, key);
  }
};

}  // namespace gpuopt::overriding
