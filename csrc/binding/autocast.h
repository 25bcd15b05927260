// What kernels for autocast have in common. They call the operator again, without autocast.
#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "binding/op.h"

namespace gpuopt {

namespace detail {

template <typename Op, c10::DeviceType device, auto dtype_of>
typename Form<Op>::Result cast_call(const Op& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = dtype_of(op, device);
  return call_mapped(op, [&](const at::Tensor& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  });
}

template <typename Op>
typename Form<Op>::Result summed_in_float32(const Op& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Op cast = op;
  if (!op.dtype.has_value() && at::autocast::is_eligible(op.self, c10::DeviceType::CUDA)) {
    cast.dtype = at::kFloat;
  }
  return call(cast);
}

}  // namespace detail

// AutocastCUDA or AutocastCPU: casts floating-point tensors to dtype_of(op, device).
template <typename Op, c10::DeviceType device, auto dtype_of>
void impl_autocast(torch::Library& m) {
  impl<Op, detail::cast_call<Op, device, dtype_of>>(m);
}

// A dtype_of: as ATen's products of matrices, computed in the lower precision.
constexpr auto lower_precision = [](const auto&, c10::DeviceType device) {
  return at::autocast::get_lower_precision_fp_from_device_type(device);
};

// AutocastCUDA: as ATen's sums, in float32 unless dtype is given. ATen's sums on the CPU keep their
// dtype.
template <typename Op>
void impl_autocast_sum(torch::Library& m) {
  impl<Op, detail::summed_in_float32<Op>>(m);
}

}  // namespace gpuopt
