// gpuopt::index_select: the schema, and the kernels for CPU, Meta and vmap. Its gradient is in
// scatter/scatter_grad.cpp. Autocast has no policy for it, as in ATen.
#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "binding/aten.h"
#include "binding/vmap.h"
#include "index_select/index_select_check.h"
#include "index_select/index_select_ops.h"

namespace gpuopt::index_select {
namespace {

using Operand = VmapLevel::Operand;
using at::Tensor;
using c10::SymInt;

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

Tensor gather_rows_by_aten(const GatherRows& op) { return at::gather(op.self, op.dim, op.index); }

// ---------------------------------------------------------------- vmap

// Gathers with an index for each example, in one call. The result has the examples in dimension
// `dim`.
Tensor select_each(const Operand& self, int64_t dim, const Operand& index, const SymInt& examples) {
  const Tensor entries = batched_at(index, 0, examples);
  Tensor table, rows;
  if (self.batch_dim.has_value()) {
    table = batched_at(self, dim, examples);
    rows = fold_index(entries, examples, table.sym_size(dim + 1));
    table = table.flatten(dim, dim + 1);
  } else {
    table = self.logical_dim() == 0 ? self.value.unsqueeze(-1) : self.value;
    rows = entries.flatten();
  }
  return call(IndexSelect{table, dim, rows})
      .unflatten_symint(dim, std::array<SymInt, 2>{examples, entries.sym_size(1)});
}

Tensor index_select_vmap(const IndexSelect& op, const VmapLevel& level, const SymInt& examples) {
  const int64_t dim = check(op);
  const Operand self = level.unwrap(op.self), index = level.unwrap(op.index);
  const bool each = index.batch_dim.has_value();
  const Tensor result =
      each ? select_each(self, dim, index, examples)
           : call(IndexSelect{batched_at(self, 0, examples), dim + 1, index.value});
  return level.wrap(self.logical_dim() == 0 ? result.squeeze(-1) : result, each ? dim : 0);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<IndexSelect, Cpu<index_select_cpu>, Meta<index_select_meta>, Vmap<index_select_vmap>>(
      m);
  register_private_op<GatherRows, Cpu<gather_rows_by_aten>, Meta<gather_rows_by_aten>>(m);
}

}  // namespace
}  // namespace gpuopt::index_select
