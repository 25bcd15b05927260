// Upsampling under torch.vmap and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>

#include "binding/vmap.h"
#include "upsample/binding/upsample_check.h"
#include "upsample/binding/upsample_ops.h"

namespace gpuopt::upsample {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using Scale = std::optional<double>;

// ---------------------------------------------------------------- vmap

// Runs call(values, batch) with the examples of vmap as part of the batch. Each example is (N, C,
// H, W). N may be 0, so it is passed on instead of derived from the result.
template <typename Call>
Tensor batched(const Tensor& logical, const SymInt& batch, Call call) {
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(logical);
  if (!operand.batch_dim.has_value()) {  // only another level maps over it
    return level.wrap(call(operand.value, batch), std::nullopt);
  }
  const Tensor front = operand.aligned(4);
  const SymInt examples = front.sym_size(0);
  const Tensor result = call(front.flatten(0, 1), examples * batch);
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{examples, batch}), 0);
}

Tensor forward_vmap(const char* op, const decltype(ops::upsample_nearest2d())& upsample,
                    const Tensor& self, SymIntArrayRef output_size, Scale scales_h,
                    Scale scales_w) {
  const SymSizes sizes = check_forward(op, self, output_size);
  return batched(self, sizes.batch, [&](const Tensor& values, const SymInt&) {
    return upsample.call(values, output_size, scales_h, scales_w);
  });
}

Tensor backward_vmap(const char* op, const decltype(ops::upsample_nearest2d_backward())& upsample,
                     const Tensor& grad_output, SymIntArrayRef output_size,
                     SymIntArrayRef input_size, Scale scales_h, Scale scales_w) {
  const SymSizes sizes = check_backward(op, grad_output, output_size, input_size);
  return batched(grad_output, sizes.batch, [&](const Tensor& values, const SymInt& batch) {
    const std::array<SymInt, 4> shape{batch, sizes.channels, sizes.in_height, sizes.in_width};
    return upsample.call(values, output_size, shape, scales_h, scales_w);
  });
}

Tensor nearest_vmap(const Tensor& self, SymIntArrayRef output_size, Scale scales_h,
                    Scale scales_w) {
  return forward_vmap("gpuopt::upsample_nearest2d", ops::upsample_nearest2d(), self, output_size,
                      scales_h, scales_w);
}

Tensor nearest_backward_vmap(const Tensor& grad_output, SymIntArrayRef output_size,
                             SymIntArrayRef input_size, Scale scales_h, Scale scales_w) {
  return backward_vmap("gpuopt::upsample_nearest2d_backward", ops::upsample_nearest2d_backward(),
                       grad_output, output_size, input_size, scales_h, scales_w);
}

Tensor exact_vmap(const Tensor& self, SymIntArrayRef output_size, Scale scales_h, Scale scales_w) {
  return forward_vmap("gpuopt::upsample_nearest_exact2d", ops::upsample_nearest_exact2d(), self,
                      output_size, scales_h, scales_w);
}

Tensor exact_backward_vmap(const Tensor& grad_output, SymIntArrayRef output_size,
                           SymIntArrayRef input_size, Scale scales_h, Scale scales_w) {
  return backward_vmap("gpuopt::upsample_nearest_exact2d_backward",
                       ops::upsample_nearest_exact2d_backward(), grad_output, output_size,
                       input_size, scales_h, scales_w);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("upsample_nearest2d", nearest_vmap);
  m.impl("upsample_nearest2d_backward", nearest_backward_vmap);
  m.impl("upsample_nearest_exact2d", exact_vmap);
  m.impl("upsample_nearest_exact2d_backward", exact_backward_vmap);
}

// ---------------------------------------------------------------- autocast

// As in ATen, the forward runs in float32 on CUDA. The backward and CPU tensors have no autocast
// policy.
Tensor to_float32(const Tensor& self) {
  return at::autocast::cached_cast(at::kFloat, self, c10::DeviceType::CUDA);
}

Tensor nearest_autocast(const Tensor& self, SymIntArrayRef output_size, Scale scales_h,
                        Scale scales_w) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  return ops::upsample_nearest2d().call(to_float32(self), output_size, scales_h, scales_w);
}

Tensor exact_autocast(const Tensor& self, SymIntArrayRef output_size, Scale scales_h,
                      Scale scales_w) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  return ops::upsample_nearest_exact2d().call(to_float32(self), output_size, scales_h, scales_w);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  m.impl("upsample_nearest2d", nearest_autocast);
  m.impl("upsample_nearest_exact2d", exact_autocast);
}

}  // namespace
}  // namespace gpuopt::upsample
