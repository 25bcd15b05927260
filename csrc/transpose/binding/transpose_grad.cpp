// Derivatives of transpose2d in reverse and forward mode. The operator is linear, and its adjoint
// is again transpose2d.
#include "binding/grad_node.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::transpose {
namespace {

using namespace autograd_names;

struct Transpose2DBackward : torch::autograd::Node {
  explicit Transpose2DBackward(const Transpose2D&) {}
  std::string name() const override { return "GpuoptTranspose2DBackward"; }

  variable_list apply(variable_list&& grads) override {
    return {grads[0].defined() ? gpuopt::transpose2d(grads[0]) : Tensor()};
  }
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Transpose2D, linear_autograd<Transpose2DBackward, Transpose2D>>(m);
}

}  // namespace
}  // namespace gpuopt::transpose
