// gpuopt_ladder::conv1d: schema and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "conv1d/ladder/conv1d_ladder.h"

namespace gpuopt::conv1d {
namespace {

const RegisterLadder steps("conv1d", kLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("conv1d(Tensor input, Tensor weight, int step) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("conv1d", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::conv1d
