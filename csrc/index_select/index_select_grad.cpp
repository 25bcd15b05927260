// Derivatives of index_select in reverse and forward mode. The gradient calls a differentiable
// operator, so higher derivatives follow.
#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>

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
  explicit IndexSelectBackward(const IndexSelect& op)
      : sizes_(op.self.sym_sizes().vec()), dim_(op.dim), index_(op.index, /*is_output=*/false) {}
  std::string name() const override { return "GpuoptIndexSelectBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return {Tensor()};
    const Tensor index = index_.unpack();
    Tensor zeros = grad.new_zeros_symint(sizes_);
    // A write into new memory saves a copy of it. torch.func and tracing need the functional form.
    const IndexAdd sum{zeros, dim_, index, grad, 1, "deterministic"};
    if (at::areAnyTensorSubclassLike({grad, index})) return {call(sum)};
    return {call(Inplace<IndexAdd>{sum, zeros})};
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

Tensor index_select_autograd(const IndexSelect& op, DispatchKeySet keys) {
  const auto& [self, dim, index] = op;
  NodePtr<IndexSelectBackward> node;
  if (compute_requires_grad(self)) {
    node = make_node<IndexSelectBackward>(op);
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangent(self)) set_tangent(result, call(IndexSelect{tangent_of(self), dim, index}));
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl<IndexSelect, index_select_autograd>(m); }

}  // namespace
}  // namespace gpuopt::index_select
