// Layer norm and RMS norm: schemas, and the kernels for CPU, Meta and vmap. The schemas of the
// ladders.
#include <ATen/ATen.h>

#include "binding/autocast.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "norm/binding/norm_formula.h"
#include "norm/ladder/norm_ladder.h"

namespace gpuopt::norm {
namespace {

using c10::SymInt;

const RegisterLadder forward_ladder(
    kForwardLadder, "layer_norm(Tensor input, Tensor weight, Tensor bias, int step) -> Tensor");
const RegisterLadder backward_ladder(
    kBackwardLadder,
    "layer_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor weight, int "
    "step) -> (Tensor, Tensor, Tensor)");

// ---------------------------------------------------------------- the functions for users

// Checks the arguments, and returns the number of normalised dimensions.
template <typename Op>
int64_t check_call(const Op& op) {
  const char* name = name_of<Op>();
  check_input(name, op.input);
  if constexpr (!requires { op.bias; }) {
    TORCH_CHECK_VALUE(static_cast<int64_t>(op.shape.size()) <= op.input.dim(), name,
                      ": input must have the dimensions of normalized_shape: expected at least ",
                      op.shape.size(), ", got shape ", op.input.sym_sizes());
  }
  const int64_t dims = check_shape(name, op.input, op.shape);
  check_parameters(name, op.input, op.weight, bias_of(op), op.shape);
  if constexpr (kHasResidual<Op>) check_like_input(name, {"residual", op.residual}, op.input);
  return dims;
}

// On CUDA, autocast computes a layer norm in float32, as ATen's. It has no rule for RMS norm.
Tensor layer_norm(const LayerNorm& op) {
  const auto device = op.input.device().type();
  if (device == at::kCUDA && is_autocasting(device)) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return call_mapped(op, [&](const Tensor& tensor) {
      return at::autocast::cached_cast(at::kFloat, tensor, device);
    });
  }
  const int64_t dims = check_call(op);
  return std::get<0>(call(LayerNormRows{op.input, op.weight, op.bias, dims, op.eps}));
}

// Autocast does not change the dtype of the sum. So it has a kernel of its own, as has the sum of
// two dtypes.
AddLayerNorm::Result add_layer_norm(const AddLayerNorm& op) {
  const auto device = op.input.device().type();
  if ((device == at::kCUDA && is_autocasting(device)) ||
      op.residual.scalar_type() != op.input.scalar_type()) {
    const Tensor sum = summed(op);
    return {call(LayerNorm{sum, op.shape, op.weight, op.bias, op.eps}), sum};
  }
  const int64_t dims = check_call(op);
  const auto [out, mean, rstd, sum] =
      call(AddLayerNormRows{op.input, op.residual, op.weight, op.bias, dims, op.eps});
  return {out, sum};
}

// Whether kernels support the dtypes. ATen composes an RMS norm of others.
template <typename Op>
bool are_supported(const Op& op) {
  const auto dtype = op.input.scalar_type();
  if (!is_real_float(dtype)) return !op.input.is_complex();
  if (!is_given(op.weight) || op.weight->scalar_type() == dtype) return true;
  return op.input.element_size() == 2 && op.weight->scalar_type() == at::kFloat;
}

Tensor rms_norm(const RmsNorm& op) {
  if (!are_supported(op)) return at::rms_norm_symint(op.input, op.shape, op.weight, op.eps);
  const int64_t dims = check_call(op);
  const double eps = op.eps.value_or(default_eps(op.input));
  return std::get<0>(call(RmsNormRows{op.input, op.weight, dims, eps}));
}

AddRmsNorm::Result add_rms_norm(const AddRmsNorm& op) {
  if (!are_supported(op) || op.residual.scalar_type() != op.input.scalar_type()) {
    const Tensor sum = summed(op);
    return {call(RmsNorm{sum, op.shape, op.weight, op.eps}), sum};
  }
  const int64_t dims = check_call(op);
  const double eps = op.eps.value_or(default_eps(op.input));
  const auto [out, rstd, sum] = call(AddRmsNormRows{op.input, op.residual, op.weight, dims, eps});
  return {out, sum};
}

// ---------------------------------------------------------------- CPU: ATen's operators

LayerNormRows::Result on_cpu(const LayerNormRows& op) {
  check(op);
  const auto dtype = op.input.scalar_type(), compute = compute_type(op.input);
  const auto cast = [&](const TensorOption& tensor) {
    return is_given(tensor) ? TensorOption(tensor->to(compute)) : std::nullopt;
  };
  const auto [out, mean, rstd] =
      at::native_layer_norm(op.input.to(compute), op.input.sizes().slice(op.input.dim() - op.dims),
                            cast(op.weight), cast(op.bias), op.eps);
  return {out.to(dtype), mean, rstd};
}

RmsNormRows::Result on_cpu(const RmsNormRows& op) {
  check(op);
  const auto dtype = op.input.scalar_type(), compute = compute_type(op.input);
  const Tensor x = op.input.to(compute).contiguous();
  const Tensor rstd =
      x.mul(x).mean(last_dims(op.dims), /*keepdim=*/true).add(op.eps).rsqrt().contiguous();
  const Tensor out = x.mul(rstd);
  return {(is_given(op.weight) ? out.mul(op.weight->to(compute)) : out).to(dtype), rstd};
}

// An addition and a norm, for CPU and vmap.
template <typename Op>
typename Op::Result add_rows_by_steps(const Op& op) {
  check(op);
  const Tensor sum = summed(op).contiguous();
  return std::tuple_cat(call(op.of(sum)), std::tuple(sum));
}

template <typename Op>
typename Op::Result gradients_cpu(const Op& op) {
  check(op);
  return gradients_on_cpu(op);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
typename Op::Result rows_meta(const Op& op) {
  check(op);
  const auto like_input = [&](bool is_wanted) {
    if (!is_wanted) return Tensor();
    return at::empty_symint(op.input.sym_sizes(), op.input.options());
  };
  const Tensor rstd = at::empty_symint(statistics_sizes(op.input, op.dims),
                                       op.input.options().dtype(compute_type(op.input)));
  return results_of<Op>(like_input(true), Op::kIsRms ? Tensor() : at::empty_like(rstd), rstd,
                        like_input(kHasResidual<Op>));
}

template <typename Op>
typename Op::Result gradients_meta(const Op& op) {
  check(op);
  const auto dtype = is_given(op.weight) ? op.weight->scalar_type() : op.input.scalar_type();
  const auto empty = [&](bool is_wanted, c10::SymIntArrayRef sizes, at::ScalarType type) {
    return is_wanted ? at::empty_symint(sizes, op.input.options().dtype(type)) : Tensor();
  };
  const auto sizes = op.input.sym_sizes(), shape = sizes.slice(op.input.dim() - op.dims);
  return gradients_of<Op>(empty(op.mask[0], sizes, op.input.scalar_type()),
                          empty(op.mask[1], shape, dtype), empty(op.mask.back(), shape, dtype));
}

// ---------------------------------------------------------------- vmap

// Examples are rows. A weight or bias of each example is applied by other operators, in the compute
// type, so that results are rounded once.
template <typename Op>
typename Op::Result rows_vmap(const Op& op, const VmapLevel& level, const SymInt& examples) {
  const Tensor input = level.unwrap(op.input).in_front(examples);
  const auto unwrap = [&](const TensorOption& tensor) {
    return is_given(tensor) ? level.unwrap(*tensor) : VmapLevel::Operand{};
  };
  const auto weight = unwrap(op.weight), bias = unwrap(bias_of(op));
  const bool is_shared = !weight.batch_dim.has_value() && !bias.batch_dim.has_value();
  const TensorOption common_weight = is_shared ? if_defined(weight.value) : std::nullopt;
  const TensorOption common_bias = is_shared ? if_defined(bias.value) : std::nullopt;
  const Tensor values = is_shared ? input : input.to(compute_type(input));
  const auto apply = [&](Tensor out) {
    if (is_shared) return level.wrap(out, 0);
    if (weight.value.defined()) out = out.mul(weight.aligned(op.input.dim()));
    if (bias.value.defined()) out = out.add(bias.aligned(op.input.dim()));
    return level.wrap(out.to(input.scalar_type()), 0);
  };
  if constexpr (Op::kIsRms) {
    const auto [out, rstd] = call(Op{values, common_weight, op.dims, op.eps});
    return {apply(out), level.wrap(rstd, 0)};
  } else {
    const auto [out, mean, rstd] = call(Op{values, common_weight, common_bias, op.dims, op.eps});
    return {apply(out), level.wrap(mean, 0), level.wrap(rstd, 0)};
  }
}

// The gradients of the weights differ from example to example, so vmap can't fold the examples of
// the backward.
template <typename Op>
typename Op::Result gradients_vmap(const Op& op) {
  check(op);
  return gradients_by_aten(op);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<LayerNorm, Composite<layer_norm>>(m);
  register_op<RmsNorm, Composite<rms_norm>>(m);
  register_op<AddLayerNorm, Composite<add_layer_norm>>(m);
  register_op<AddRmsNorm, Composite<add_rms_norm>>(m);
  RowsOps::for_each([&]<typename Op>() {
    register_op<Op, Cpu<KernelOf<Op>(on_cpu)>, Meta<rows_meta<Op>>, Vmap<rows_vmap<Op>>>(m);
  });
  AddRowsOps::for_each([&]<typename Op>() {
    register_op<Op, Cpu<add_rows_by_steps<Op>>, Meta<rows_meta<Op>>,
                Batched<add_rows_by_steps<Op>>>(m);
  });
  GradientOps::for_each([&]<typename Op>() {
    register_op<Op, Cpu<gradients_cpu<Op>>, Meta<gradients_meta<Op>>, Batched<gradients_vmap<Op>>>(
        m);
  });
}

}  // namespace
}  // namespace gpuopt::norm
