// Transposition: schemas, and the CPU and Meta kernels.
#include <ATen/ATen.h>

#include "transpose/binding/transpose_check.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<Transpose2D>(m);
  m.def(Form<CopyTransposed>::schema().c_str());
}

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

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<Transpose2D, transpose2d_cpu>(m);
  impl<CopyTransposed, copy_transposed_cpu>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<Transpose2D, transpose2d_meta>(m);
  impl<CopyTransposed, copy_transposed_meta>(m);
}

}  // namespace
}  // namespace gpuopt::transpose
