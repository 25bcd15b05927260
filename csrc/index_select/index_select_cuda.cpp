// The CUDA kernel of gpuopt::index_select: a call -> Gather -> Plan -> launcher, or ATen's kernel.
#include <ATen/ATen.h>

#include <string>

#include "binding/aten.h"
#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "index_select/index_select.h"
#include "index_select/index_select_check.h"

namespace gpuopt::index_select {
namespace {

using at::Tensor;

// What is wrong with the arguments, or nothing. ATen's CUDA kernel throws other exception types
// than its CPU kernel.
std::string fault(const IndexSelect& op) {
  try {
    check(op);
    return {};
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return message.substr(message.find(": ") + 2);  // without the operator's name
  }
}

// `entries` are a vector.
Tensor gather(const char* op, const Tensor& self, int64_t dim, const Tensor& entries,
              const Rows& rows, at::IntArrayRef sizes) {
  const Tensor out = unfilled(sizes, self.options());
  const auto item = static_cast<int64_t>(self.element_size());
  Gather gather;
  gather.self = self.const_data_ptr();
  gather.index = entries.const_data_ptr();
  gather.out = out.mutable_data_ptr();
  gather.long_index = entries.scalar_type() == at::kLong;
  gather.bins = self.size(dim);
  gather.entries = entries.numel();
  gather.index_stride = entries.stride(0);
  gather.row_bytes = rows.bytes;
  gather.bin_bytes = self.stride(dim) * item;
  gather.tables = rows.tables;
  gather.table_bytes = rows.table_stride * item;
  check_launch(op, launch(plan(gather), c10::cuda::getCurrentCUDAStream()));
  return out;
}

// The caller has checked all but what rows_of() asks.
Tensor gather_rows_cuda(const GatherRows& op) {
  const c10::cuda::CUDAGuard guard(op.self.device());
  const int64_t dim = *wrapped(op.dim, op.self);
  const std::optional<Rows> rows = rows_of(op.self, dim, op.index);
  if (!rows.has_value()) return at::gather(op.self, op.dim, op.index);
  Tensor entries = op.index;
  for (int64_t d = op.self.dim() - 1; d > dim; --d) entries = entries.select(d, 0);
  return gather(name_of<GatherRows>(), op.self, dim, entries.reshape({-1}), *rows,
                op.index.sizes());
}

Tensor index_select_cuda(const IndexSelect& op) {
  const auto& [self, dim, index] = op;
  check_memory(name_of<IndexSelect>(), {{"input", self}, {"index", index}});
  const c10::cuda::CUDAGuard guard(self.device());
  const std::optional<int64_t> d = wrapped(dim, self);
  const std::optional<int64_t> row =
      d.has_value() && is_supported(self, index) ? row_bytes(self, *d) : std::nullopt;
  if (row.has_value()) {
    at::DimVector sizes(self.sizes());
    sizes[*d] = index.numel();
    return gather(name_of<IndexSelect>(), self, *d, index, {.bytes = *row}, sizes);
  }
  return call_aten(
      name_of<IndexSelect>(), self, [&] { return at::index_select(op.self, op.dim, op.index); },
      [&] { return fault(op); });
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<IndexSelect, index_select_cuda>(m);
  impl<GatherRows, gather_rows_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::index_select
