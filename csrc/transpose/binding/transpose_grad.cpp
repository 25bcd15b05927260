// Derivatives of transpose2d in reverse and forward mode. The operator is linear, and its adjoint
// is again transpose2d.
#include "binding/grad_node.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::transpose {
namespace {

using namespace autograd_names;

struct Transpose2DBackward : GradNode {
  explicit Transpose2DBackward(const Transpose2D& op) : GradNode(op.self) {}
  std::string name() const override { return "GpuoptTranspose2DBackward"; }

  variable_list gradients(const Tensor& grad) override { return {gpuopt::transpose2d(grad)}; }
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl_autograd<Transpose2D, Transpose2DBackward>(m); }

}  // namespace
}  // namespace gpuopt::transpose
