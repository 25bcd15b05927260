// Norms in ATen's differentiable operators: gradients on the CPU, and all higher derivatives.
#include "norm/binding/norm_formula.h"

#include <ATen/ATen.h>

#include "binding/grad_node.h"

namespace gpuopt::norm {

using namespace autograd_names;

at::DimVector last_dims(int64_t count) {
  at::DimVector dims;
  for (int64_t d = -count; d < 0; ++d) dims.push_back(d);
  return dims;
}

namespace {

// A row's values as (x - mean) * rstd, differentiable in the input. The statistics are computed
// from the input again, so that they have derivatives.
struct Normal {
  Tensor values, rstd;  // in the compute type
};

Normal normal_of(const Tensor& input, at::IntArrayRef dims, double eps, bool is_rms) {
  const Tensor x = input.to(compute_type(input));
  const Tensor centred = is_rms ? x : x.sub(x.mean(dims, /*keepdim=*/true));
  const Tensor rstd = centred.mul(centred).mean(dims, /*keepdim=*/true).add(eps).rsqrt();
  return {centred.mul(rstd), rstd};
}

template <typename Op>
struct Gradients {
  Tensor input, weight, bias;

  Gradients(const Op& op, const Normal& normal) {
    const auto compute = compute_type(op.input);
    const at::DimVector dims = last_dims(op.dims);
    const Tensor grad = op.grad.to(compute);
    if (op.mask[0]) {
      const Tensor scaled = is_given(op.weight) ? grad.mul(op.weight->to(compute)) : grad;
      const Tensor product = scaled.mul(normal.values).mean(dims, /*keepdim=*/true);
      Tensor inner = scaled.sub(normal.values.mul(product));
      if (!Op::kIsRms) inner = inner.sub(scaled.mean(dims, /*keepdim=*/true));
      input = normal.rstd.mul(inner);
      if (is_given(op.sum_grad)) input = input.add(op.sum_grad->to(compute));
      input = input.to(op.input.scalar_type());
    }
    const auto dtype = is_given(op.weight) ? op.weight->scalar_type() : op.input.scalar_type();
    const auto over_rows = [&](const Tensor& terms) {
      const int64_t rows = terms.dim() - op.dims;
      if (rows == 0) return terms.to(dtype);
      at::DimVector outer;
      for (int64_t d = 0; d < rows; ++d) outer.push_back(d);
      return terms.sum(outer).to(dtype);
    };
    if (op.mask[1]) weight = over_rows(grad.mul(normal.values));
    if (op.mask.back() && !Op::kIsRms) bias = over_rows(grad);
  }
};

// What normal_of() returns, from the statistics that a gradient gets. These have no derivatives.
template <typename Op>
Normal given_normal(const Op& op) {
  const auto compute = compute_type(op.input);
  const auto sizes = statistics_sizes(op.input, op.dims);
  const Tensor rstd = op.rstd.to(compute).reshape_symint(sizes);
  Tensor centred = op.input.to(compute);
  if constexpr (!Op::kIsRms) centred = centred.sub(op.mean.to(compute).reshape_symint(sizes));
  return {centred.mul(rstd), rstd};
}

// Also with the strides of a new tensor where a dimension has one element.
Tensor contiguous(const Tensor& gradient) {
  return gradient.defined() ? gradient.clone(at::MemoryFormat::Contiguous) : gradient;
}

template <typename Op>
Tensor tangent_of_rows(const Op& op) {
  const auto compute = compute_type(op.input);
  const at::DimVector dims = last_dims(op.dims);
  const Normal normal = normal_of(primal_of(op.input), dims, op.eps, Op::kIsRms);
  Tensor sum;
  const auto add = [&](const Tensor& term) { sum = sum.defined() ? sum.add(term) : term; };
  if (has_tangent(op.input)) {
    const Tensor x = tangent_of(op.input).to(compute);
    Tensor inner = x.sub(normal.values.mul(x.mul(normal.values).mean(dims, /*keepdim=*/true)));
    if (!Op::kIsRms) inner = inner.sub(x.mean(dims, /*keepdim=*/true));
    const Tensor change = normal.rstd.mul(inner);
    add(is_given(op.weight) ? change.mul(primal_of(*op.weight).to(compute)) : change);
  }
  if (is_given(op.weight) && has_tangent(*op.weight)) {
    add(normal.values.mul(tangent_of(*op.weight).to(compute)));
  }
  const TensorOption bias = bias_of(op);
  if (is_given(bias) && has_tangent(*bias)) {
    // A result must not share its tangent with an argument.
    const Tensor change = tangent_of(*bias).to(compute).expand_symint(op.input.sym_sizes());
    sum = sum.defined() ? sum.add(change) : change.clone(at::MemoryFormat::Contiguous);
  }
  return sum.to(op.input.scalar_type());
}

}  // namespace

LayerNormGradients::Result gradients_by_aten(const LayerNormGradients& op) {
  const Gradients found(op, normal_of(op.input, last_dims(op.dims), op.eps, /*is_rms=*/false));
  return {found.input, found.weight, found.bias};
}
RmsNormGradients::Result gradients_by_aten(const RmsNormGradients& op) {
  const Gradients found(op, normal_of(op.input, last_dims(op.dims), op.eps, /*is_rms=*/true));
  return {found.input, found.weight};
}

LayerNormGradients::Result gradients_on_cpu(const LayerNormGradients& op) {
  const Gradients found(op, given_normal(op));
  return {contiguous(found.input), contiguous(found.weight), contiguous(found.bias)};
}
RmsNormGradients::Result gradients_on_cpu(const RmsNormGradients& op) {
  const Gradients found(op, given_normal(op));
  return {contiguous(found.input), contiguous(found.weight)};
}

Tensor tangent_by_aten(const LayerNormRows& op) { return tangent_of_rows(op); }
Tensor tangent_by_aten(const RmsNormRows& op) { return tangent_of_rows(op); }

}  // namespace gpuopt::norm
