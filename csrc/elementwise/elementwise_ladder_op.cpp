// gpuopt_ladder::mul: schema and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "elementwise/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

const RegisterLadder steps("mul", kLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("mul(Tensor self, Tensor other, int step) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("mul", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::elementwise
