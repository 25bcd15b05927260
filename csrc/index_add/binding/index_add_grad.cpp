// Derivatives of index_add in reverse and forward mode, and what the in-place and out= forms need
// for autograd. Backward formulas call differentiable operators, so higher derivatives follow.
#include "binding/writing.h"
#include "elementwise/binding/elementwise_ops.h"
#include "index_add/binding/index_add_ops.h"

namespace gpuopt::index_add {
namespace {

using at::Scalar;
using namespace autograd_names;

// d(self + alpha P source) = dself + alpha P dsource, where P adds slices to the rows that index
// names. So the gradient of source gathers these rows, times the conjugate of alpha. (ATen's
// formula does not conjugate a complex alpha, as of torch 2.15.)
struct IndexAddBackward : torch::autograd::Node {
  explicit IndexAddBackward(const IndexAdd& op) : dim_(op.dim), alpha_(op.alpha) {}
  std::string name() const override { return "GpuoptIndexAddBackward"; }

  void save(const Tensor& index) {
    if (next_edge(1).is_valid()) index_ = SavedVariable(index, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return inputs;
    if (task_should_compute_output(0)) inputs[0] = grad;
    if (task_should_compute_output(1)) {
      const Tensor rows = select(grad);
      // If the result is real, the imaginary part of a complex alpha is 0.
      const Scalar factor = grad.is_complex() ? alpha_.conj() : Scalar(alpha_.toDouble());
      inputs[1] = factor.equal(1.0) ? rows : gpuopt::mul(rows, factor);
    }
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    index_.reset_data();
  }

 private:
  // Adds a dimension to an index without dimensions. Under vmap, index_select repeats the slice of
  // such an index, once per slice of the dimension (torch 2.11 to 2.15).
  Tensor select(const Tensor& grad) {
    if (grad.dim() == 0) return grad;
    const Tensor index = index_.unpack();
    return at::index_select(grad, dim_, index.dim() == 0 ? index.unsqueeze(0) : index);
  }

  int64_t dim_;
  Scalar alpha_;
  SavedVariable index_;
};

// Returns no node if nothing requires a gradient.
NodePtr<IndexAddBackward> make_backward(const IndexAdd& op) {
  if (!compute_requires_grad(op.self, op.source)) return {};
  auto node = make_node<IndexAddBackward>(op);
  node->set_next_edges(collect_next_edges(op.self, op.source));
  node->save(op.index);
  return node;
}

// The tangent of the result, where self or source has one: index_add of the tangents.
Tensor tangent(const IndexAdd& op) {
  const auto& [self, dim, index, source, alpha, mode] = op;
  // A copy of self's tangent, because later in-place operators on the result write to the result's
  // tangent.
  if (!has_tangent(source)) return tangent_of(self).clone();
  const Tensor of_self = has_tangent(self) ? tangent_of(self) : at::zeros_like(self);
  return call(IndexAdd{of_self, dim, index, tangent_of(source), alpha, mode});
}

Tensor index_add_autograd(const IndexAdd& op, DispatchKeySet keys) {
  const auto node = make_backward(op);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangent(op.self) || has_tangent(op.source)) set_tangent(result, tangent(op));
  return result;
}

Tensor& index_add_inplace_autograd(const Inplace<IndexAdd>& call, DispatchKeySet keys) {
  const IndexAdd& op = call.in;
  torch::autograd::check_inplace(call.self, compute_requires_grad(op.self, op.source));
  const auto node = make_backward(op);
  below_autograd(call, keys);
  if (node) rebase_history(call.self, node);
  // The tangent of self does not change otherwise.
  if (has_tangent(op.source)) set_inplace_tangent(call.self, tangent(op));
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<IndexAdd, index_add_autograd>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_autograd>(m);
  impl_out_without_derivatives<IndexAdd>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  impl_counted<Out<IndexAdd>, Inplace<IndexAdd>>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
