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

inline Reason decide_vdot(const Tensor& self, const Tensor& other) {
  return self.is_complex() ? decide_dot(self, other) : Reason::kDtype;
}

using Dot = Same<at::_ops::dot, operator_named("dot"), gpuopt::Dot, decide_dot>;
using Vdot = Same<at::_ops::vdot, operator_named("vdot"), gpuopt::Vdot, decide_vdot>;

}  // namespace gpuopt::overriding
