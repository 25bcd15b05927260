// Transposition for C++ callers. It calls through the dispatcher, so autograd, vmap and tracing see
// the calls.
#pragma once

#include "binding/op_handle.h"

namespace gpuopt {

namespace ops {
GPUOPT_OP(transpose2d, "transpose2d", "", at::Tensor(const at::Tensor&))
// out.copy_(self), which transposes where transpose::transposition_of() finds a transposition.
GPUOPT_OP(copy_transposed, "_copy_transposed", "", at::Tensor&(at::Tensor&, const at::Tensor&))
}  // namespace ops

inline at::Tensor transpose2d(const at::Tensor& self) { return ops::transpose2d().call(self); }

}  // namespace gpuopt
