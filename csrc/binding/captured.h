// Operators that write to an argument which isn't their result, under torch.func.grad, vjp and jvp.
#pragma once

#include <ATen/functorch/TensorWrapper.h>  // needs binding/compat on the include path

#include "binding/check.h"

namespace gpuopt {

// torch.func itself refuses to write to a captured tensor, of which a transform would not see the
// derivative, but only knows operators that return what they write to. At a transform's level a
// captured tensor comes in an immutable wrapper.
inline void check_not_captured(const char* op, NamedTensor written) {
  const auto* wrapper = at::functorch::maybeGetTensorWrapper(written.tensor);
  TORCH_CHECK(
      wrapper == nullptr || !wrapper->is_immutable(), op, ": ", written.name,
      " must not be captured by the function that torch.func transforms, as it is written: ",
      "expected an argument of that function, got a captured tensor");
}

}  // namespace gpuopt
