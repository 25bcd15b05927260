// Reductions under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "reduce/binding/reduce_check.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::reduce {
namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using at::Tensor;

// ---------------------------------------------------------------- vmap

// Runs call(values, dim, keepdim) for all examples at once, which are dimension 0 of `values`.
// `mask` has the reduced dimensions of one example.
template <typename Call>
Tensor batched(const Tensor& self, const DimMask& mask, bool keepdim, Call call) {
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  const bool is_batched = operand.batch_dim.has_value();  // false: only another level maps over it
  const int64_t rank = operand.logical_dim(), first = is_batched ? 1 : 0;
  at::DimVector dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (mask[d]) dims.push_back(first + d);
  }
  // A zero-dimensional example is reduced along an extra dimension of size 1. An empty list of
  // dimensions would reduce all of them, the examples included.
  if (rank == 0) dims.push_back(first);
  const Tensor result = call(operand.aligned(1), dims, keepdim && rank > 0);
  return level.wrap(result, is_batched ? std::optional<int64_t>(0) : std::nullopt);
}

Tensor sum_vmap(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                std::optional<ScalarType> dtype) {
  const DimMask mask = check_sum<c10::SymInt>(self, dim, keepdim, dtype).mask;
  return batched(self, mask, keepdim, [&](const Tensor& values, at::IntArrayRef dims, bool keep) {
    return gpuopt::reduce_sum(values, dims, keep, dtype);
  });
}

Tensor mean_vmap(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                 std::optional<ScalarType> dtype) {
  const DimMask mask = check_mean<c10::SymInt>(self, dim, keepdim, dtype).mask;
  return batched(self, mask, keepdim, [&](const Tensor& values, at::IntArrayRef dims, bool keep) {
    return gpuopt::reduce_mean(values, dims, keep, dtype);
  });
}

Tensor max_vmap(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  const DimMask mask = check_extremum<c10::SymInt>("gpuopt::reduce_max", self, dim, keepdim).mask;
  return batched(self, mask, keepdim, [](const Tensor& values, at::IntArrayRef dims, bool keep) {
    return gpuopt::reduce_max(values, dims, keep);
  });
}

Tensor min_vmap(const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  const DimMask mask = check_extremum<c10::SymInt>("gpuopt::reduce_min", self, dim, keepdim).mask;
  return batched(self, mask, keepdim, [](const Tensor& values, at::IntArrayRef dims, bool keep) {
    return gpuopt::reduce_min(values, dims, keep);
  });
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("reduce_sum", sum_vmap);
  m.impl("reduce_mean", mean_vmap);
  m.impl("reduce_max", max_vmap);
  m.impl("reduce_min", min_vmap);
}

// ---------------------------------------------------------------- functionalization

Tensor& sum_out_functional(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                           std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType result = check_sum_out<c10::SymInt>(self, dim, keepdim, dtype, out).dtype;
  return functionalize_write(
      "gpuopt::reduce_sum", out, {self},
      [&] { return gpuopt::reduce_sum(functional_value(self), dim, keepdim, result); },
      [&] { ops::reduce_sum_out().call(self, dim, keepdim, dtype, out); });
}

Tensor& mean_out_functional(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                            std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType result = check_mean_out<c10::SymInt>(self, dim, keepdim, dtype, out).dtype;
  return functionalize_write(
      "gpuopt::reduce_mean", out, {self},
      [&] { return gpuopt::reduce_mean(functional_value(self), dim, keepdim, result); },
      [&] { ops::reduce_mean_out().call(self, dim, keepdim, dtype, out); });
}

Tensor& max_out_functional(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  check_extremum_out<c10::SymInt>("gpuopt::reduce_max", self, dim, keepdim, out);
  return functionalize_write(
      "gpuopt::reduce_max", out, {self},
      [&] { return gpuopt::reduce_max(functional_value(self), dim, keepdim); },
      [&] { ops::reduce_max_out().call(self, dim, keepdim, out); });
}

Tensor& min_out_functional(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  check_extremum_out<c10::SymInt>("gpuopt::reduce_min", self, dim, keepdim, out);
  return functionalize_write(
      "gpuopt::reduce_min", out, {self},
      [&] { return gpuopt::reduce_min(functional_value(self), dim, keepdim); },
      [&] { ops::reduce_min_out().call(self, dim, keepdim, out); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  m.impl("reduce_sum.out", sum_out_functional);
  m.impl("reduce_mean.out", mean_out_functional);
  m.impl("reduce_max.out", max_out_functional);
  m.impl("reduce_min.out", min_out_functional);
}

// ---------------------------------------------------------------- autocast

// As in torch.sum, autocast on CUDA sums to float32 unless dtype is given. The other reductions
// keep their dtype. On the CPU, all reductions do.
Tensor sum_autocast(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                    std::optional<ScalarType> dtype) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  if (!dtype.has_value() && at::autocast::is_eligible(self, c10::DeviceType::CUDA)) {
    dtype = at::kFloat;
  }
  return gpuopt::reduce_sum(self, dim, keepdim, dtype);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { m.impl("reduce_sum", sum_autocast); }

}  // namespace
}  // namespace gpuopt::reduce
