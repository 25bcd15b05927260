// The CUDA kernel of gpuopt_ladder::conv1d.
#include "binding/ladder_cuda.h"
#include "conv1d/binding/ops.h"
#include "conv1d/ladder/conv1d_ladder.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;

void check(const LadderCall& call, const Tensor& input, const Tensor& weight) {
  check_same_device(call.op(), {{"input", input}, {"weight", weight}});
  call.check_operand({"input", input}, {at::kFloat});
  call.check_operand({"weight", weight}, {at::kFloat});
  TORCH_CHECK(input.dim() == 3 && input.size(1) == 1, call.op(),
              ": input must be rows of one channel: expected shape (N, 1, L), got shape ",
              input.sizes());
  TORCH_CHECK(input.size(2) > 0, call.op(),
              ": input must have values: expected size 1 or more in dimension 2, got shape ",
              input.sizes());
  TORCH_CHECK(weight.dim() == 3 && weight.size(0) == 1 && weight.size(1) == 1, call.op(),
              ": weight must be the taps of one channel: expected shape (1, 1, K), got shape ",
              weight.sizes());
  const int64_t taps = weight.size(2);
  TORCH_CHECK(taps % 2 == 1, call.op(),
              ": weight must have a tap in the middle: expected an odd size in dimension 2, got "
              "shape ",
              weight.sizes());
  TORCH_CHECK(call.step() == 0 || taps <= kMostTaps, call.op_and_step(),
              ": weight must fit into constant memory: expected at most ", kMostTaps, " taps, got ",
              taps);
}

Tensor conv1d_step(const LadderCall& call, const Tensor& input, const Tensor& weight) {
  check(call, input, weight);
  const Tensor out = at::empty(input.sizes(), input.options());
  launch_step(
      call, ladder_conv1d,
      LadderProblem{input.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                    out.mutable_data_ptr<float>(), input.size(0), input.size(2), weight.size(2)});
  return out;
}

Tensor conv1d_production(const Tensor& input, const Tensor& weight) {
  return call(Conv1dPadding{input, weight, std::nullopt, {1}, "same", {1}, 1});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "conv1d", conv1d_production, conv1d_step);
}

}  // namespace
}  // namespace gpuopt::conv1d
