#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>

// operators libgpuopt-torch2.11.so: a causal depthwise convolution and its gradient.
int main(int, char** argv) {
  if (dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {  // registers the operators
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                               const std::optional<at::Tensor>&, std::string_view);
  static const auto causal_conv1d = c10::Dispatcher::singleton()
                                        .findSchemaOrThrow("gpuopt::causal_conv1d", "")
                                        .typed<Signature>();
  const auto device = at::hasCUDA() ? at::kCUDA : at::kCPU;
  const at::Tensor x = at::ones({1, 2, 5}, device).requires_grad_();
  const at::Tensor weight = at::ones({2, 3}, device);
  const at::Tensor y = causal_conv1d.call(x, weight, std::nullopt, "none");
  y.sum().backward();
  std::printf("%g %g\n", y.sum().item<double>(), x.grad().sum().item<double>());
  return 0;
}
