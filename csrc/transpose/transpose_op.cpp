// gpuopt::transpose2d: schema, and the CPU and Meta kernels.
#include <torch/library.h>

#include "transpose/transpose_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def("transpose2d(Tensor self) -> Tensor", {at::Tag::pt2_compliant_tag});
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

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { m.impl("transpose2d", transpose2d_cpu); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { m.impl("transpose2d", transpose2d_meta); }

}  // namespace
}  // namespace gpuopt::transpose
