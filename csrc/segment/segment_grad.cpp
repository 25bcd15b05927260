// Derivatives of reductions of segments in reverse and forward mode. Gradients call differentiable
// operators, so higher derivatives follow.
#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "segment/segment_check.h"

namespace gpuopt::segment {
namespace {

using namespace autograd_names;
using c10::SymInt;

// ---------------------------------------------------------------- formulas

// The dtype in which formulas of several operators are computed.
at::ScalarType formula_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor sum_rows(const Tensor& x, const Tensor& offsets) {
  if (x.is_complex()) return at::view_as_complex(sum_rows(at::view_as_real(x), offsets));
  return call(SegmentReduce{x, offsets, "sum", std::nullopt});
}

Tensor expand_rows(const Tensor& rows, const Tensor& offsets, const SymInt& entries) {
  return call(SegmentExpand{rows, offsets, entries});
}

// Rows of the segments, divided by the number of their entries.
Tensor divided(const Tensor& rows, const Tensor& offsets) {
  const auto wide = formula_type(rows);
  std::vector<SymInt> sizes(rows.dim(), 1);
  sizes[0] = rows.sym_size(0);
  const Tensor counts = offsets.diff().clamp_min(1).to(wide).reshape_symint(sizes);
  return rows.to(wide).div(counts).to(rows.scalar_type());
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
  const auto wide = formula_type(data);
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
  const auto wide = formula_type(result);
  const Tensor g = grad.to(wide), y = result.to(wide);
  const Tensor sums = expand_rows(sum_rows(g.mul(y), offsets), offsets, y.sym_size(0));
  return y.mul(g.sub(sums)).to(result.scalar_type());
}

// ---------------------------------------------------------------- nodes

// The node of an operator that is linear in its first argument.
template <typename Op>
struct LinearNode : torch::autograd::Node {
  explicit LinearNode(const Op& op) : offsets_(op.offsets, /*is_output=*/false) {
    if constexpr (requires { op.data; }) {
      entries_ = op.data.sym_size(0);
      is_mean_ = op.reduce == "mean";
    } else if constexpr (requires { op.arg; }) {
      arg_ = {op.arg, /*is_output=*/false};
    }
  }

  std::string name() const override;

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    offsets_.reset_data();
    arg_.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return {Tensor()};
    return {gradient(grads[0])};
  }

  Tensor gradient(const Tensor& grad);

  SavedVariable offsets_, arg_;
  SymInt entries_;
  bool is_mean_ = false;
};

template <>
std::string LinearNode<SegmentReduce>::name() const {
  return "GpuoptSegmentReduceBackward";
}
template <>
Tensor LinearNode<SegmentReduce>::gradient(const Tensor& grad) {
  const Tensor offsets = offsets_.unpack();
  return expand_rows(is_mean_ ? divided(grad, offsets) : grad, offsets, entries_);
}

template <>
std::string LinearNode<SegmentExpand>::name() const {
  return "GpuoptSegmentExpandBackward";
}
template <>
Tensor LinearNode<SegmentExpand>::gradient(const Tensor& grad) {
  return sum_rows(grad, offsets_.unpack());
}

template <>
std::string LinearNode<SegmentSelect>::name() const {
  return "GpuoptSegmentSelectBackward";
}
template <>
Tensor LinearNode<SegmentSelect>::gradient(const Tensor& grad) {
  return selected(grad, arg_.unpack());
}

struct ProductNode : torch::autograd::Node {
  explicit ProductNode(const SegmentReduce& op)
      : data_(op.data, /*is_output=*/false), offsets_(op.offsets, /*is_output=*/false) {}
  std::string name() const override { return "GpuoptSegmentProdBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    data_.reset_data();
    offsets_.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return {Tensor()};
    return {product_gradient(grads[0], data_.unpack(), offsets_.unpack())};
  }

  SavedVariable data_, offsets_;
};

struct ExtremumNode : torch::autograd::Node {
  explicit ExtremumNode(const SegmentReduceArg& op)
      : offsets_(op.offsets, /*is_output=*/false), entries_(op.data.sym_size(0)) {}
  std::string name() const override { return "GpuoptSegmentReduceArgBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    offsets_.reset_data();
    arg_.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return {Tensor()};
    return {call(SegmentSelect{grads[0], arg_.unpack(), offsets_.unpack(), entries_})};
  }

  SavedVariable offsets_, arg_;
  SymInt entries_;
};

struct SoftmaxNode : torch::autograd::Node {
  explicit SoftmaxNode(const SegmentSoftmax& op) : offsets_(op.offsets, /*is_output=*/false) {}
  std::string name() const override { return "GpuoptSegmentSoftmaxBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    offsets_.reset_data();
    result_.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return {Tensor()};
    const Tensor result = result_.unpack(pointer_to(this));
    return {call(SegmentSoftmaxBackward{grads[0], result, offsets_.unpack()})};
  }

  SavedVariable offsets_, result_;
};

// ---------------------------------------------------------------- kernels

// A node for an operator, if the tensor needs a gradient.
template <typename Node, typename Op>
NodePtr<Node> node_of(const Op& op, const Tensor& x) {
  if (!compute_requires_grad(x)) return {};
  check(op);
  auto node = make_node<Node>(op);
  node->set_next_edges(collect_next_edges(x));
  return node;
}

TensorPair reduce_arg_autograd(const SegmentReduceArg& op, DispatchKeySet keys) {
  const auto node = node_of<ExtremumNode>(op, op.data);
  auto [values, arg] = below_autograd(op, keys);
  if (node) {
    set_history(values, node);
    node->arg_ = {arg, /*is_output=*/false};
  }
  if (has_tangent(op.data)) set_tangent(values, selected(tangent_of(op.data), arg));
  return {values, arg};
}

template <typename Node>
Tensor reduce_with(const SegmentReduce& op, DispatchKeySet keys) {
  const auto node = node_of<Node>(op, op.data);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  return result;
}

Tensor reduce_autograd(const SegmentReduce& op, DispatchKeySet keys) {
  const auto& [data, offsets, reduce, empty] = op;
  const bool forward = has_tangent(data);
  if (!forward && !compute_requires_grad(data)) return below_autograd(op, keys);
  if (is_extremum(check(op))) {
    return std::get<0>(call(SegmentReduceArg{data, offsets, reduce, empty}));
  }
  if (reduce != "prod") {
    const Tensor result = reduce_with<LinearNode<SegmentReduce>>(op, keys);
    if (forward) {
      set_tangent(result, call(SegmentReduce{tangent_of(data), offsets, reduce, 0.0}));
    }
    return result;
  }
  const Tensor result = reduce_with<ProductNode>(op, keys);
  if (forward) {
    const Tensor primal = data._fw_primal(/*level=*/0);
    const Tensor others =
        product_gradient(at::ones_symint(result.sym_sizes(), result.options()), primal, offsets);
    set_tangent(result, sum_rows(others.mul(tangent_of(data)), offsets));
  }
  return result;
}

// An operator of a member `rows` that is linear in it.
template <typename Op>
Tensor linear_in_rows(const Op& op, DispatchKeySet keys) {
  const auto node = node_of<LinearNode<Op>>(op, op.rows);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangent(op.rows)) {
    const Tensor tangent = tangent_of(op.rows);
    if constexpr (requires { op.arg; }) {
      set_tangent(result, call(Op{tangent, op.arg, op.offsets, op.entries}));
    } else {
      set_tangent(result, call(Op{tangent, op.offsets, op.entries}));
    }
  }
  return result;
}

Tensor softmax_autograd(const SegmentSoftmax& op, DispatchKeySet keys) {
  const auto node = node_of<SoftmaxNode>(op, op.src);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangent(op.src)) {
    set_tangent(result, call(SegmentSoftmaxBackward{tangent_of(op.src), result, op.offsets}));
  }
  if (node) node->result_ = {result, /*is_output=*/true};  // with its tangent
  return result;
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
  impl<SegmentReduceArg, reduce_arg_autograd>(m);
  impl<SegmentExpand, linear_in_rows<SegmentExpand>>(m);
  impl<SegmentSelect, linear_in_rows<SegmentSelect>>(m);
  impl<SegmentSoftmax, softmax_autograd>(m);
  impl<SegmentSoftmaxBackward, softmax_backward_autograd>(m);
  impl<GroupBy, group_autograd>(m);
}

}  // namespace
}  // namespace gpuopt::segment
