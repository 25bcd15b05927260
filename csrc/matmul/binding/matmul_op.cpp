// gpuopt::matmul: the schema, derivatives, and the kernels for CPU, Meta, vmap and autocast.
#include <ATen/ATen.h>

#include <algorithm>

#include "binding/autocast.h"
#include "binding/grad_node.h"
#include "binding/vmap.h"
#include "matmul/binding/matmul_check.h"

namespace gpuopt::matmul {
namespace {

using namespace autograd_names;
using Operand = VmapLevel::Operand;
using c10::SymInt;

// CPU and Meta.
Tensor matmul_by_aten(const Matmul& op) {
  check(op);
  return by_aten(op);
}

Tensor three_tf32_by_aten(const MatmulByPath& op) { return by_aten({op.self, op.other, "3xtf32"}); }

// ---------------------------------------------------------------- vmap

// The examples become the first dimension of the batch.
Tensor matmul_vmap(const Matmul& op, const VmapLevel& level, const SymInt& /*examples*/) {
  check(op);
  Operand x = level.unwrap(op.self), y = level.unwrap(op.other);
  // Vectors become matrices. A new last dimension does not move batch_dim.
  const bool is_row = x.logical_dim() == 1, is_column = y.logical_dim() == 1;
  if (is_row) x.value = x.value.unsqueeze(-1);
  if (is_column) y.value = y.value.unsqueeze(-1);
  const int64_t rank = std::max(x.logical_dim(), y.logical_dim());
  const Tensor a = x.aligned(rank), b = y.aligned(rank);
  Tensor result = call(Matmul{is_row ? a.mT() : a, b, op.precision});
  if (is_column) result = result.squeeze(-1);
  if (is_row) result = result.squeeze(is_column ? -1 : -2);
  return level.wrap(result, 0);
}

// ---------------------------------------------------------------- derivatives

// They are products of the same precision.

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
      : ProductNode(op.self, op.other),
        precision_(op.precision),
        self_sizes_(op.self.sym_sizes().vec()),
        other_sizes_(op.other.sym_sizes().vec()) {
    save_factors(op.self, op.other);
  }
  std::string name() const override { return "GpuoptMatmulBackward"; }
  void describe_state(NodeState& state) const override {
    state(precision_, self_sizes_, other_sizes_);
  }

  variable_list gradients(const Tensor& of_result) override {
    variable_list inputs(2);
    Tensor grad = of_result;  // with the dimensions that vectors lack
    if (other_sizes_.size() == 1) grad = grad.unsqueeze(-1);
    if (self_sizes_.size() == 1) grad = grad.unsqueeze(-2);
    if (task_should_compute_output(0)) {
      inputs[0] = reduced(product(grad, as_columns(second_.unpack()).mH()), self_sizes_, 0);
    }
    if (task_should_compute_output(1)) inputs[1] = gradient_of_other(grad);
    return inputs;
  }

  static Tensor tangent(const Matmul& op, const Tensor&) {
    return tangent_of_product(op.self, op.other, [&](const Tensor& self, const Tensor& other) {
      return call(Matmul{self, other, op.precision});
    });
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

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  // As torch.matmul, in the lower precision under autocast.
  register_op<Matmul, Cpu<matmul_by_aten>, Meta<matmul_by_aten>, Grad<MatmulBackward>,
              VmapAfterCast<matmul_vmap, lower_precision, at::kCUDA, at::kCPU>>(m);
  register_private_op<MatmulByPath, Cpu<three_tf32_by_aten>, Meta<three_tf32_by_aten>>(m);
}

}  // namespace
}  // namespace gpuopt::matmul
