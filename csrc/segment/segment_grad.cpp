// Derivatives of reductions of segments in reverse and forward mode. Gradients call differentiable
// operators, so higher derivatives follow.
#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "rows/binding/rows_reference.h"
#include "segment/segment_check.h"

namespace gpuopt::segment {
namespace {

using namespace autograd_names;
using c10::SymInt;

// ---------------------------------------------------------------- formulas

Tensor sum_rows(const Tensor& x, const Tensor& offsets) {
  if (x.is_complex()) return at::view_as_complex(sum_rows(at::view_as_real(x), offsets));
  return call(SegmentReduce{x, offsets, "sum", std::nullopt});
}

Tensor expand_rows(const Tensor& rows, const Tensor& offsets, const SymInt& entries) {
  return call(SegmentExpand{rows, offsets, entries});
}

// The values of the entries that `arg` names, and 0 where it names none.
Tensor selected(const Tensor& x, const Tensor& arg) {
  if (TORCH_GUARD_OR_FALSE(x.sym_size(0).sym_eq(0))) {
    return at::zeros_symint(arg.sym_sizes(), x.options());
  }
  return x.gather(0, arg.clamp_min(0).to(at::kLong)).masked_fill(arg.lt(0), 0);
}

// grad times the derivative of a segment's product by each entry, which is the product of the other
// entries. The product of all other than zeros is divided by an entry. Zeros are added up: the sum
// is 0, but the derivative of a segment's only zero is that of the zero. So second derivatives are
// exact, too.
Tensor product_gradient(const Tensor& grad, const Tensor& data, const Tensor& offsets) {
  const auto wide = rows::compute_type(data);
  const SymInt entries = data.sym_size(0);
  const Tensor x = data.to(wide), is_zero = x.eq(0);
  const auto of_entries = [&](const Tensor& rows) { return expand_rows(rows, offsets, entries); };
  const Tensor others = x.masked_fill(is_zero, 1);
  const Tensor product = call(SegmentReduce{others, offsets, "prod", std::nullopt});
  const Tensor zeros = of_entries(sum_rows(x.mul(is_zero), offsets));
  const Tensor count = of_entries(sum_rows(is_zero.to(at::kInt), offsets));
  const Tensor factor = at::where(
      is_zero,
      at::where(count.eq(1), at::ones({}, x.options()), zeros.sub(x).masked_fill(count.gt(2), 0)),
      at::where(count.eq(0), at::ones({}, x.options()), zeros.masked_fill(count.gt(1), 0)));
  const Tensor scaled = of_entries(grad.to(wide).mul(product));
  return scaled.div(others).mul(factor).to(data.scalar_type());
}

Tensor softmax_gradient(const SegmentSoftmaxBackward& op) {
  const auto& [grad, result, offsets] = op;
  const auto wide = rows::compute_type(result);
  const Tensor g = grad.to(wide), y = result.to(wide);
  const Tensor sums = expand_rows(sum_rows(g.mul(y), offsets), offsets, y.sym_size(0));
  return y.mul(g.sub(sums)).to(result.scalar_type());
}

// ---------------------------------------------------------------- nodes

// A sum or mean.
struct SumNode : GradNode {
  explicit SumNode(const SegmentReduce& op)
      : GradNode(op.data),
        offsets_(this, op.offsets),
        entries_(op.data.sym_size(0)),
        is_mean_(op.reduce == "mean") {}
  std::string name() const override { return "GpuoptSegmentReduceBackward"; }
  void describe_state(NodeState& state) const override { state(entries_, is_mean_); }

  variable_list gradients(const Tensor& grad) override {
    const Tensor offsets = offsets_.unpack();
    return {expand_rows(is_mean_ ? rows::divided_by_counts(grad, offsets, /*row_dim=*/0) : grad,
                        offsets, entries_)};
  }
  static Tensor tangent(const SegmentReduce& op, const Tensor&) {
    return call(SegmentReduce{tangent_of(op.data), op.offsets, op.reduce, 0.0});
  }

 private:
  Saved offsets_;
  SymInt entries_;
  bool is_mean_;
};

struct ProdNode : GradNode {
  explicit ProdNode(const SegmentReduce& op)
      : GradNode(op.data), data_(this, op.data), offsets_(this, op.offsets) {}
  std::string name() const override { return "GpuoptSegmentProdBackward"; }
  void describe_state(NodeState&) const override {}

  variable_list gradients(const Tensor& grad) override {
    return {product_gradient(grad, data_.unpack(), offsets_.unpack())};
  }
  static Tensor tangent(const SegmentReduce& op, const Tensor& result) {
    const Tensor ones = at::ones_symint(result.sym_sizes(), result.options());
    const Tensor others = product_gradient(ones, primal_of(op.data), op.offsets);
    return sum_rows(others.mul(tangent_of(op.data)), op.offsets);
  }

 private:
  Saved data_, offsets_;
};

struct ExtremumNode : GradNode {
  explicit ExtremumNode(const SegmentReduceArg& op)
      : GradNode(op.data), offsets_(this, op.offsets) {
    check(op);
    entries_ = op.data.sym_size(0);
  }
  std::string name() const override { return "GpuoptSegmentReduceArgBackward"; }
  void describe_state(NodeState& state) const override { state(entries_); }
  void save_result(const TensorPair& result) { arg_.save(std::get<1>(result)); }

  variable_list gradients(const Tensor& grad) override {
    return {call(SegmentSelect{grad, arg_.unpack(), offsets_.unpack(), entries_})};
  }
  static Tensor tangent(const SegmentReduceArg& op, const TensorPair& result) {
    return selected(tangent_of(op.data), std::get<1>(result));
  }

 private:
  Saved offsets_, arg_{this};
  SymInt entries_;
};

struct ExpandNode : GradNode {
  explicit ExpandNode(const SegmentExpand& op) : GradNode(op.rows), offsets_(this, op.offsets) {}
  std::string name() const override { return "GpuoptSegmentExpandBackward"; }
  void describe_state(NodeState&) const override {}
  variable_list gradients(const Tensor& grad) override {
    return {sum_rows(grad, offsets_.unpack())};
  }

 private:
  Saved offsets_;
};

struct SelectNode : GradNode {
  explicit SelectNode(const SegmentSelect& op) : GradNode(op.rows), arg_(this, op.arg) {}
  std::string name() const override { return "GpuoptSegmentSelectBackward"; }
  void describe_state(NodeState&) const override {}
  variable_list gradients(const Tensor& grad) override { return {selected(grad, arg_.unpack())}; }

 private:
  Saved arg_;
};

struct SoftmaxNode : GradNode {
  explicit SoftmaxNode(const SegmentSoftmax& op) : GradNode(op.src), offsets_(this, op.offsets) {}
  std::string name() const override { return "GpuoptSegmentSoftmaxBackward"; }
  void describe_state(NodeState&) const override {}
  void save_result(const Tensor& result) { result_.save_result(result); }

  variable_list gradients(const Tensor& grad) override {
    return {call(SegmentSoftmaxBackward{grad, result_.unpack(), offsets_.unpack()})};
  }
  static Tensor tangent(const SegmentSoftmax& op, const Tensor& result) {
    return call(SegmentSoftmaxBackward{tangent_of(op.src), result, op.offsets});
  }

 private:
  Saved offsets_, result_{this};
};

// ---------------------------------------------------------------- kernels

Tensor reduce_autograd(const SegmentReduce& op, DispatchKeySet keys) {
  if (!has_tangents(op) && !requires_grad(op)) return below_autograd(op, keys);
  const Reduce reduce = check(op);
  if (is_extremum(reduce)) {
    return std::get<0>(call(SegmentReduceArg{op.data, op.offsets, op.reduce, op.empty}));
  }
  return reduce == Reduce::kProd ? differentiate<ProdNode>(op, keys)
                                 : differentiate<SumNode>(op, keys);
}

Tensor softmax_backward_autograd(const SegmentSoftmaxBackward& op, DispatchKeySet keys) {
  if (requires_grad(op) || has_tangents(op)) return softmax_gradient(op);
  return below_autograd(op, keys);
}

TensorPair group_autograd(const GroupBy& op, DispatchKeySet keys) {
  return below_autograd(op, keys);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<SegmentReduce, reduce_autograd>(m);
  impl<SegmentReduceArg, Grad<ExtremumNode>>(m);
  impl<SegmentExpand, Grad<ExpandNode>>(m);
  impl<SegmentSelect, Grad<SelectNode>>(m);
  impl<SegmentSoftmax, Grad<SoftmaxNode>>(m);
  impl<SegmentSoftmaxBackward, softmax_backward_autograd>(m);
  impl<GroupBy, group_autograd>(m);
}

}  // namespace
}  // namespace gpuopt::segment
