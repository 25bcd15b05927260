// A check for operators that write to an argument without returning it, under torch.func.grad, vjp
// and jvp.
#pragma once

#include <ATen/functorch/TensorWrapper.h>  // needs binding/compat on the include path

#include "binding/check.h"

namespace gpuopt {

// torch.func refuses writes to a captured tensor, because a transform would not see their
// derivative. But it only checks operators that return the tensor they write to. At the level of a
// transform a captured tensor has an immutable wrapper.
inline void check_not_captured(const char* op, NamedTensor written) {
  const auto* wrapper = at::functorch::maybeGetTensorWrapper(written.tensor);
  TORCH_CHECK(
      wrapper == nullptr || !wrapper->is_immutable(), op, ": ", written.name,
      " must not be captured by the function that torch.func transforms, as it is written: ",
      "expected an argument of that function, got a captured tensor");
}

}  // namespace gpuopt
