// The CUDA kernel of gpuopt_ladder::cumsum.
#include <torch/library.h>

#include <string_view>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "scan/binding/scan_ops.h"
#include "scan/ladder/scan_ladder.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

constexpr const char* kOp = "cumsum";

bool reads_vecs(int64_t step) {
  for (int64_t i = 0; i <= step; ++i) {
    if (std::string_view(kLadder[i].name) == "vectors") return true;
  }
  return false;
}

Tensor cumsum_cuda(const Tensor& self, int64_t step) {
  check_step(kOp, step);
  if (is_production(kOp, step)) return gpuopt::cumsum(self, /*dim=*/-1);
  TORCH_CHECK(self.dim() == 1,
              "gpuopt_ladder::cumsum: self must be a vector: expected 1 dimension, got shape ",
              self.sizes());
  check_ladder_operand(kOp, "self", self, {at::kFloat});
  if (reads_vecs(step)) check_ladder_vecs(kOp, kLadder[step].name, "self", self);
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = at::empty(self.sizes(), self.options());
  TensorWorkspace workspace;
  const LadderProblem problem{self.const_data_ptr<float>(), self.numel(),
                              out.mutable_data_ptr<float>(), sm_count()};
  check_launch(kOp, ladder_scan(static_cast<int>(step), problem, workspace,
                                c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("cumsum", cumsum_cuda); }

}  // namespace
}  // namespace gpuopt::scan
