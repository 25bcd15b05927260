// The CUDA kernel of gpuopt_ladder::conv1d.
#include <torch/library.h>

#include "binding/check.h"
#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "conv1d/binding/ops.h"
#include "conv1d/ladder/conv1d_ladder.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;

constexpr const char* kOp = "conv1d";

void check(const Tensor& input, const Tensor& weight, int64_t step) {
  check_same_device("gpuopt_ladder::conv1d", {{"input", input}, {"weight", weight}});
  check_ladder_operand(kOp, "input", input, {at::kFloat});
  check_ladder_operand(kOp, "weight", weight, {at::kFloat});
  TORCH_CHECK(input.dim() == 3 && input.size(1) == 1,
              "gpuopt_ladder::conv1d: input must be rows of one channel: expected shape (N, 1, L), "
              "got shape ",
              input.sizes());
  TORCH_CHECK(
      input.size(2) > 0,
      "gpuopt_ladder::conv1d: input must have values: expected size 1 or more in dimension 2, "
      "got shape ",
      input.sizes());
  TORCH_CHECK(weight.dim() == 3 && weight.size(0) == 1 && weight.size(1) == 1,
              "gpuopt_ladder::conv1d: weight must be the taps of one channel: expected shape (1, "
              "1, K), got shape ",
              weight.sizes());
  const int64_t taps = weight.size(2);
  TORCH_CHECK(taps % 2 == 1,
              "gpuopt_ladder::conv1d: weight must have a tap in the middle: expected an odd size "
              "in dimension 2, got shape ",
              weight.sizes());
  TORCH_CHECK(step == 0 || taps <= kMostTaps, "gpuopt_ladder::conv1d, step ", kLadder[step].name,
              ": weight must fit into constant memory: expected at most ", kMostTaps, " taps, got ",
              taps);
}

Tensor conv1d_cuda(const Tensor& input, const Tensor& weight, int64_t step) {
  check_step(kOp, step);
  if (is_production(kOp, step)) {
    return ops::conv1d_padding().call(input, weight, std::nullopt, {1}, "same", {1}, 1);
  }
  check(input, weight, step);
  const c10::cuda::CUDAGuard guard(input.device());
  const Tensor out = at::empty(input.sizes(), input.options());
  const LadderProblem problem{input.const_data_ptr<float>(),
                              weight.const_data_ptr<float>(),
                              out.mutable_data_ptr<float>(),
                              input.size(0),
                              input.size(2),
                              weight.size(2)};
  check_launch(kOp,
               ladder_conv1d(static_cast<int>(step), problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("conv1d", conv1d_cuda); }

}  // namespace
}  // namespace gpuopt::conv1d
