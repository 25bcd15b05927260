// Derivatives of gathers and of reductions at an index, which are each other's transposes.
// Gradients call differentiable operators, so higher derivatives follow.
#include <ATen/ATen.h>

#include <vector>

#include "binding/grad_node.h"
#include "index_add/binding/index_add_ops.h"
#include "index_select/index_select_ops.h"
#include "scatter/scatter_check.h"
#include "scatter/scatter_grouped.h"

namespace gpuopt::scatter {
namespace {

using namespace autograd_names;
using c10::SymInt;

// ---------------------------------------------------------------- formulas

Tensor sum_at(const Tensor& src, int64_t dim, const Tensor& index, const SymInt& bins) {
  if (!src.is_complex()) return call(Scatter{src, dim, index, bins, "sum"});
  return at::view_as_complex(
      call(Scatter{at::view_as_real(src), dim, index, bins, "sum"}).contiguous());
}

// A vector in the shape that broadcasts along a dimension of `like`.
Tensor along(const Tensor& vector, const Tensor& like, int64_t dim) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim() - dim), 1);
  shape[0] = -1;
  return vector.view(shape);
}

// The bins of a mean divided by the number of their entries, which is counted in integers.
Tensor divided_by_counts(const Tensor& bins, const Tensor& index, int64_t dim) {
  // Made from `index`, because a DTensor does not mix with plain tensors.
  const Tensor ones = index.new_ones({1}, at::kLong).expand_symint({index.sym_numel()});
  const Tensor zeros = index.new_zeros_symint({bins.sym_size(dim)}, at::kLong);
  const Tensor counts = call(IndexAdd{zeros, 0, index, ones, 1, "fast"}).clamp_min(1);
  const auto dtype = rows::compute_type(bins);
  return bins.to(dtype).div(along(counts.to(dtype), bins, dim)).to(bins.scalar_type());
}

// 0, 1, 2, ... for each entry. A DTensor does not mix with plain tensors, so it gets a DTensor.
Tensor numbers_of(const Tensor& index) {
  if (!index.key_set().has(c10::DispatchKey::Python)) {
    return at::arange(at::Scalar(index.sym_numel()), index.options().dtype(at::kLong));
  }
  return at::ones_like(index, at::kLong).cumsum(0).sub(1);
}

// Gives each value to the entry that `arg` names, and 0 to all others.
Tensor selected(const Tensor& grad, const Tensor& arg, const Tensor& index, int64_t dim) {
  const Tensor winners = call(IndexSelect{arg, dim, index});
  const Tensor grads = call(IndexSelect{grad, dim, index});
  return at::where(winners.eq(along(numbers_of(index), arg, dim)), grads, 0);
}

// The values of the entries that `arg` names, and 0 where it names none.
Tensor values_at(const Tensor& x, const Tensor& arg, int64_t dim) {
  if (TORCH_GUARD_OR_FALSE(x.sym_size(dim).sym_eq(0))) {
    return at::zeros_symint(arg.sym_sizes(), x.options());
  }
  return x.gather(dim, arg.clamp_min(0)).masked_fill(arg.lt(0), 0);
}

// ---------------------------------------------------------------- nodes

struct IndexSelectBackward : GradNode {
  explicit IndexSelectBackward(const IndexSelect& op)
      : GradNode(op.self), is_scalar_(op.self.dim() == 0), index_(this, op.index) {
    if (is_scalar_) return;
    dim_ = at::maybe_wrap_dim(op.dim, op.self.dim());
    bins_ = op.self.sym_size(dim_);
  }
  std::string name() const override { return "GpuoptIndexSelectBackward"; }
  void describe_state(NodeState& state) const override { state(bins_, dim_, is_scalar_); }

  variable_list gradients(const Tensor& grad) override {
    if (is_scalar_) return {grad};
    const Tensor index = index_.unpack();
    return {sum_at(grad, dim_, index.dim() == 0 ? index.unsqueeze(0) : index, bins_)};
  }

 private:
  SymInt bins_;
  int64_t dim_ = 0;  // counted from the front
  bool is_scalar_;
  Saved index_;
};

// A sum or mean.
struct SumNode : GradNode {
  explicit SumNode(const Scatter& op)
      : GradNode(op.src),
        dim_(check(op).dim),
        is_mean_(op.reduce == "mean"),
        index_(this, op.index) {}
  std::string name() const override { return "GpuoptScatterBackward"; }
  void describe_state(NodeState& state) const override { state(dim_, is_mean_); }

  variable_list gradients(const Tensor& grad) override {
    const Tensor index = index_.unpack();
    return {call(IndexSelect{is_mean_ ? divided_by_counts(grad, index, dim_) : grad, dim_, index})};
  }

 private:
  int64_t dim_;
  bool is_mean_;
  Saved index_;
};

struct ExtremumNode : GradNode {
  explicit ExtremumNode(const ScatterArg& op)
      : GradNode(op.src), dim_(check(op).dim), index_(this, op.index) {}
  std::string name() const override { return "GpuoptScatterArgBackward"; }
  void describe_state(NodeState& state) const override { state(dim_); }
  void save_result(const TensorPair& result) { arg_.save(std::get<1>(result)); }

  variable_list gradients(const Tensor& grad) override {
    return {selected(grad, arg_.unpack(), index_.unpack(), dim_)};
  }
  static Tensor tangent(const ScatterArg& op, const TensorPair& result) {
    return values_at(tangent_of(op.src), std::get<1>(result), check(op).dim);
  }

 private:
  int64_t dim_;
  Saved index_, arg_{this};
};

Tensor scatter_autograd(const Scatter& op, DispatchKeySet keys) {
  if (!has_tangents(op) && !requires_grad(op)) return below_autograd(op, keys);
  const auto [dim, reduce] = check(op);
  if (segment::is_extremum(reduce)) {
    return std::get<0>(call(ScatterArg{op.src, op.dim, op.index, op.bins, op.reduce}));
  }
  // A product is differentiated as that of segments.
  return reduce == rows::Reduce::kProd ? by_groups(op, dim) : differentiate<SumNode>(op, keys);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  impl<IndexSelect, Grad<IndexSelectBackward>>(m);
  impl<Scatter, Autograd<scatter_autograd>>(m);
  impl<ScatterArg, Grad<ExtremumNode>>(m);
}

}  // namespace
}  // namespace gpuopt::scatter
