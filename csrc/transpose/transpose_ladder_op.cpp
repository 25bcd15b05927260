// gpuopt_ladder::transpose2d: schema and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "transpose/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

const RegisterLadder steps("transpose2d", kLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) { m.def("transpose2d(Tensor self, int step) -> Tensor"); }

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("transpose2d", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::transpose
