// gpuopt::index_select: the schema, and the CPU and Meta kernels.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/index_errors.h"
#include "index_select/index_select_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def("index_select(Tensor self, int dim, Tensor index) -> Tensor", {at::Tag::pt2_compliant_tag});
}

namespace gpuopt::index_select {
namespace {

using at::Tensor;

Tensor index_select_cpu(const Tensor& self, int64_t dim, const Tensor& index) {
  dim = check_index_select(self, dim, index);
  return call_aten(
      "gpuopt::index_select", self, [&] { return at::index_select(self, dim, index); },
      [&] { return wrong_entry(self, dim, index); });
}

Tensor index_select_meta(const Tensor& self, int64_t dim, const Tensor& index) {
  dim = check_index_select(self, dim, index);
  at::SymDimVector sizes(self.sym_sizes());
  if (self.dim() > 0) sizes[dim] = index.sym_numel();
  return at::empty_symint(sizes, self.options());
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { m.impl("index_select", index_select_cpu); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { m.impl("index_select", index_select_meta); }

}  // namespace
}  // namespace gpuopt::index_select
