// gpuopt::index_select: the schema, and the CPU and Meta kernels.
#include <ATen/ATen.h>

#include "binding/index_errors.h"
#include "index_select/index_select_check.h"

namespace gpuopt::index_select {
namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<IndexSelect>(m); }

Tensor index_select_cpu(const IndexSelect& op) {
  const int64_t dim = check(op);
  return call_aten(
      name_of<IndexSelect>(), op.self, [&] { return at::index_select(op.self, dim, op.index); },
      [&] { return wrong_entry(op.self, dim, op.index); });
}

Tensor index_select_meta(const IndexSelect& op) {
  const int64_t dim = check(op);
  at::SymDimVector sizes(op.self.sym_sizes());
  if (!sizes.empty()) sizes[dim] = op.index.sym_numel();
  return at::empty_symint(sizes, op.self.options());
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl<IndexSelect, index_select_cpu>(m); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl<IndexSelect, index_select_meta>(m); }

}  // namespace
}  // namespace gpuopt::index_select
