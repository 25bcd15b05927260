// gpuopt::causal_conv1d, and causal_conv1d_update for one position: schemas, CPU and Meta kernels,
// derivatives, vmap and autocast.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>

#include "binding/captured.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "conv1d/binding/aten.h"
#include "conv1d/binding/check_causal.h"

namespace gpuopt::conv1d {

Tensor update_by_convolution(const CausalConv1dUpdate& op) {
  const auto& [input, state, weight, bias, activation] = op;
  const SymInt taps = weight.sym_size(1), positions = state.sym_size(2);
  const Tensor window = at::cat({state, input.unsqueeze(2)}, 2);
  const Tensor values = window.narrow_symint(2, positions + 1 - taps, taps);
  const Tensor out =
      Geometry{{1}, {0}, {1}, input.sym_size(1)}
          .convolve(values, weight.unsqueeze(1), bias, to_activation(kUpdateOp, activation))
          .squeeze(2);
  state.copy_(window.narrow_symint(2, 1, positions));
  return out;
}

namespace {

// ---------------------------------------------------------------- causal_conv1d

Tensor causal_conv1d(const CausalConv1d& op) {
  const Activation known = check_causal(op);
  return Geometry{{1}, {op.weight.sym_size(1) - 1, 0}, {1}, op.input.sym_size(-2)}.convolve(
      op.input, op.weight.unsqueeze(1), op.bias, known);
}

// ---------------------------------------------------------------- causal_conv1d_update

Tensor update_checked(const CausalConv1dUpdate& op) {
  check_update_in_place(op);
  return update_by_convolution(op);
}

Tensor update_meta(const CausalConv1dUpdate& op) {
  check_update_in_place(op);
  return at::empty_symint(op.input.sym_sizes(), op.input.options());
}

// If something is differentiated, the update is made of other operators. Its last one copies into
// the state, which brings ATen's rules for in-place operators.
Tensor update_autograd(const CausalConv1dUpdate& op, DispatchKeySet keys) {
  check_not_captured(kUpdateOp, {"state", op.state});
  const bool needs_gradient = requires_grad(op);
  if (needs_gradient || has_tangents(op)) {
    check_update_in_place(op);
    torch::autograd::check_inplace(op.state, needs_gradient);
    return update_by_convolution(op);
  }
  return write_below_autograd(op, keys);
}

// Whether a state (examples, N, C, S) folds into (examples * N, C, S) as a view, which can be
// written in place.
bool folds_as_view(const Tensor& front) {
  const auto sizes = front.sym_sizes(), strides = front.sym_strides();
  return is_known_equal(sizes[0], SymInt(1)) || is_known_equal(sizes[1], SymInt(1)) ||
         is_known_equal(strides[0], sizes[1] * strides[1]);
}

// Calls update(op) under autocast. The state is written to, so it can't be cast. The other operands
// are cast to its dtype.
Tensor call_cast(const CausalConv1dUpdate& op, c10::DeviceType device, const auto& update) {
  const auto& [input, state, weight, bias, activation] = op;
  if (!state.is_floating_point()) return update(op);
  const auto cast = [&, dtype = state.scalar_type()](const auto& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  };
  return update(CausalConv1dUpdate{cast(input), state, cast(weight), cast(bias), activation});
}

// Examples that share weight and bias go into the batch, if the state's strides allow it. Otherwise
// the update is made of other operators, which have batching rules.
Tensor update_batched(const CausalConv1dUpdate& op) {
  const auto& [input, state, weight, bias, activation] = op;
  check_update(op);
  {
    const VmapLevel level;
    const auto input_operand = level.unwrap(input), weight_operand = level.unwrap(weight);
    const auto bias_operand = level.unwrap(value_or_undefined(bias));
    auto state_operand = level.unwrap(state);
    const auto update = [&](const Tensor& values, Tensor& written) {
      return call(CausalConv1dUpdate{values, written, weight_operand.value,
                                     if_defined(bias_operand.value), op.activation});
    };
    const bool shares_weight =
        !weight_operand.batch_dim.has_value() && !bias_operand.batch_dim.has_value();
    if (!state_operand.batch_dim.has_value()) {
      TORCH_CHECK(!input_operand.batch_dim.has_value() && shares_weight, kUpdateOp,
                  ": state must be batched by torch.vmap when another argument is: expected a ",
                  "state that vmap maps over, got one shared by all examples");
      return level.wrap(update(input_operand.value, state_operand.value), std::nullopt);
    }
    const Tensor front = state_operand.value.movedim(*state_operand.batch_dim, 0);
    if (shares_weight && folds_as_view(front)) {
      const std::array<SymInt, 2> batch{front.sym_size(0), front.sym_size(1)};
      Tensor folded = front.flatten(0, 1);
      const Tensor out = update(input_operand.in_front(batch[0]).flatten(0, 1), folded);
      return level.wrap(out.unflatten_symint(0, batch), 0);
    }
  }
  return update_by_convolution(op);
}

// The keys of torch.func come before autocast's, so autocast's casts are made here.
template <auto update>
Tensor cast_before(const CausalConv1dUpdate& op) {
  const auto device = op.state.device().type();
  return is_autocasting(device) ? call_cast(op, device, update) : update(op);
}

template <c10::DeviceType device>
Tensor update_autocast(const CausalConv1dUpdate& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return call_cast(op, device, call<CausalConv1dUpdate>);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<CausalConv1d, Composite<causal_conv1d>>(m);
  register_op<CausalConv1dUpdate, Cpu<update_checked>, Meta<update_meta>, Autograd<update_autograd>,
              Counted, Batched<cast_before<update_batched>>,
              Transformed<cast_before<update_checked>>,
              Resolved<c10::DispatchKey::Conjugate, c10::DispatchKey::Negative>,
              At<c10::DispatchKey::AutocastCUDA, update_autocast<at::kCUDA>>,
              At<c10::DispatchKey::AutocastCPU, update_autocast<at::kCPU>>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
