// Gathers of rows: the schema, and the CPU and Meta kernels.
#include "index_select/index_select_ops.h"

namespace gpuopt::index_select {
namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { m.def(Form<GatherRows>::schema().c_str()); }

Tensor gather_rows_cpu(const GatherRows& op) { return op.self.index_select(0, op.index); }

Tensor gather_rows_meta(const GatherRows& op) {
  at::SymDimVector shape(op.self.sym_sizes());
  shape[0] = op.index.sym_numel();
  return at::empty_symint(shape, op.self.options());
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl<GatherRows, gather_rows_cpu>(m); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl<GatherRows, gather_rows_meta>(m); }

}  // namespace
}  // namespace gpuopt::index_select
