// Functionalization of operators that write to an argument: torch.compile and torch.export trace
// the functional operator and then make its result the value of the argument.
#pragma once

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>

namespace gpuopt {

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
at::Tensor& functionalize_write(const char* op, at::Tensor& written,
                                at::TensorList inputs, Functional functional,
                                Mutating mutating) {
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
