// gpuopt_ladder::reduce_sum and reduce_max: schemas and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "reduce/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

const RegisterLadder sum_steps("reduce_sum", kLadder);
const RegisterLadder max_steps("reduce_max", kMaxLadder.steps);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("reduce_sum(Tensor self, int step) -> Tensor");
  m.def("reduce_max(Tensor self, int step) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("reduce_sum", torch::autograd::autogradNotImplementedFallback());
  m.impl("reduce_max", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::reduce
