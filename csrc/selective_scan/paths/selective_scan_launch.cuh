// Launches the kernels of a plan for one type.
#pragma once

#include <type_traits>

#include "selective_scan/paths/selective_scan_backward.cuh"
#include "selective_scan/paths/selective_scan_forward.cuh"
#include "selective_scan/paths/selective_scan_run.cuh"

namespace gpuopt::selective {

// Calls f with std::true_type if B or C is constant, else with std::false_type. The types of 16
// bits have no kernels for a constant B or C.
template <typename T, typename F>
cudaError_t with_constant(const Problem& problem, F&& f) {
  if constexpr (sizeof(T) >= 4) {
    if (has_constant(problem)) return f(std::true_type{});
  }
  return f(std::false_type{});
}

template <typename T, Pass kPass>
cudaError_t launch_pass(const Launch<ForwardArgs>& launch, cudaStream_t stream) {
  return with_constant<T>(launch.args.problem, [&](auto constant) {
    constexpr bool kConstant = decltype(constant)::value;
    return with_layout<compute_t<T>, kConstant, false>(launch.args.tiling, [&](auto layout) {
      return launch_kernel(scan_forward<T, decltype(layout), kConstant, kPass>, launch.shape,
                           stream, launch.args);
    });
  });
}

template <typename T>
cudaError_t launch_combine(const Launch<CombineArgs>& launch, cudaStream_t stream) {
  return launch_kernel(combine_segments<compute_t<T>>, launch.shape, stream, launch.args);
}

template <typename T>
cudaError_t run(const ForwardPlan& plan, cudaStream_t stream) {
  if (plan.segments) {
    cudaError_t error = launch_pass<T, Pass::kStates>(plan.segments->states, stream);
    if (error != cudaSuccess) return error;
    error = launch_combine<T>(plan.segments->combine, stream);
    if (error != cudaSuccess) return error;
  }
  return launch_pass<T, Pass::kOutput>(plan.output, stream);
}

template <typename T>
cudaError_t run(const BackwardPlan& plan, cudaStream_t stream) {
  cudaError_t error = launch_pass<T, Pass::kStates>(plan.checkpoints, stream);
  if (error != cudaSuccess) return error;
  if (plan.segments) {
    error = launch_combine<T>(plan.segments->combine, stream);
    if (error != cudaSuccess) return error;
    error = launch_pass<T, Pass::kGradients>(plan.segments->gradients, stream);
    if (error != cudaSuccess) return error;
    error = launch_combine<T>(plan.segments->combine_gradients, stream);
    if (error != cudaSuccess) return error;
  }
  const Launch<BackwardArgs>& backward = plan.backward;
  return with_constant<T>(backward.args.problem, [&](auto constant) {
    constexpr bool kConstant = decltype(constant)::value;
    return with_layout<compute_t<T>, kConstant, true>(backward.args.tiling, [&](auto layout) {
      return launch_kernel(scan_backward<T, decltype(layout), kConstant>, backward.shape, stream,
                           backward.args);
    });
  });
}

}  // namespace gpuopt::selective
