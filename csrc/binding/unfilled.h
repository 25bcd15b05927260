// Allocates results that a kernel writes completely. at::empty and at::empty_strided fill their
// result under torch.use_deterministic_algorithms; these functions do not. ATen's structured
// operators allocate in the same way (aten/src/ATen/EmptyTensor.h).
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

namespace gpuopt {

// The current allocator. c10::GetAllocator ignores torch.cuda.memory.change_current_allocator.
inline c10::Allocator* cuda_allocator() {
  return at::detail::getCUDAHooks().getCUDADeviceAllocator();
}

inline at::Tensor unfilled(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const c10::Device device = options.device();
  const auto format = options.memory_format_opt();
  if (!device.is_cuda()) {
    return device.is_cpu() ? at::Tensor(at::detail::empty_cpu(sizes, options))
                           : at::empty(sizes, options);
  }
  const c10::DeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
  return at::Tensor(at::detail::empty_generic(sizes, cuda_allocator(), keys,
                                              options.dtype().toScalarType(), format));
}

inline at::Tensor unfilled_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   const at::TensorOptions& options) {
  const c10::Device device = options.device();
  if (!device.is_cuda()) {
    return device.is_cpu() ? at::Tensor(at::detail::empty_strided_cpu(sizes, strides, options))
                           : at::empty_strided(sizes, strides, options);
  }
  const c10::DeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, cuda_allocator(), keys,
                                                      options.dtype().toScalarType()));
}

// Writes a result to `out`, by write(tensor), once all arguments are checked. `is_apart`: out may
// be written while the inputs are read. Otherwise the result is computed first and then copied.
template <typename Write>
at::Tensor& write_out(at::Tensor& out, at::IntArrayRef sizes, bool is_apart, Write write) {
  if (is_apart) {
    at::native::resize_output(out, sizes);
    write(out);
    return out;
  }
  const at::Tensor result = unfilled(sizes, out.options());
  write(result);
  at::native::resize_output(out, sizes);
  return out.copy_(result);
}

}  // namespace gpuopt
