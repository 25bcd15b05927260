// Group and batch norm in ATen's differentiable operators: CPU tensors, and all higher derivatives.
#include "norm/binding/norm_channels_formula.h"

#include <ATen/ATen.h>

#include "binding/grad_node.h"

namespace gpuopt::norm {

Tensor laid_out_as(const Tensor& tensor, const Tensor& input) {
  if (!is_channels_last(input)) return tensor.contiguous();
  return tensor.movedim(1, -1).contiguous().movedim(-1, 1);
}

namespace {

using namespace autograd_names;
using c10::SymInt;

// Factors or addends, which broadcast with the input.
Tensor of_channels(const Tensor& parameter, const Tensor& input) {
  Tensor found = parameter.to(compute_type(input));
  for (int64_t d = 2; d < input.dim(); ++d) found = found.unsqueeze(-1);
  return found;
}

// Tensors as (samples, groups, channels of a group, positions), and what is normalised together.
struct GroupedView {
  std::vector<SymInt> sizes;
  at::DimVector dims;
  at::ScalarType compute;

  template <typename Op>
  explicit GroupedView(const Op& op) : compute(compute_type(op.input)) {
    const auto shape = op.input.sym_sizes();
    SymInt positions = 1;
    for (const SymInt& size : shape.slice(2)) positions = positions * size;
    sizes = {shape[0], groups_of(op), shape[1] / groups_of(op), positions};
    if (Op::kIsBatch) dims.push_back(0);
    dims.push_back(2);
    dims.push_back(3);
  }

  Tensor of(const Tensor& tensor) const { return tensor.to(compute).reshape_symint(sizes); }
  Tensor of_groups(const Tensor& statistic) const {
    const SymInt samples = dims.size() == 3 ? SymInt(1) : sizes[0];
    return statistic.to(compute).reshape_symint({samples, sizes[1], SymInt(1), SymInt(1)});
  }
  Tensor mean(const Tensor& tensor) const { return tensor.mean(dims, /*keepdim=*/true); }
};

struct GroupedNormal {
  Tensor values, mean, rstd, squares;  // the mean squared deviation
};

// From the statistics of a call, which have no derivatives.
template <typename Op>
GroupedNormal given_normal(const Op& op, const GroupedView& view, const Tensor& input) {
  GroupedNormal found;
  if constexpr (requires { op.rstd; }) {
    found.mean = view.of_groups(op.mean);
    found.rstd = view.of_groups(op.rstd);
  } else if constexpr (Op::kIsBatch) {
    found.mean = view.of_groups(*op.mean);
    found.rstd = view.of_groups(*op.variance).add(op.eps).rsqrt();
  }
  found.values = view.of(input).sub(found.mean).mul(found.rstd);
  return found;
}

template <typename Op>
GroupedNormal grouped_normal(const Op& op, const GroupedView& view, const Tensor& input) {
  if (has_given_statistics(op)) return given_normal(op, view, input);
  GroupedNormal found;
  const Tensor x = view.of(input);
  found.mean = view.mean(x);
  const Tensor centred = x.sub(found.mean);
  found.squares = view.mean(centred.mul(centred));
  found.rstd = found.squares.add(op.eps).rsqrt();
  found.values = centred.mul(found.rstd);
  return found;
}

// What the activation is applied to, from the normalised values.
Tensor affine_of(const Tensor& input, const Tensor& normal, const TensorOption& weight,
                 const TensorOption& bias) {
  Tensor out = normal.reshape_symint(input.sym_sizes());
  if (is_given(weight)) out = out.mul(of_channels(*weight, input));
  return is_given(bias) ? out.add(of_channels(*bias, input)) : out;
}

template <typename Op>
ChannelNormal forward_formula(const Op& op) {
  const GroupedView view(op);
  const GroupedNormal normal = grouped_normal(op, view, op.input);
  const Tensor affine = affine_of(op.input, normal.values, op.weight, op.bias);
  const Tensor out = activated(affine, activation_of(op)).to(op.input.scalar_type());
  std::vector<SymInt> sizes{view.sizes[1]};
  if (!Op::kIsBatch) sizes.insert(sizes.begin(), view.sizes[0]);
  ChannelNormal found{laid_out_as(out, op.input), normal.mean.reshape_symint(sizes),
                      normal.rstd.reshape_symint(sizes), Tensor()};
  if (Op::kIsBatch && normal.squares.defined()) {
    const SymInt count = view.sizes[0] * view.sizes[3];
    found.variance =
        normal.squares.reshape_symint(sizes).mul(at::Scalar(count)).div(at::Scalar(count - 1));
  } else if (Op::kIsBatch) {
    found.variance = at::empty({0}, normal.mean.options());
  }
  return found;
}

// rstd * (change - mean(change) - normal * mean(change * normal)), or rstd * change if statistics
// are given. It is the derivative of the normalised values, which is symmetric.
template <typename Op>
Tensor derivative(const Op& op, const GroupedView& view, const GroupedNormal& normal,
                  const Tensor& change) {
  if (has_given_statistics(op)) return normal.rstd.mul(change);
  const Tensor product = view.mean(change.mul(normal.values));
  return normal.rstd.mul(change.sub(view.mean(change)).sub(normal.values.mul(product)));
}

template <typename Op>
std::tuple<Tensor, Tensor, Tensor> gradient_formula(const Op& op, const GroupedView& view,
                                                    const GroupedNormal& normal) {
  Tensor of_affine = op.grad.to(view.compute);
  if (activation_of(op) != Activation::kNone) {
    const Tensor affine = affine_of(op.input, normal.values, op.weight, bias_of(op));
    of_affine = activation_backward(of_affine, affine, activation_of(op));
  }
  const Tensor grad = view.of(of_affine);
  Tensor input, weight, bias;
  if (op.mask[0]) {
    const Tensor scaled =
        is_given(op.weight) ? view.of(of_affine.mul(of_channels(*op.weight, op.input))) : grad;
    input = derivative(op, view, normal, scaled)
                .to(op.input.scalar_type())
                .reshape_symint(op.input.sym_sizes());
    input = laid_out_as(input, op.input);
  }
  const auto dtype = parameter_type(op);
  const auto over_samples = [&](const Tensor& terms) {
    return terms.sum(at::IntArrayRef{0, 3}).reshape_symint(channel_sizes(op.input)).to(dtype);
  };
  if (op.mask[1]) weight = over_samples(grad.mul(normal.values));
  if (op.mask[2]) bias = over_samples(grad);
  return {input, weight, bias};
}

template <typename Op>
typename Op::Result differentiable_gradients(const Op& op) {
  const GroupedView view(op);
  return gradient_formula(op, view, grouped_normal(op, view, op.input));
}
template <typename Op>
typename Op::Result given_gradients(const Op& op) {
  const GroupedView view(op);
  return gradient_formula(op, view, given_normal(op, view, op.input));
}

template <typename Op>
Tensor tangent_formula(const Op& op) {
  const GroupedView view(op);
  const GroupedNormal normal = grouped_normal(op, view, primal_of(op.input));
  const auto ungrouped = [&](const Tensor& tensor) {
    return tensor.reshape_symint(op.input.sym_sizes());
  };
  Tensor sum;
  const auto add = [&](const Tensor& term) { sum = sum.defined() ? sum.add(term) : term; };
  if (has_tangent(op.input)) {
    const Tensor change = ungrouped(derivative(op, view, normal, view.of(tangent_of(op.input))));
    add(is_given(op.weight) ? change.mul(of_channels(primal_of(*op.weight), op.input)) : change);
  }
  if (is_given(op.weight) && has_tangent(*op.weight)) {
    add(ungrouped(normal.values).mul(of_channels(tangent_of(*op.weight), op.input)));
  }
  if (is_given(op.bias) && has_tangent(*op.bias)) {
    // A result must not share its tangent with an argument.
    const Tensor change =
        of_channels(tangent_of(*op.bias), op.input).expand_symint(op.input.sym_sizes());
    sum = sum.defined() ? sum.add(change) : change.clone(at::MemoryFormat::Contiguous);
  }
  if (activation_of(op) != Activation::kNone) {
    const auto primal = [](const TensorOption& tensor) {
      return is_given(tensor) ? TensorOption(primal_of(*tensor)) : std::nullopt;
    };
    const Tensor affine = affine_of(op.input, normal.values, primal(op.weight), primal(op.bias));
    sum = activation_backward(sum, affine, activation_of(op));
  }
  return laid_out_as(sum.to(op.input.scalar_type()), op.input);
}

}  // namespace

ChannelNormal normalized_by_aten(const GroupNormGroups& op) { return forward_formula(op); }
ChannelNormal normalized_by_aten(const BatchNormChannels& op) { return forward_formula(op); }
GroupNormGradients::Result gradients_by_aten(const GroupNormGradients& op) {
  return differentiable_gradients(op);
}
BatchNormGradients::Result gradients_by_aten(const BatchNormGradients& op) {
  return differentiable_gradients(op);
}
GroupNormGradients::Result gradients_on_cpu(const GroupNormGradients& op) {
  return given_gradients(op);
}
BatchNormGradients::Result gradients_on_cpu(const BatchNormGradients& op) {
  return given_gradients(op);
}
Tensor tangent_by_aten(const GroupNormGroups& op) { return tangent_formula(op); }
Tensor tangent_by_aten(const BatchNormChannels& op) { return tangent_formula(op); }

}  // namespace gpuopt::norm
