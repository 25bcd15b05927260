// Derivatives of index_select in reverse and forward mode. The gradient calls a differentiable
// operator, so higher derivatives follow.
#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/library.h>

#include <vector>

#include "binding/grad_node.h"
#include "index_add/binding/index_add_ops.h"
#include "index_select/index_select_check.h"
#include "index_select/index_select_ops.h"

namespace gpuopt::index_select {
namespace {

using namespace autograd_names;

// The gradient of a row is the sum of the gradients of its copies. Mode `deterministic` adds them
// in a fixed order, half types in float32.
struct IndexSelectBackward : torch::autograd::Node {
  IndexSelectBackward(const Tensor& self, int64_t dim, const Tensor& index)
      : sizes_(self.sym_sizes().vec()), dim_(dim), index_(index, /*is_output=*/false) {}
  std::string name() const override { return "GpuoptIndexSelectBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return {Tensor()};
    const Tensor index = index_.unpack();
    Tensor zeros = grad.new_zeros_symint(sizes_);
    // A write into new memory saves a copy of it. torch.func and tracing need the functional form.
    if (at::areAnyTensorSubclassLike({grad, index})) {
      return {ops::index_add().call(zeros, dim_, index, grad, 1, "deterministic")};
    }
    return {ops::index_add_inplace().call(zeros, dim_, index, grad, 1, "deterministic")};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    index_.reset_data();
  }

 private:
  std::vector<c10::SymInt> sizes_;
  int64_t dim_;
  SavedVariable index_;
};

Tensor index_select_autograd(DispatchKeySet keys, const Tensor& self, int64_t dim,
                             const Tensor& index) {
  NodePtr<IndexSelectBackward> node;
  if (compute_requires_grad(self)) {
    node = make_node<IndexSelectBackward>(self, dim, index);
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(ops::index_select(), keys, self, dim, index);
  if (node) set_history(result, node);
  if (has_tangent(self)) {
    set_tangent(result, ops::index_select().call(tangent_of(self), dim, index));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { m.impl("index_select", index_select_autograd); }

}  // namespace
}  // namespace gpuopt::index_select
