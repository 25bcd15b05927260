// Selective scans as operators of binding/op.h.
#pragma once

#include <tuple>

#include "binding/op.h"
#include "binding/optional.h"

namespace gpuopt::selective {

using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor>;  // out, last_state
// Of u, delta, A, B, C, D, z and delta_bias. An argument that is not given has an empty gradient.
using InputGradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

struct SelectiveScan {
  using Result = Outputs;
  static constexpr std::string_view kSchema =
      "selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D=None, "
      "Tensor? z=None, Tensor? delta_bias=None, bool delta_softplus=False) -> (Tensor out, Tensor "
      "last_state)";
  const Tensor &u, &delta, &A, &B, &C;
  const TensorOption &D, &z, &delta_bias;
  bool softplus;

  // The dtype that all of it is computed in.
  at::ScalarType compute_type() const {
    const auto is_double = [](const Tensor& x) { return x.scalar_type() == at::kDouble; };
    const bool wide = is_double(u) || is_double(delta) || (is_given(z) && is_double(*z));
    return wide ? at::kDouble : at::kFloat;
  }
};

struct SelectiveScanBackward {
  using Result = InputGradients;
  static constexpr std::string_view kSchema =
      "_selective_scan_backward(Tensor? out_grad, Tensor? last_state_grad, Tensor u, Tensor delta, "
      "Tensor A, Tensor B, Tensor C, Tensor? D=None, Tensor? z=None, Tensor? delta_bias=None, "
      "bool delta_softplus=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
      "Tensor)";
  const TensorOption &out_grad, &last_grad;
  const Tensor &u, &delta, &A, &B, &C;
  const TensorOption &D, &z, &delta_bias;
  bool softplus;

  SelectiveScan scan() const { return {u, delta, A, B, C, D, z, delta_bias, softplus}; }
};

// One position: writes to the state and returns the output.
struct SelectiveScanUpdate {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "selective_scan_update(Tensor(a!) state, Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, "
      "Tensor? D=None, Tensor? z=None, Tensor? dt_bias=None, bool dt_softplus=False) -> Tensor";
  Tensor& state;
  const Tensor &x, &dt, &A, &B, &C;
  const TensorOption &D, &z, &dt_bias;
  bool softplus;
};

}  // namespace gpuopt::selective
