// Handles that call the dot products through the dispatcher, so that autograd, vmap, autocast and
// tracing see the calls.
#pragma once

#include "binding/op_handle.h"

namespace gpuopt::ops {

GPUOPT_OP(dot, "dot", "", at::Tensor(const at::Tensor&, const at::Tensor&))
GPUOPT_OP(dot_out, "dot", "out", at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&))
GPUOPT_OP(vdot, "vdot", "", at::Tensor(const at::Tensor&, const at::Tensor&))
GPUOPT_OP(vdot_out, "vdot", "out", at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&))
GPUOPT_OP(dot_rows, "dot_rows", "", at::Tensor(const at::Tensor&, const at::Tensor&))
GPUOPT_OP(dot_fast_atomic, "dot_fast_atomic", "", at::Tensor(const at::Tensor&, const at::Tensor&))

}  // namespace gpuopt::ops
