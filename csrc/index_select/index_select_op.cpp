// Gathers of rows: the schema, and the CPU and Meta kernels.
#include <ATen/ATen.h>
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { m.def("_gather_rows(Tensor self, Tensor index) -> Tensor"); }

namespace gpuopt::index_select {
namespace {

using at::Tensor;

Tensor gather_rows_cpu(const Tensor& self, const Tensor& index) {
  return self.index_select(0, index);
}

Tensor gather_rows_meta(const Tensor& self, const Tensor& index) {
  at::SymDimVector shape(self.sym_sizes());
  shape[0] = index.sym_numel();
  return at::empty_symint(shape, self.options());
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { m.impl("_gather_rows", gather_rows_meta); }

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { m.impl("_gather_rows", gather_rows_cpu); }

}  // namespace
}  // namespace gpuopt::index_select
