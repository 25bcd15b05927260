// gpuopt_ladder::upsample_nearest2d and upsample_nearest2d_backward: schemas and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "upsample/upsample_ladder.h"

namespace gpuopt::upsample {
namespace {

const RegisterLadder forward_steps("upsample_nearest2d", kForwardLadder);
const RegisterLadder backward_steps("upsample_nearest2d_backward", kBackwardLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("upsample_nearest2d(Tensor input, int[2] output_size, int step) -> Tensor");
  m.def(
      "upsample_nearest2d_backward(Tensor grad_output, int[2] output_size, int[4] input_size, "
      "int step) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("upsample_nearest2d", torch::autograd::autogradNotImplementedFallback());
  m.impl("upsample_nearest2d_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::upsample
