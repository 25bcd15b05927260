// gpuopt::causal_conv1d, and causal_conv1d_update for one position: schemas, CPU and Meta kernels,
// derivatives, vmap and autocast.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>

#include "binding/captured.h"
#include "binding/functionalize.h"
#include "binding/grad_node.h"
#include "binding/vmap.h"
#include "conv1d/binding/aten.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "causal_conv1d(Tensor input, Tensor weight, Tensor? bias=None, str activation=\"none\") "
      "-> Tensor",
      tags);
  m.def(
      "causal_conv1d_update(Tensor input, Tensor(a!) state, Tensor weight, Tensor? bias=None, "
      "str activation=\"none\") -> Tensor",
      tags);
}

namespace gpuopt::conv1d {

Tensor update_by_convolution(const Tensor& input, Tensor& state, const Tensor& weight,
                             const OptionalTensor& bias, Activation activation) {
  const SymInt taps = weight.sym_size(1), positions = state.sym_size(2);
  const Tensor window = at::cat({state, input.unsqueeze(2)}, 2);
  const Tensor values = window.narrow_symint(2, positions + 1 - taps, taps);
  const Tensor out = Geometry{{1}, {0}, {1}, input.sym_size(1)}
                         .convolve(values, weight.unsqueeze(1), bias, activation)
                         .squeeze(2);
  state.copy_(window.narrow_symint(2, 1, positions));
  return out;
}

namespace {

// ---------------------------------------------------------------- causal_conv1d

Tensor causal_conv1d(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                     std::string_view activation) {
  const Activation known = check_causal(input, weight, bias, activation);
  return Geometry{{1}, {weight.sym_size(1) - 1, 0}, {1}, input.sym_size(-2)}.convolve(
      input, weight.unsqueeze(1), bias, known);
}

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) { m.impl("causal_conv1d", causal_conv1d); }

// Without a kernel of its own for vmap, a composite operator would be a loop over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { m.impl("causal_conv1d", causal_conv1d); }

// ---------------------------------------------------------------- causal_conv1d_update

Tensor update_cpu(const Tensor& input, Tensor& state, const Tensor& weight,
                  const OptionalTensor& bias, std::string_view activation) {
  const Activation known = check_update_in_place(input, state, weight, bias, activation);
  return update_by_convolution(input, state, weight, bias, known);
}

Tensor update_meta(const Tensor& input, Tensor& state, const Tensor& weight,
                   const OptionalTensor& bias, std::string_view activation) {
  check_update_in_place(input, state, weight, bias, activation);
  return at::empty_symint(input.sym_sizes(), input.options());
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { m.impl("causal_conv1d_update", update_cpu); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { m.impl("causal_conv1d_update", update_meta); }

// Resolves conjugated and negated views. PyTorch's fallbacks for them expect an operator that
// writes to its first argument and returns it.
Tensor update_resolved(const Tensor& input, Tensor& state, const Tensor& weight,
                       const OptionalTensor& bias, std::string_view activation) {
  const auto resolved = [](const Tensor& tensor) {
    return at::resolve_neg(at::resolve_conj(tensor));
  };
  OptionalTensor offset;
  if (is_given(bias)) offset = resolved(*bias);
  Tensor values = resolved(state);
  const Tensor out = ops::causal_conv1d_update().call(resolved(input), values, resolved(weight),
                                                      offset, activation);
  if (!values.is_same(state)) state.copy_(values);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, Conjugate, m) { m.impl("causal_conv1d_update", update_resolved); }
TORCH_LIBRARY_IMPL(gpuopt, Negative, m) { m.impl("causal_conv1d_update", update_resolved); }

// If something is differentiated, the update is made of other operators. Its last one copies into
// the state, which brings ATen's rules for in-place operators.
Tensor update_autograd(DispatchKeySet keys, const Tensor& input, Tensor& state,
                       const Tensor& weight, const OptionalTensor& bias,
                       std::string_view activation) {
  check_not_captured(kUpdateOp, {"state", state});
  const bool requires_grad = torch::autograd::compute_requires_grad(input, state, weight, bias);
  const bool tangent = has_tangent(input) || has_tangent(state) || has_tangent(weight) ||
                       (is_given(bias) && has_tangent(*bias));
  if (requires_grad || tangent) {
    const Activation known = check_update_in_place(input, state, weight, bias, activation);
    torch::autograd::check_inplace(state, requires_grad);
    return update_by_convolution(input, state, weight, bias, known);
  }
  at::AutoDispatchBelowAutograd guard;
  return ops::causal_conv1d_update().redispatch(keys & c10::after_autograd_keyset, input, state,
                                                weight, bias, activation);
}

// Counts the write to the state. This key lies below Autograd, so it counts in no_grad mode too.
Tensor update_version(DispatchKeySet keys, const Tensor& input, Tensor& state, const Tensor& weight,
                      const OptionalTensor& bias, std::string_view activation) {
  const Tensor out = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return ops::causal_conv1d_update().redispatch(keys & c10::after_ADInplaceOrView_keyset, input,
                                                  state, weight, bias, activation);
  }();
  torch::autograd::increment_version(state);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { m.impl("causal_conv1d_update", update_autograd); }
TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { m.impl("causal_conv1d_update", update_version); }

// Whether a state (examples, N, C, S) folds into (examples * N, C, S) as a view, which can be
// written in place.
bool folds_as_view(const Tensor& front) {
  const auto sizes = front.sym_sizes(), strides = front.sym_strides();
  return is_known_equal(sizes[0], SymInt(1)) || is_known_equal(sizes[1], SymInt(1)) ||
         is_known_equal(strides[0], sizes[1] * strides[1]);
}

// Calls update(input, state, weight, bias) under autocast. The state is written to, so it can't be
// cast. The other operands are cast to its dtype.
Tensor call_cast(const Tensor& input, Tensor& state, const Tensor& weight,
                 const OptionalTensor& bias, c10::DeviceType device, const auto& update) {
  if (!state.is_floating_point()) return update(input, state, weight, bias);
  const auto cast = [&](const auto& tensor) {
    return at::autocast::cached_cast(state.scalar_type(), tensor, device);
  };
  return update(cast(input), state, cast(weight), cast(bias));
}

// Examples that share weight and bias go into the batch, if the state's strides allow it. Otherwise
// the update is made of other operators, which have batching rules.
Tensor update_batched(const Tensor& input, Tensor& state, const Tensor& weight,
                      const OptionalTensor& bias, std::string_view activation) {
  const Activation known = check_update(input, state, weight, bias, activation);
  {
    const VmapLevel level;
    const auto own_input = level.unwrap(input), own_weight = level.unwrap(weight);
    const auto own_bias = level.unwrap(value_or_undefined(bias));
    auto own_state = level.unwrap(state);
    const auto update = [&](const Tensor& values, Tensor& written) {
      return ops::causal_conv1d_update().call(values, written, own_weight.value,
                                              if_defined(own_bias.value), activation);
    };
    const bool shares_weight = !own_weight.batch_dim.has_value() && !own_bias.batch_dim.has_value();
    if (!own_state.batch_dim.has_value()) {
      TORCH_CHECK(!own_input.batch_dim.has_value() && shares_weight, kUpdateOp,
                  ": state must be batched by torch.vmap when another argument is: expected a ",
                  "state that vmap maps over, got one shared by all examples");
      return level.wrap(update(own_input.value, own_state.value), std::nullopt);
    }
    const Tensor front = own_state.value.movedim(*own_state.batch_dim, 0);
    if (shares_weight && folds_as_view(front)) {
      const std::array<SymInt, 2> batch{front.sym_size(0), front.sym_size(1)};
      Tensor folded = front.flatten(0, 1);
      const Tensor out = update(own_input.in_front(batch[0]).flatten(0, 1), folded);
      return level.wrap(out.unflatten_symint(0, batch), 0);
    }
  }
  return update_by_convolution(input, state, weight, bias, known);
}

// The keys of torch.func come before autocast's, so autocast's casts are made here.
Tensor cast_before(const Tensor& input, Tensor& state, const Tensor& weight,
                   const OptionalTensor& bias, const auto& update) {
  const auto device = state.device().type();
  return is_autocasting(device) ? call_cast(input, state, weight, bias, device, update)
                                : update(input, state, weight, bias);
}

Tensor update_vmap(const Tensor& input, Tensor& state, const Tensor& weight,
                   const OptionalTensor& bias, std::string_view activation) {
  return cast_before(
      input, state, weight, bias,
      [&](const Tensor& x, Tensor& values, const Tensor& w, const OptionalTensor& b) {
        return update_batched(x, values, w, b, activation);
      });
}

Tensor update_transformed(DispatchKeySet keys, const Tensor& input, Tensor& state,
                          const Tensor& weight, const OptionalTensor& bias,
                          std::string_view activation) {
  if (!is_functionalizing()) {
    return call_transforms(ops::causal_conv1d_update(), keys, input, state, weight, bias,
                           activation);
  }
  return cast_before(
      input, state, weight, bias,
      [&](const Tensor& x, Tensor& values, const Tensor& w, const OptionalTensor& b) {
        const Activation known = check_update_in_place(x, values, w, b, activation);
        return update_by_convolution(x, values, w, b, known);
      });
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { m.impl("causal_conv1d_update", update_vmap); }
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchDynamicLayerFrontMode, m) {
  m.impl("causal_conv1d_update", update_transformed);
}

template <c10::DeviceType device>
Tensor update_autocast(const Tensor& input, Tensor& state, const Tensor& weight,
                       const OptionalTensor& bias, std::string_view activation) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return call_cast(input, state, weight, bias, device,
                   [&](const auto& x, auto& values, const auto&... others) {
                     return ops::causal_conv1d_update().call(x, values, others..., activation);
                   });
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  m.impl("causal_conv1d_update", update_autocast<c10::DeviceType::CUDA>);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  m.impl("causal_conv1d_update", update_autocast<c10::DeviceType::CPU>);
}

}  // namespace
}  // namespace gpuopt::conv1d
