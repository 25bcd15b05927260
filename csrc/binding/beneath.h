// The kernel that an operator has at a dispatch key, as an object that can be called unboxed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

namespace gpuopt {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15

inline const c10::KernelFunction& kernel_in(const c10::SafeKernelFunction& safe) {
  return safe.kernelFunction();
}

#else

// These versions only allow a boxed call, which costs more than 1 us, and keep the kernel in a
// private member. C++ lets an explicit instantiation name a private member.
template <const auto member>
struct PrivateKernel {
  friend const c10::KernelFunction& kernel_in(const c10::SafeKernelFunction& safe) {
    return safe.*member;
  }
};
template struct PrivateKernel<&c10::SafeKernelFunction::kernel_>;
const c10::KernelFunction& kernel_in(const c10::SafeKernelFunction& safe);

#endif

// A copy, which keeps the kernel alive after its library is gone.
inline c10::KernelFunction computed_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return kernel_in(op.getComputedKernelForDispatchKey(key));
}

}  // namespace gpuopt
