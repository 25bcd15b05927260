// Transposition on all devices but CUDA: schemas, and the kernels for CPU, Meta, autograd and vmap.
// There is no autocast rule, because there is nothing to cast.
#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "transpose/binding/transpose_ops.h"
#include "transpose/ladder/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

using namespace autograd_names;
using at::Tensor;

const RegisterLadder ladder(kLadder, "transpose2d(Tensor self, int step) -> Tensor");

// clone() copies even if self.mT() is contiguous already, where contiguous() would return a view.
Tensor transpose2d_cpu(const Transpose2D& op) {
  check(op);
  return op.self.mT().clone(at::MemoryFormat::Contiguous);
}

Tensor transpose2d_meta(const Transpose2D& op) {
  check(op);
  return at::empty_symint(op.self.mT().sym_sizes(), op.self.options());
}

Tensor& copy_transposed_cpu(const CopyTransposed& op) { return op.out.copy_(op.self); }

Tensor& copy_transposed_meta(const CopyTransposed& op) {
  TORCH_CHECK(op.out.sym_sizes() == op.self.sym_sizes(),
              "gpuopt::_copy_transposed: out must have the shape of input: expected ",
              op.self.sym_sizes(), ", got ", op.out.sym_sizes());
  return op.out;
}

// ---------------------------------------------------------------- derivatives

// The operator is linear, and its adjoint is again transpose2d.
struct Transpose2DBackward : GradNode {
  explicit Transpose2DBackward(const Transpose2D& op) : GradNode(op.self) {}
  std::string name() const override { return "GpuoptTranspose2DBackward"; }
  void describe_state(NodeState&) const override {}

  variable_list gradients(const Tensor& grad) override { return {call(Transpose2D{grad})}; }
};

// ---------------------------------------------------------------- vmap

// The examples that vmap maps over become one more dimension of the batch.
Tensor transpose2d_vmap(const Transpose2D& op, const VmapLevel& level, const c10::SymInt&) {
  check(op);
  const VmapLevel::Operand operand = level.unwrap(op.self);
  return level.wrap(call(Transpose2D{operand.aligned(operand.logical_dim())}), 0);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<Transpose2D, Cpu<transpose2d_cpu>, Meta<transpose2d_meta>, Vmap<transpose2d_vmap>,
              Grad<Transpose2DBackward>>(m);
  register_private_op<CopyTransposed, Cpu<copy_transposed_cpu>, Meta<copy_transposed_meta>>(m);
}

}  // namespace
}  // namespace gpuopt::transpose
