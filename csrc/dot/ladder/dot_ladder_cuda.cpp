// The CUDA kernels of gpuopt_ladder::dot.
#include <torch/library.h>

#include <string_view>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "dot/binding/dot_check.h"
#include "dot/binding/dot_ops.h"
#include "dot/ladder/dot_ladder.h"

namespace gpuopt::dot {
namespace {

using at::Tensor;

Tensor dot_cuda(const Tensor& self, const Tensor& tensor, int64_t step) {
  constexpr const char* op = "gpuopt_ladder::dot";
  check_step("dot", step);
  if (is_production("dot", step)) return call(Dot{self, tensor});
  check_operands(op, 1, self, {"tensor", tensor});
  for (const NamedTensor& argument : {NamedTensor{"self", self}, NamedTensor{"tensor", tensor}}) {
    check_ladder_operand("dot", argument.name, argument.tensor, {at::kHalf});
    if (std::string_view(kLadder[step].name) == "vectors") {
      check_ladder_vecs("dot", kLadder[step].name, argument.name, argument.tensor);
    }
  }
  const c10::cuda::CUDAGuard guard(self.device());
  // Atomic additions write the aligned pair that begins with the result.
  const Tensor out = at::empty({2}, self.options()).select(0, 0);
  TensorWorkspace workspace;
  const LadderProblem problem{self.const_data_ptr(), tensor.const_data_ptr(), self.numel(),
                              out.mutable_data_ptr(), sm_count()};
  check_launch(op, ladder_dot(static_cast<int>(step), problem, workspace,
                              c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("dot", dot_cuda); }

}  // namespace
}  // namespace gpuopt::dot
