// package libgpuopt-torch2.11.so model.pt2: runs a model that aoti.py exported.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int, char** argv) {
  // The package calls gpuopt's operators through the dispatcher, so they must be registered.
  if (dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  torch::inductor::AOTIModelPackageLoader model(argv[2]);
  const at::Tensor x = at::linspace(-1, 1, 2 * 8 * 32, at::kFloat).view({2, 8, 32});
  for (const at::Tensor& out : model.run({x})) std::printf("%.5f\n", out.sum().item<double>());
  return 0;
}
