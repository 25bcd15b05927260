// The CUDA kernel of gpuopt_ladder::transpose2d.
#include <torch/library.h>

#include <cstring>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "transpose/binding/transpose_ops.h"
#include "transpose/ladder/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

constexpr const char* kOp = "transpose2d";

Tensor transpose2d_cuda(const Tensor& self, int64_t step) {
  check_step(kOp, step);
  if (is_production(kOp, step)) return gpuopt::transpose2d(self);
  TORCH_CHECK(
      self.dim() == 2,
      "gpuopt_ladder::transpose2d: self must be a matrix: expected 2 dimensions, got shape ",
      self.sizes());
  check_ladder_operand(kOp, "self", self, {at::kFloat});
  const int64_t rows = self.size(0), columns = self.size(1);
  if (std::strcmp(kLadder[step].name, "vectors") == 0) {
    check_ladder_vecs(kOp, kLadder[step].name, "self", self);
    TORCH_CHECK(rows % 4 == 0 && columns % 4 == 0,
                "gpuopt_ladder::transpose2d, step vectors: self must have rows and columns "
                "of whole vectors: expected sizes that are multiples of 4, got shape ",
                self.sizes());
  }
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = at::empty({columns, rows}, self.options());
  if (out.numel() == 0) return out;
  const LadderProblem problem{self.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows,
                              columns};
  check_launch(
      kOp, ladder_transpose(static_cast<int>(step), problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("transpose2d", transpose2d_cuda); }

}  // namespace
}  // namespace gpuopt::transpose
