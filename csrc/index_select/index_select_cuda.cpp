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

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index, int64_t row) {
  at::DimVector sizes(self.sizes());
  sizes[dim] = index.numel();
  const Tensor out = unfilled(sizes, self.options());
  Gather gather;
  gather.self = self.const_data_ptr();
  gather.index = index.const_data_ptr();
  gather.out = out.mutable_data_ptr();
  gather.long_index = index.scalar_type() == at::kLong;
  gather.bins = self.size(dim);
  gather.entries = index.numel();
  gather.index_stride = index.stride(0);
  gather.row_bytes = row;
  gather.bin_bytes = self.stride(dim) * static_cast<int64_t>(self.element_size());
  check_launch(name_of<IndexSelect>(), launch(plan(gather), c10::cuda::getCurrentCUDAStream()));
  return out;
}

Tensor index_select_cuda(const IndexSelect& op) {
  const auto& [self, dim, index] = op;
  check_memory(name_of<IndexSelect>(), {{"input", self}, {"index", index}});
  const c10::cuda::CUDAGuard guard(self.device());
  const std::optional<int64_t> d = wrapped(dim, self);
  const std::optional<int64_t> row =
      d.has_value() && is_supported(self, index) ? row_bytes(self, *d) : std::nullopt;
  if (row.has_value()) return gather(self, *d, index, *row);
  return call_aten(
      name_of<IndexSelect>(), self, [&] { return at::index_select(op.self, op.dim, op.index); },
      [&] { return fault(op); });
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { impl<IndexSelect, index_select_cuda>(m); }

}  // namespace
}  // namespace gpuopt::index_select
