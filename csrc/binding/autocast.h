// What kernels for autocast have in common. They call the operator again, without autocast.
#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "binding/op.h"
#include "binding/vmap.h"

namespace gpuopt {

// Autocast refuses questions about devices that it doesn't know, such as Meta.
inline bool is_autocasting(c10::DeviceType device) {
  return at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
}

namespace detail {

template <auto dtype_of, typename Op>
typename Form<Op>::Result cast_call(const Op& op, c10::DeviceType device) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = dtype_of(op, device);
  return call_mapped(op, [&](const at::Tensor& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  });
}

template <typename Op, c10::DeviceType device, auto dtype_of>
typename Form<Op>::Result cast_on(const Op& op) {
  return cast_call<dtype_of>(op, device);
}

template <typename Op, auto rule, auto dtype_of, c10::DeviceType... devices>
typename Form<Op>::Result batched_after_cast(const Op& op) {
  const auto device = std::get<0>(Form<Op>::args(op)).device().type();
  if (((device == devices) || ...) && is_autocasting(device)) {
    return cast_call<dtype_of>(op, device);
  }
  return batched<Op, rule>(op);
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

// AutocastCUDA and AutocastCPU: casts floating-point tensors to dtype_of(op, device).
template <auto dtype_of, c10::DeviceType... devices>
struct Autocast {
  template <c10::DeviceType device>
  static constexpr auto kKey =
      device == at::kCPU ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, At<kKey<devices>, detail::cast_on<Op, devices, dtype_of>>...>(m);
  }
};

// Autocast and FuncTorchBatched. vmap's key comes before autocast's, so the call is cast before the
// rule compares dtypes.
template <auto rule, auto dtype_of, c10::DeviceType... devices>
struct VmapAfterCast {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, Autocast<dtype_of, devices...>,
         Batched<detail::batched_after_cast<Op, rule, dtype_of, devices...>>>(m);
  }
};

// A dtype_of: as ATen's products of matrices, computed in the lower precision. Integers keep their
// dtype.
constexpr auto lower_precision = [](const auto&, c10::DeviceType device) {
  return at::autocast::get_lower_precision_fp_from_device_type(device);
};

// AutocastCUDA: as ATen's sums, in float32 unless dtype is given. ATen's sums on the CPU keep their
// dtype.
struct AutocastSum {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, At<c10::DispatchKey::AutocastCUDA, detail::summed_in_float32<Op>>>(m);
  }
};

}  // namespace gpuopt
