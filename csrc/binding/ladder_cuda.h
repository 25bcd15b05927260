// The CUDA kernels of ladders: the production operator for the last step, and a launcher for the
// others.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"

namespace gpuopt {

// Registers the CUDA kernel of a ladder. `climb` computes a step on the current device, which is
// that of its first argument, a tensor. `production` takes the same arguments.
template <typename Production, typename Result, typename... Args>
void impl_ladder(torch::Library& m, const char* op, Production production,
                 Result (*climb)(const LadderCall&, Args...)) {
  m.impl(op, [=](Args... args, int64_t step) -> Result {
    const LadderCall call(op, step);
    if (call.is_production()) return production(args...);
    const c10::OptionalDeviceGuard guard(std::get<0>(std::tie(args...)).device());
    return climb(call, args...);
  });
}

// Calls launcher(step, args..., workspace if it takes one, stream).
template <typename Launcher, typename... Args>
void launch_step(const LadderCall& call, Launcher launcher, const Args&... args) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  if constexpr (std::is_invocable_v<Launcher, int, const Args&..., Workspace&, cudaStream_t>) {
    TensorWorkspace workspace;
    check_launch(call.op(), launcher(call.step(), args..., workspace, stream));
  } else {
    check_launch(call.op(), launcher(call.step(), args..., stream));
  }
}

}  // namespace gpuopt
