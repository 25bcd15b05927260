// The CUDA kernels of gpuopt_ladder::upsample_nearest2d and upsample_nearest2d_backward.
#include "binding/ladder_cuda.h"
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
void check_2x(const LadderCall& call, NamedTensor argument, const LadderProblem& problem) {
  const Axis &height = problem.height, &width = problem.width;
  TORCH_CHECK(height.factor == 2 && width.factor == 2, call.op_and_step(),
              ": output_size must be twice the height and width of the input, and below 2^21: "
              "expected ",
              2 * int64_t{height.in}, " and ", 2 * int64_t{width.in}, ", got ", height.out, " and ",
              width.out);
  call.check_vecs(argument);
}

Tensor forward_step(const LadderCall& call, const Tensor& input, IntArrayRef output_size) {
  check_output_size(call.op(), output_size);
  check_input(call.op(), "input", input.sizes());
  call.check_operand({"input", input}, {at::kFloat, at::kHalf, at::kBFloat16});
  const Sizes sizes{input.size(0), input.size(1),  input.size(2),
                    input.size(3), output_size[0], output_size[1]};
  LadderProblem problem = make_problem(input, sizes);
  if (call.is("vectors_2x")) check_2x(call, {"input", input}, problem);
  Tensor out =
      at::empty({sizes.batch, sizes.channels, sizes.out_height, sizes.out_width}, input.options());
  if (out.numel() == 0) return out;
  problem.to = out.mutable_data_ptr();
  launch_step(call, ladder_forward, problem);
  return out;
}

Tensor backward_step(const LadderCall& call, const Tensor& grad_output, IntArrayRef output_size,
                     IntArrayRef input_size) {
  const Sizes sizes = check_backward(call.op(), grad_output, output_size, input_size);
  call.check_operand({"grad_output", grad_output}, {at::kFloat});
  LadderProblem problem = make_problem(grad_output, sizes);
  if (call.is("gather_2x")) check_2x(call, {"grad_output", grad_output}, problem);
  Tensor grad_input = at::empty(input_size, grad_output.options());
  if (grad_input.numel() == 0) return grad_input;
  problem.to = grad_input.mutable_data_ptr();
  launch_step(call, ladder_backward, problem);
  return grad_input;
}

Tensor forward_production(const Tensor& input, IntArrayRef output_size) {
  return call(
      UpsampleNearest2d{input, c10::fromIntArrayRefSlow(output_size), std::nullopt, std::nullopt});
}

Tensor backward_production(const Tensor& grad_output, IntArrayRef output_size,
                           IntArrayRef input_size) {
  return call(UpsampleNearest2dBackward{grad_output, c10::fromIntArrayRefSlow(output_size),
                                        c10::fromIntArrayRefSlow(input_size), std::nullopt,
                                        std::nullopt});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "upsample_nearest2d", forward_production, forward_step);
  impl_ladder(m, "upsample_nearest2d_backward", backward_production, backward_step);
}

}  // namespace
}  // namespace gpuopt::upsample
