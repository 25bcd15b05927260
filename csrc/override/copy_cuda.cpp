// The CUDA kernel of gpuopt::_copy_transposed.
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "override/copy.h"
#include "transpose/transpose.h"

namespace gpuopt::overriding {
namespace {

// Copies that are no transposition, or that transposes no faster, are ATen's.
Tensor& copy_transposed_cuda(Tensor& out, const Tensor& self) {
  constexpr const char* op = "gpuopt::_copy_transposed";
  const std::optional<transpose::Problem> problem =
      Copy::supports(out, self) ? transposition_of(out, self) : std::nullopt;
  const transpose::Plan plan =
      problem.has_value() ? transpose::make_plan(*problem) : transpose::Plan();
  if (plan.path == transpose::Path::kEngine) return out.copy_(self);
  const c10::cuda::CUDAGuard guard(self.device());
  check_launch(op, transpose::transpose(*problem, plan, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { m.impl("_copy_transposed", copy_transposed_cuda); }

}  // namespace
}  // namespace gpuopt::overriding
