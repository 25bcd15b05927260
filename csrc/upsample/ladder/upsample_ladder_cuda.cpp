// The CUDA kernels of gpuopt_ladder::upsample_nearest2d and upsample_nearest2d_backward.
#include <torch/library.h>

#include <cstring>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "upsample/binding/upsample_check.h"
#include "upsample/ladder/upsample_ladder.h"

namespace gpuopt::upsample {
namespace {

using at::IntArrayRef;
using at::Tensor;

LadderProblem make_problem(const Tensor& from, const Sizes& sizes) {
  LadderProblem problem;
  problem.from = from.const_data_ptr();
  problem.planes = sizes.batch * sizes.channels;
  problem.height = ladder_axis(sizes.in_height, sizes.out_height);
  problem.width = ladder_axis(sizes.in_width, sizes.out_width);
  problem.element_bytes = static_cast<int>(from.element_size());
  return problem;
}

// Checks the limits of the steps for twice the size. On sides of 2^21 pixels or more, float32 does
// not give o / 2 for every output pixel o.
void check_2x(const char* op, const char* step, const char* name, const Tensor& tensor,
              const LadderProblem& problem) {
  const Axis &height = problem.height, &width = problem.width;
  TORCH_CHECK(height.factor == 2 && width.factor == 2, "gpuopt_ladder::", op, ", step ", step,
              ": output_size must be twice the height and width of the input, and below 2^21: "
              "expected ",
              2 * int64_t{height.in}, " and ", 2 * int64_t{width.in}, ", got ", height.out, " and ",
              width.out);
  check_ladder_vecs(op, step, name, tensor);
}

Tensor upsample_nearest2d_cuda(const Tensor& input, IntArrayRef output_size, int64_t step) {
  constexpr const char* op = "upsample_nearest2d";
  constexpr const char* full_name = "gpuopt_ladder::upsample_nearest2d";
  check_step(op, step);
  if (is_production(op, step)) {
    return call(UpsampleNearest2d{input, c10::fromIntArrayRefSlow(output_size), std::nullopt,
                                  std::nullopt});
  }
  check_output_size(full_name, output_size);
  check_input(full_name, "input", input.sizes());
  check_ladder_operand(op, "input", input, {at::kFloat, at::kHalf, at::kBFloat16});
  const Sizes sizes{input.size(0), input.size(1),  input.size(2),
                    input.size(3), output_size[0], output_size[1]};
  LadderProblem problem = make_problem(input, sizes);
  const char* name = kForwardLadder[step].name;
  if (std::strcmp(name, "vectors_2x") == 0) check_2x(op, name, "input", input, problem);
  const c10::cuda::CUDAGuard guard(input.device());
  Tensor out =
      at::empty({sizes.batch, sizes.channels, sizes.out_height, sizes.out_width}, input.options());
  if (out.numel() == 0) return out;
  problem.to = out.mutable_data_ptr();
  check_launch(op,
               ladder_forward(static_cast<int>(step), problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

Tensor upsample_nearest2d_backward_cuda(const Tensor& grad_output, IntArrayRef output_size,
                                        IntArrayRef input_size, int64_t step) {
  constexpr const char* op = "upsample_nearest2d_backward";
  check_step(op, step);
  if (is_production(op, step)) {
    return call(UpsampleNearest2dBackward{grad_output, c10::fromIntArrayRefSlow(output_size),
                                          c10::fromIntArrayRefSlow(input_size), std::nullopt,
                                          std::nullopt});
  }
  const Sizes sizes = check_backward("gpuopt_ladder::upsample_nearest2d_backward", grad_output,
                                     output_size, input_size);
  check_ladder_operand(op, "grad_output", grad_output, {at::kFloat});
  LadderProblem problem = make_problem(grad_output, sizes);
  const char* name = kBackwardLadder[step].name;
  if (std::strcmp(name, "gather_2x") == 0) check_2x(op, name, "grad_output", grad_output, problem);
  const c10::cuda::CUDAGuard guard(grad_output.device());
  Tensor grad_input = at::empty(input_size, grad_output.options());
  if (grad_input.numel() == 0) return grad_input;
  problem.to = grad_input.mutable_data_ptr();
  check_launch(op,
               ladder_backward(static_cast<int>(step), problem, c10::cuda::getCurrentCUDAStream()));
  return grad_input;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  m.impl("upsample_nearest2d", upsample_nearest2d_cuda);
  m.impl("upsample_nearest2d_backward", upsample_nearest2d_backward_cuda);
}

}  // namespace
}  // namespace gpuopt::upsample
