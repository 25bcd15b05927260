// The CUDA kernels of gpuopt_ladder::mul.
#include <torch/library.h>

#include <string_view>

#include "binding/check.h"
#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "elementwise/binding/elementwise_ops.h"
#include "elementwise/ladder/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

void check_pairs(const char* step, NamedTensor argument) {
  const auto behind = reinterpret_cast<uintptr_t>(argument.tensor.const_data_ptr()) % 4;
  TORCH_CHECK(behind == 0, "gpuopt_ladder::mul, step ", step, ": ", argument.name,
              " must begin at a multiple of 4 bytes, got a view that begins ", behind,
              " bytes behind one");
}

Tensor mul_cuda(const Tensor& self, const Tensor& other, int64_t step) {
  check_step("mul", step);
  if (is_production("mul", step)) return gpuopt::mul(self, other);
  const char* name = kLadder[step].name;
  const std::string_view known = name;
  // Only the production operator accepts zero-dimensional CPU tensors.
  TORCH_CHECK(other.device() == self.device(),
              "gpuopt_ladder::mul: other must be on the device of self: expected ", self.device(),
              ", got ", other.device());
  TORCH_CHECK(other.sizes().equals(self.sizes()),
              "gpuopt_ladder::mul: other must have self's shape, without broadcasting: expected ",
              self.sizes(), ", got ", other.sizes());
  for (const NamedTensor& argument : {NamedTensor{"self", self}, NamedTensor{"other", other}}) {
    check_ladder_operand("mul", argument.name, argument.tensor,
                         {known.starts_with("half") ? at::kHalf : at::kFloat});
    if (known.ends_with("vectors")) check_ladder_vecs("mul", name, argument.name, argument.tensor);
    if (known == "half2") check_pairs(name, argument);
  }
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = at::empty(self.sizes(), self.options());
  const LadderProblem problem{self.const_data_ptr(), other.const_data_ptr(), out.mutable_data_ptr(),
                              self.numel(), sm_count()};
  check_launch("gpuopt_ladder::mul",
               ladder_mul(static_cast<int>(step), problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("mul", mul_cuda); }

}  // namespace
}  // namespace gpuopt::elementwise
