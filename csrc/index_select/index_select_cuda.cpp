// The CUDA kernel of gpuopt::_gather_rows.
#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "index_select/index_select.h"
#include "index_select/index_select_ops.h"

namespace gpuopt::index_select {
namespace {

using at::Tensor;

// Only calls that overriding::IndexSelect::decide() takes get here.
Tensor gather_rows_cuda(const GatherRows& op) {
  const auto& [self, index] = op;
  at::DimVector shape(self.sizes());
  shape[0] = index.numel();
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = unfilled(shape, self.options());
  const auto item = static_cast<int64_t>(self.element_size());
  Gather gather;
  gather.self = self.const_data_ptr();
  gather.index = index.const_data_ptr();
  gather.out = out.mutable_data_ptr();
  gather.long_index = index.scalar_type() == at::kLong;
  gather.bins = self.size(0);
  gather.entries = index.numel();
  gather.index_stride = index.stride(0);
  gather.row_bytes = *row_size(self, 0) * item;
  gather.bin_bytes = self.stride(0) * item;
  check_launch(name_of<GatherRows>(), gather_rows(gather, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { impl<GatherRows, gather_rows_cuda>(m); }

}  // namespace
}  // namespace gpuopt::index_select
