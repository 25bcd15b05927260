// Reductions under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>

#include "binding/vmap.h"
#include "binding/writing.h"
#include "reduce/binding/reduce_check.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- vmap

// The examples are dimension 0 of one call.
template <typename Op>
Tensor reduce_vmap(const Op& op) {
  const DimMask mask = check<c10::SymInt>(op).mask;
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(op.self);
  const bool is_batched = operand.batch_dim.has_value();  // false: only another level maps over it
  const int64_t rank = operand.logical_dim(), first = is_batched ? 1 : 0;
  at::DimVector dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (mask[d]) dims.push_back(first + d);
  }
  // A zero-dimensional example is reduced along an extra dimension of size 1. An empty list of
  // dimensions would reduce all of them, the examples included.
  if (rank == 0) dims.push_back(first);
  const Tensor values = operand.aligned(1);
  const bool keepdim = op.keepdim && rank > 0;
  Tensor result;
  if constexpr (Extremum<Op>) {
    result = call(Op{values, dims, keepdim});
  } else {
    result = call(Op{values, dims, keepdim, op.dtype});
  }
  return level.wrap(result, is_batched ? std::optional<int64_t>(0) : std::nullopt);
}

template <typename... Ops>
void impl_vmap(torch::Library& m) {
  (impl<Ops, reduce_vmap<Ops>>(m), ...);
}
template <typename... Ops>
void impl_functional(torch::Library& m) {
  (impl_out_functional<Ops, checked<Ops>>(m), ...);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap<ReduceSum, ReduceMean, ReduceMax, ReduceMin>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_functional<ReduceSum, ReduceMean, ReduceMax, ReduceMin>(m);
}

// ---------------------------------------------------------------- autocast

// As in torch.sum, autocast on CUDA sums to float32 unless dtype is given. The other reductions
// keep their dtype. On the CPU, all reductions do.
Tensor sum_autocast(const ReduceSum& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  ReduceSum cast = op;
  if (!op.dtype.has_value() && at::autocast::is_eligible(op.self, c10::DeviceType::CUDA)) {
    cast.dtype = at::kFloat;
  }
  return call(cast);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { impl<ReduceSum, sum_autocast>(m); }

}  // namespace
}  // namespace gpuopt::reduce
