// Derivatives of index_add in reverse and forward mode, and what the in-place and out= forms need
// for autograd. Backward formulas call differentiable operators, so higher derivatives follow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <string_view>

#include "binding/out_variant.h"
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
  IndexAddBackward(int64_t dim, Scalar alpha) : dim_(dim), alpha_(std::move(alpha)) {}
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
NodePtr<IndexAddBackward> make_backward(const Tensor& self, int64_t dim, const Tensor& index,
                                        const Tensor& source, const Scalar& alpha) {
  if (!compute_requires_grad(self, source)) return {};
  auto node = make_node<IndexAddBackward>(dim, alpha);
  node->set_next_edges(collect_next_edges(self, source));
  node->save(index);
  return node;
}

// The tangent of the result, where self or source has one: index_add of the tangents.
Tensor tangent(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
               const Scalar& alpha, std::string_view mode) {
  // A copy of self's tangent, because later in-place operators on the result write to the result's
  // tangent.
  if (!has_tangent(source)) return tangent_of(self).clone();
  const Tensor of_self = has_tangent(self) ? tangent_of(self) : at::zeros_like(self);
  return ops::index_add().call(of_self, dim, index, tangent_of(source), alpha, mode);
}

Tensor index_add_autograd(DispatchKeySet keys, const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& source, const Scalar& alpha, std::string_view mode) {
  const auto node = make_backward(self, dim, index, source, alpha);
  Tensor result = below_autograd(ops::index_add(), keys, self, dim, index, source, alpha, mode);
  if (node) set_history(result, node);
  if (has_tangent(self) || has_tangent(source)) {
    set_tangent(result, tangent(self, dim, index, source, alpha, mode));
  }
  return result;
}

Tensor& index_add_inplace_autograd(DispatchKeySet keys, Tensor& self, int64_t dim,
                                   const Tensor& index, const Tensor& source, const Scalar& alpha,
                                   std::string_view mode) {
  torch::autograd::check_inplace(self, compute_requires_grad(self, source));
  const auto node = make_backward(self, dim, index, source, alpha);
  {
    at::AutoDispatchBelowAutograd guard;
    ops::index_add_inplace().redispatch(keys & c10::after_autograd_keyset, self, dim, index, source,
                                        alpha, mode);
  }
  if (node) torch::autograd::rebase_history(self, node);
  if (has_tangent(source)) {  // otherwise the tangent of self does not change
    const Tensor added = tangent(self, dim, index, source, alpha, mode);
    // A tangent that self has is overwritten, like self, since views of self may share it.
    self._set_fw_grad(has_tangent(self) ? tangent_of(self).copy_(added) : added, /*level=*/0,
                      /*is_inplace_op=*/true);
  }
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("index_add", index_add_autograd);
  m.impl("index_add.out", WritingOp<ops::index_add_out>::without_derivatives);
  m.impl("index_add_", index_add_inplace_autograd);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("index_add.out", WritingOp<ops::index_add_out>::counted);
  m.impl("index_add_", WritingOp<ops::index_add_inplace>::counted);
}

}  // namespace
}  // namespace gpuopt::index_add
