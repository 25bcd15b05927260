// C++ handles of selective scans, and their specification in ATen's operators.
#pragma once

#include <tuple>

#include "binding/op_handle.h"
#include "selective_scan/binding/selective_scan_check.h"

namespace gpuopt::selective {

using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor>;  // out, last_state
// Of u, delta, A, B, C, D, z and delta_bias. An argument that is not given has an empty gradient.
using InputGradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

namespace ops {
GPUOPT_OP(selective_scan, "selective_scan", "",
          Outputs(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                  const TensorOption&, const TensorOption&, const TensorOption&, bool))
GPUOPT_OP(selective_scan_backward, "_selective_scan_backward", "",
          InputGradients(const TensorOption&, const TensorOption&, const Tensor&, const Tensor&,
                         const Tensor&, const Tensor&, const Tensor&, const TensorOption&,
                         const TensorOption&, const TensorOption&, bool))
GPUOPT_OP(selective_scan_update, "selective_scan_update", "",
          Tensor(Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                 const TensorOption&, const TensorOption&, const TensorOption&, bool))
}  // namespace ops

// A loop over the positions, made of differentiable operators without writes. It has derivatives of
// any order, forward mode and batching rules. The second function is the gradient of the first,
// also made of such operators.
Outputs scan_by_aten(const Inputs& in);
InputGradients gradients_by_aten(const TensorOption& out_grad, const TensorOption& last_grad,
                                 const Inputs& in);
Tensor update_by_aten(const UpdateInputs& in);

}  // namespace gpuopt::selective
