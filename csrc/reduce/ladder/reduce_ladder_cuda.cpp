// The CUDA kernels of gpuopt_ladder::reduce_sum and reduce_max.
#include <torch/library.h>

#include <cstring>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "reduce/binding/reduce_ops.h"
#include "reduce/ladder/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;
using Launcher = cudaError_t (*)(int, const LadderProblem&, Workspace&, cudaStream_t);

bool reads_vecs(int64_t step) {
  for (int64_t i = 0; i <= step; ++i) {
    if (std::strcmp(kLadder[i].name, "vectors") == 0) return true;
  }
  return false;
}

Tensor climb(const char* op, Launcher launcher, const Tensor& self, int64_t step) {
  check_ladder_operand(op, "self", self, {at::kFloat});
  if (reads_vecs(step)) check_ladder_vecs(op, kLadder[step].name, "self", self);
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = at::empty({}, self.options());
  TensorWorkspace workspace;
  const LadderProblem problem{self.const_data_ptr<float>(), self.numel(),
                              out.mutable_data_ptr<float>(), sm_count()};
  check_launch(
      op, launcher(static_cast<int>(step), problem, workspace, c10::cuda::getCurrentCUDAStream()));
  return out;
}

Tensor reduce_sum_cuda(const Tensor& self, int64_t step) {
  check_step("reduce_sum", step);
  if (is_production("reduce_sum", step)) return reduce_sum(self);
  return climb("reduce_sum", ladder_sum, self, step);
}

Tensor reduce_max_cuda(const Tensor& self, int64_t step) {
  check_step("reduce_max", step);
  // The maximum of no values is an error. The production operator raises it for all steps.
  if (is_production("reduce_max", step) || self.numel() == 0) return reduce_max(self);
  return climb("reduce_max", ladder_max, self, step);
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  m.impl("reduce_sum", reduce_sum_cuda);
  m.impl("reduce_max", reduce_max_cuda);
}

}  // namespace
}  // namespace gpuopt::reduce
