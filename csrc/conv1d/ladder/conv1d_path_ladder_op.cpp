// gpuopt_ladder::conv1d_paths and conv1d_path: schemas.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

namespace gpuopt::conv1d {
namespace {

// `what` is "output", "grad_input" or "grad_weight". conv1d_paths returns the names of the paths
// that support the problem, separated by commas; the chosen one is first. conv1d_path computes
// with the path of that name.
TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def(
      "conv1d_paths(Tensor input, Tensor weight, Tensor? bias, Tensor? grad_output, int stride, "
      "int padding, int dilation, int groups, str what) -> str");
  m.def(
      "conv1d_path(Tensor input, Tensor weight, Tensor? bias, Tensor? grad_output, int stride, "
      "int padding, int dilation, int groups, str what, str path) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("conv1d_paths", torch::autograd::autogradNotImplementedFallback());
  m.impl("conv1d_path", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gpuopt::conv1d
