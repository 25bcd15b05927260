// Derivatives of matmul in reverse and forward mode. They are products of the same precision.
#include "binding/grad_node.h"
#include "matmul/binding/matmul_ops.h"

namespace gpuopt::matmul {
namespace {

using namespace autograd_names;
using c10::SymInt;

Tensor as_rows(const Tensor& tensor) { return tensor.dim() == 1 ? tensor.unsqueeze(0) : tensor; }
Tensor as_columns(const Tensor& tensor) { return tensor.dim() == 1 ? tensor.unsqueeze(1) : tensor; }

// Dimensions before the last one become one. Batched gradients have no rule for flatten.
Tensor folded(const Tensor& tensor) {
  SymInt rows = 1;
  for (const SymInt& size : tensor.sym_sizes().slice(0, tensor.dim() - 1)) rows *= size;
  return tensor.reshape_symint({rows, tensor.sym_size(-1)});
}

struct MatmulBackward : ProductNode {
  explicit MatmulBackward(const Matmul& op)
      : precision_(op.precision),
        self_sizes_(op.self.sym_sizes().vec()),
        other_sizes_(op.other.sym_sizes().vec()) {}
  std::string name() const override { return "GpuoptMatmulBackward"; }
  void describe_state(NodeState& state) const override {
    state(precision_, self_sizes_, other_sizes_);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    // The gradient with the dimensions that vectors lack.
    Tensor grad = grads[0];
    if (other_sizes_.size() == 1) grad = grad.unsqueeze(-1);
    if (self_sizes_.size() == 1) grad = grad.unsqueeze(-2);
    if (task_should_compute_output(0)) {
      inputs[0] = reduced(product(grad, as_columns(second_.unpack()).mH()), self_sizes_, 0);
    }
    if (task_should_compute_output(1)) inputs[1] = gradient_of_other(grad);
    return inputs;
  }

 private:
  Tensor product(const Tensor& a, const Tensor& b) const { return call(Matmul{a, b, precision_}); }

  // A matrix for all rows of a batch has one product as its gradient, instead of a sum of products.
  Tensor gradient_of_other(const Tensor& grad) {
    const Tensor self = as_rows(first_.unpack());
    const bool is_for_all = other_sizes_.size() <= 2 && self.dim() > 2;
    const Tensor of_columns =
        is_for_all ? product(folded(self).mH(), folded(grad)) : product(self.mH(), grad);
    return reduced(of_columns, other_sizes_, -1);
  }

  // Sums a gradient over broadcast dimensions. The gradient of a vector lacks dimension `dim`,
  // which counts from 0 for rows and from -1 for columns.
  static Tensor reduced(const Tensor& grad, const std::vector<SymInt>& sizes, int64_t dim) {
    if (sizes.size() > 1) return grad.sum_to_size_symint(sizes);
    std::vector<SymInt> matrix = sizes;
    matrix.insert(dim == 0 ? matrix.begin() : matrix.end(), 1);
    return grad.sum_to_size_symint(matrix).squeeze(dim);
  }

  const std::string precision_;
  const std::vector<SymInt> self_sizes_, other_sizes_;
};

// The product rule, for the tangents that exist.
Tensor tangent_of_product(const Matmul& op) {
  const auto& [self, other, precision] = op;
  Tensor by_self, by_other;
  if (has_tangent(self)) by_self = call(Matmul{tangent_of(self), primal_of(other), precision});
  if (has_tangent(other)) by_other = call(Matmul{primal_of(self), tangent_of(other), precision});
  if (!by_self.defined()) return by_other;
  return by_other.defined() ? at::add(by_self, by_other) : by_self;
}

Tensor matmul_autograd(const Matmul& op, DispatchKeySet keys) {
  NodePtr<MatmulBackward> node;
  if (requires_grad(op)) {
    node = make_node<MatmulBackward>(op);
    node->set_next_edges(collect_next_edges(op.self, op.other));
    node->save_factors(op.self, op.other);
  }
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangents(op)) set_tangent(result, tangent_of_product(op));
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl<Matmul, matmul_autograd>(m); }

}  // namespace
}  // namespace gpuopt::matmul
