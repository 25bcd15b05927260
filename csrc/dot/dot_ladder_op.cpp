// gpuopt_ladder::dot: schema and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "dot/dot_ladder.h"

namespace gpuopt::dot {
namespace {

const RegisterLadder steps("dot", kLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("dot(Tensor self, Tensor tensor, int step) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("dot", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::dot
