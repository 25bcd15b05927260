// Reductions under torch.vmap, functionalization and autocast.
#include "binding/autocast.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "reduce/binding/reduce_check.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;

// The examples are dimension 0 of one call.
template <typename Op>
Tensor reduce_vmap(const Op& op, const VmapLevel& level, const c10::SymInt&) {
  const DimMask mask = check<c10::SymInt>(op).mask;
  const VmapLevel::Operand operand = level.unwrap(op.self);
  const int64_t rank = operand.logical_dim();
  at::DimVector dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (mask[d]) dims.push_back(d + 1);
  }
  // A zero-dimensional example is reduced along an extra dimension of size 1. An empty list of
  // dimensions would reduce all of them, the examples included.
  if (rank == 0) dims.push_back(1);
  const Tensor values = operand.aligned(1);
  const bool keepdim = op.keepdim && rank > 0;
  if constexpr (Extremum<Op>) {
    return level.wrap(call(Op{values, dims, keepdim}), 0);
  } else {
    return level.wrap(call(Op{values, dims, keepdim, op.dtype}), 0);
  }
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  Ops::for_each([&]<typename Op>() { impl_vmap<Op, reduce_vmap<Op>>(m); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  Ops::for_each([&]<typename Op>() { impl_out_functional<Op, checked<Op>>(m); });
}

// As in ATen, the other reductions keep their dtype.
TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { impl_autocast_sum<ReduceSum>(m); }

}  // namespace
}  // namespace gpuopt::reduce
