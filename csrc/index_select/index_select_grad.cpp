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
struct IndexSelectBackward : GradNode {
  explicit IndexSelectBackward(const IndexSelect& op)
      : GradNode(op.self),
        sizes_(op.self.sym_sizes().vec()),
        dim_(op.dim),
        index_(this, op.index) {}
  std::string name() const override { return "GpuoptIndexSelectBackward"; }

  variable_list gradients(const Tensor& grad) override {
    const Tensor index = index_.unpack();
    Tensor zeros = grad.new_zeros_symint(sizes_);
    // A write into new memory saves a copy of it. torch.func and tracing need the functional form.
    const IndexAdd sum{zeros, dim_, index, grad, 1, "deterministic"};
    if (at::areAnyTensorSubclassLike({grad, index})) return {call(sum)};
    return {call(Inplace<IndexAdd>{sum, zeros})};
  }

 private:
  std::vector<c10::SymInt> sizes_;
  int64_t dim_;
  Saved index_;
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl_autograd<IndexSelect, IndexSelectBackward>(m); }

}  // namespace
}  // namespace gpuopt::index_select
