// Transposition: schemas, and the CPU and Meta kernels.
#include <torch/library.h>

#include "transpose/binding/transpose_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def("transpose2d(Tensor self) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("_copy_transposed(Tensor(a!) out, Tensor self) -> Tensor(a!)");
}

namespace gpuopt::transpose {
namespace {

using at::Tensor;

// clone() copies even if self.mT() is contiguous already, where contiguous() would return a view.
Tensor transpose2d_cpu(const Tensor& self) {
  check_transpose2d(self);
  return self.mT().clone(at::MemoryFormat::Contiguous);
}

Tensor transpose2d_meta(const Tensor& self) {
  check_transpose2d(self);
  return at::empty_symint(transposed_sizes<c10::SymInt>(self), self.options());
}

Tensor& copy_transposed_cpu(Tensor& out, const Tensor& self) { return out.copy_(self); }

Tensor& copy_transposed_meta(Tensor& out, const Tensor& self) {
  TORCH_CHECK(out.sym_sizes() == self.sym_sizes(),
              "gpuopt::_copy_transposed: out must have the shape of self: expected ",
              self.sym_sizes(), ", got ", out.sym_sizes());
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("transpose2d", transpose2d_cpu);
  m.impl("_copy_transposed", copy_transposed_cpu);
}
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("transpose2d", transpose2d_meta);
  m.impl("_copy_transposed", copy_transposed_meta);
}

}  // namespace
}  // namespace gpuopt::transpose
