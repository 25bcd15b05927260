// gpuopt_ladder::index_add_: schema and steps.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "binding/ladder.h"
#include "index_add/index_add_ladder.h"

namespace gpuopt::index_add {
namespace {

const RegisterLadder steps("index_add_", kLadder);

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("index_add_(Tensor(a!) self, Tensor index, Tensor source, int step) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("index_add_", torch::autograd::autogradNotImplementedFallback());
}

// Counts self's versions, which autograd compares.
TORCH_LIBRARY_IMPL(gpuopt_ladder, ADInplaceOrView, m) {
  m.impl("index_add_", torch::autograd::autogradNotImplementedInplaceOrViewFallback());
}

}  // namespace
}  // namespace gpuopt::index_add
