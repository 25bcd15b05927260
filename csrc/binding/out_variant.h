// Autograd kernels of operators that write to an argument.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <type_traits>

#include "binding/grad_node.h"

namespace gpuopt {

// `handle` is an operator of binding/op_handle.h that returns the tensor it writes to.
template <auto handle, typename Op = std::remove_cvref_t<decltype(handle())>>
struct WritingOp;

template <auto handle, typename... Args>
struct WritingOp<handle, c10::TypedOperatorHandle<at::Tensor&(Args...)>> {
  // The Autograd kernel of an out= variant, which has no derivatives.
  static at::Tensor& without_derivatives(c10::DispatchKeySet keys, Args... args) {
    const std::string& name = handle().operator_name().name;
    if ((requires_grad(args) || ...)) torch::autograd::throw_error_out_requires_grad(name.c_str());
    TORCH_CHECK_NOT_IMPLEMENTED(!(is_dual(args) || ...), name,
                                ": out= does not support forward-mode differentiation: expected "
                                "tensors without tangents");
    at::AutoDispatchBelowAutograd guard;
    return handle().redispatch(keys & c10::after_autograd_keyset, std::forward<Args>(args)...);
  }

  // The ADInplaceOrView kernel of an out= or in-place variant. It counts the write, also in no_grad
  // mode.
  static at::Tensor& counted(c10::DispatchKeySet keys, Args... args) {
    (check_written<Args>(args), ...);
    at::Tensor& written = [&]() -> at::Tensor& {
      at::AutoDispatchBelowADInplaceOrView guard;
      return handle().redispatch(keys & c10::after_ADInplaceOrView_keyset,
                                 std::forward<Args>(args)...);
    }();
    torch::autograd::increment_version(written);
    return written;
  }

 private:
  // ATen refuses an inference tensor only after it has written to it.
  template <typename Arg>
  static void check_written(const std::remove_reference_t<Arg>& arg) {
    if constexpr (std::is_same_v<Arg, at::Tensor&>) {
      TORCH_CHECK(!arg.is_inference() || c10::InferenceMode::is_enabled(),
                  handle().operator_name().name,
                  ": Inplace update to inference tensor outside InferenceMode is not allowed: "
                  "expected a normal tensor (clone() one) to write to, got an inference tensor");
    }
  }

  template <typename Arg>
  static bool requires_grad(const Arg& arg) {
    if constexpr (std::is_same_v<Arg, at::Tensor>) {
      return torch::autograd::compute_requires_grad(arg);
    } else {
      return false;
    }
  }

  template <typename Arg>
  static bool is_dual(const Arg& arg) {
    if constexpr (std::is_same_v<Arg, at::Tensor>) {
      return has_tangent(arg);
    } else {
      return false;
    }
  }
};

}  // namespace gpuopt
