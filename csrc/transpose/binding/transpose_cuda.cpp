// The CUDA bindings of transposition: they check a call, plan it and call a launcher.
#include <ATen/ATen.h>

#include <optional>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_plan.h"
#include "transpose/binding/transpose_ops.h"
#include "transpose/binding/transpose_problem.h"
#include "transpose/transpose.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

// The problem of a tensor that is not empty. Batch dimensions that one stride can step through are
// merged. Returns nothing if more than kMaxBatchDims are left.
std::optional<Problem> make_problem(const Tensor& self, const Tensor& out) {
  Problem problem;
  problem.in = self.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.item = self.element_size();
  problem.rows = self.size(-2);
  problem.columns = self.size(-1);
  // The stride of a single row or column is arbitrary, so it is replaced.
  problem.row_stride = problem.rows == 1 ? problem.columns : self.stride(-2);
  problem.column_stride = problem.columns == 1 ? 1 : self.stride(-1);
  int& dims = problem.batch_dims;
  for (int64_t d = self.dim() - 3; d >= 0; --d) {
    const int64_t size = self.size(d), stride = self.stride(d);
    if (size == 1) continue;
    if (dims > 0 && problem.batch_sizes[dims - 1] * problem.batch_strides[dims - 1] == stride) {
      problem.batch_sizes[dims - 1] *= size;
      continue;
    }
    if (dims == kMaxBatchDims) return std::nullopt;
    problem.batch_sizes[dims] = size;
    problem.batch_strides[dims++] = stride;
  }
  return problem;
}

// Copies `view` to `out`, which has the same shape and dtype, on the element-wise engine. The outer
// dimensions are flattened, by a copy if necessary, if there are more than the engine supports.
void copy_into(const Tensor& out, const Tensor& view, cudaStream_t stream) {
  const char* op = name_of<Transpose2D>();
  if (view.dim() > elementwise::kMaxDims) {
    copy_into(out.flatten(0, -elementwise::kMaxDims), view.flatten(0, -elementwise::kMaxDims),
              stream);
    return;
  }
  elementwise::Problem<1> problem;
  problem.num_dims = static_cast<int>(view.dim());
  problem.operands[0].data = out.mutable_data_ptr();
  problem.operands[1].data = const_cast<void*>(view.const_data_ptr());
  const DType dtype = bits_of_size(op, view.element_size());
  for (int d = 0; d < problem.num_dims; ++d) {
    const int64_t own = view.dim() - 1 - d;
    problem.sizes[d] = view.size(own);
    problem.operands[0].strides[d] = out.stride(own);
    problem.operands[1].strides[d] = view.stride(own);
  }
  problem.dtype = problem.operands[0].dtype = problem.operands[1].dtype = dtype;
  const auto plan = elementwise::make_plan<elementwise::Types::kAll>(problem, current_device());
  check_launch(op, elementwise::copy(plan, stream));
}

Tensor transpose2d_cuda(const Transpose2D& op) {
  const Tensor& self = op.self;
  check(op);
  check_memory(name_of<Transpose2D>(), {{"input", self}});
  const c10::cuda::CUDAGuard guard(self.device());
  at::DimVector sizes(self.sizes());
  std::swap(sizes.end()[-1], sizes.end()[-2]);
  const Tensor out = unfilled(sizes, self.options());
  if (out.numel() == 0) return out;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const std::optional<Problem> problem = make_problem(self, out);
  if (problem.has_value()) record("transpose", *problem);
  const Plan plan = problem.has_value() ? make_plan(*problem) : Plan();
  if (plan.path != Path::kEngine) {
    check_launch(name_of<Transpose2D>(), transpose(plan, stream));
  } else {
    copy_into(out, self.mT(), stream);
  }
  return out;
}

// Copies that are no transposition, or that transposes no faster, are ATen's.
Tensor& copy_transposed_cuda(const CopyTransposed& op) {
  const auto& [out, self] = op;
  const std::optional<Problem> problem =
      only_moves_bits(out, self) ? transposition_of(out, self) : std::nullopt;
  const Plan plan = problem.has_value() ? make_plan(*problem) : Plan();
  if (plan.path == Path::kEngine) return out.copy_(self);
  const c10::cuda::CUDAGuard guard(self.device());
  check_launch(name_of<CopyTransposed>(), transpose(plan, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Transpose2D, transpose2d_cuda>(m);
  impl<CopyTransposed, copy_transposed_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::transpose
