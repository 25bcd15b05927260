// gpuopt_ladder::copy_in_flight: schema.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("copy_in_flight(Tensor self, int access_bytes, int loads, int warps) -> Tensor");
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, Autograd, m) {
  m.impl("copy_in_flight", torch::autograd::autogradNotImplementedFallback());
}
