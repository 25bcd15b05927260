// Plans a convolution and launches its kernel, without torch: raw pointers, a stream, and the
// headers of csrc/conv1d that know no torch. Without a GPU it prints the plan and stops there.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "conv1d/conv1d.h"

namespace conv1d = gpuopt::conv1d;

namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

// A path that needs no workspace asks for none, and forward paths need none.
struct NoWorkspace : gpuopt::Workspace {
  void* allocate(size_t) override { return nullptr; }
  void release() override {}
};

float* on_device(const std::vector<float>& values) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(float)));
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
  return static_cast<float*>(memory);
}

float silu(float value) { return value / (1 + std::exp(-value)); }

}  // namespace

int main() {
  constexpr int64_t batch = 2, channels = 256, length = 2048, taps = 4;

  // The problem: out[n, c, l] = silu(sum over k of x[n, c, l - 3 + k] * weight[c, k]). Addresses
  // that are null count as aligned, so a plan can be made before there is memory.
  conv1d::Problem problem;
  problem.from = {
      .batch_stride = channels * length, .channel_stride = length, .channels = 1, .size = length};
  problem.to = problem.from;
  problem.weight = {.group_stride = taps, .out_stride = taps, .in_stride = taps};
  problem.batch = batch;
  problem.groups = channels;
  problem.taps = taps;
  problem.padding = taps - 1;
  problem.activation = gpuopt::Activation::kSilu;

  int gpus = 0;
  const bool has_gpu = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
  gpuopt::Device device{.sms = 132};  // an H100
  if (has_gpu) {
    check(cudaDeviceGetAttribute(&device.sms, cudaDevAttrMultiProcessorCount, 0));
    check(cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  }
  const auto print = [&](const conv1d::Plan& plan) {
    std::printf("path %s for %d SMs\n", plan.name(), device.sms);
  };
  if (!has_gpu) {
    print(conv1d::plan(problem, conv1d::Pass::kForward, device));
    std::printf("no GPU: nothing was launched\n");
    return 0;
  }

  std::vector<float> x(batch * channels * length), weight(channels * taps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000) / 1000 - 0.5f;
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 5) / 4 - 0.5f;
  problem.from.data = on_device(x);
  problem.weight.data = on_device(weight);
  float* const out = on_device(std::vector<float>(x.size()));
  const conv1d::Plan plan = conv1d::plan(problem, conv1d::Pass::kForward, device);
  print(plan);
  NoWorkspace workspace;
  check(conv1d::launch(plan, out, workspace, /*stream=*/nullptr));

  std::vector<float> got(x.size());
  check(cudaMemcpy(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
  double largest = 0;
  for (int64_t row = 0; row < batch * channels; ++row) {
    for (int64_t l = 0; l < length; ++l) {
      float sum = 0;
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t from = l - (taps - 1) + k;
        if (from >= 0) sum += x[row * length + from] * weight[row % channels * taps + k];
      }
      largest = std::max(largest, std::abs(double{got[row * length + l]} - silu(sum)));
    }
  }
  std::printf("largest error %.1e\n", largest);
  return largest < 1e-5 ? 0 : 1;
}
