// Functionalization of operators that write to an argument.
//
// An operator that returns this argument has a kernel made of functionalize_write(): torch.compile
// and torch.export trace the functional operator and then make its result the value of the
// argument.
//
// An operator that returns something else has no functional form. torch.compile wraps it, and keeps
// the write in place, as long as it has no kernel for this dispatch key. torch.func.functionalize,
// which nested_compile_region calls, refuses it. So a kernel for the key of torch.func composes the
// write of other operators if is_functionalizing(), and otherwise calls the transforms.
#pragma once

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/functorch/DynamicLayer.h>  // needs binding/compat on the include path

#include <type_traits>

#include "binding/beneath.h"

namespace gpuopt {

// Whether the innermost transform of torch.func is functionalize.
inline bool is_functionalizing() {
  const auto layer = at::functorch::maybeCurrentDynamicLayer();
  return layer.has_value() && layer->key() == at::functorch::TransformType::Functionalize;
}

// Calls the transforms of torch.func, as for an operator without a kernel for their key.
template <typename Result, typename... Args>
Result call_transforms(const c10::TypedOperatorHandle<Result(Args...)>& op,
                       c10::DispatchKeySet keys, std::type_identity_t<Args>... args) {
  static const c10::KernelFunction fallback =
      computed_kernel(c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor"),
                      c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  return fallback.call<Result, Args...>(op, keys, std::forward<Args>(args)...);
}

inline at::Tensor functional_value(const at::Tensor& tensor) {
  namespace functional = at::functionalization::impl;
  if (!functional::isFunctionalTensor(tensor)) return tensor;
  functional::sync(tensor);
  return functional::from_functional_tensor(tensor);
}

// Replaces a write to `written` by the result of `functional()`, which must pass each input through
// functional_value. If `written` is not being functionalized, it runs `mutating()`, the write
// itself.
template <typename Functional, typename Mutating>
at::Tensor& functionalize_write(const char* op, at::Tensor& written, at::TensorList inputs,
                                Functional functional, Mutating mutating) {
  namespace impl = at::functionalization::impl;
  if (!impl::isFunctionalTensor(written)) {
    for (const at::Tensor& input : inputs) {
      TORCH_CHECK(!impl::isFunctionalTensor(input), op,
                  ": a tensor that is not functionalized can't be written from one that is");
    }
    at::AutoDispatchSkipFunctionalize guard;
    mutating();
    return written;
  }
  at::Tensor result;
  {
    at::AutoDispatchSkipFunctionalize guard;
    result = functional();
  }
  impl::replace_(written, result);
  impl::commit_update(written);
  impl::sync(written);
  return written;
}

}  // namespace gpuopt
