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
struct IndexAddBackward : GradNode {
  explicit IndexAddBackward(const IndexAdd& op)
      : GradNode(op.self, op.source), dim_(op.dim), alpha_(op.alpha) {
    if (next_edge(1).is_valid()) index_.save(op.index);
  }
  explicit IndexAddBackward(const Inplace<IndexAdd>& call) : IndexAddBackward(call.in) {}
  std::string name() const override { return "GpuoptIndexAddBackward"; }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(2);
    if (task_should_compute_output(0)) inputs[0] = grad;
    if (task_should_compute_output(1)) {
      const Tensor rows = select(grad);
      // If the result is real, the imaginary part of a complex alpha is 0.
      const Scalar factor = grad.is_complex() ? alpha_.conj() : Scalar(alpha_.toDouble());
      inputs[1] = factor.equal(1.0) ? rows : gpuopt::mul(rows, factor);
    }
    return inputs;
  }

  // index_add of the tangents.
  static Tensor tangent(const IndexAdd& op, const Tensor&) {
    const auto& [self, dim, index, source, alpha, mode] = op;
    // A copy of self's tangent, because later in-place operators on the result write to the
    // result's tangent.
    if (!has_tangent(source)) return tangent_of(self).clone();
    const Tensor of_self = has_tangent(self) ? tangent_of(self) : at::zeros_like(self);
    return call(IndexAdd{of_self, dim, index, tangent_of(source), alpha, mode});
  }
  // Nothing if the tangent of self does not change.
  static Tensor tangent(const Inplace<IndexAdd>& call) {
    return has_tangent(call.in.source) ? tangent(call.in, call.self) : Tensor();
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
  Saved index_{this};
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl_autograd<IndexAdd, IndexAddBackward>(m);
  impl_inplace_autograd<IndexAdd, IndexAddBackward>(m);
  impl_out_without_derivatives<IndexAdd>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  impl_counted<Out<IndexAdd>, Inplace<IndexAdd>>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
