// Launches the kernels that a plan names, for any functor of the element-wise engine.
#pragma once

#include <cuda_runtime_api.h>

#include <variant>

#include "common/launch.cuh"
#include "elementwise/elementwise_paths.h"
#include "elementwise/paths/elementwise_kernel.cuh"
#include "elementwise/paths/elementwise_tiled.cuh"

namespace gpuopt::elementwise {

// Launches the kernel of each path for values of type T. Kernels that no plan names for these types
// are not compiled.
template <typename F, typename T, bool kEveryPath>
struct Launcher {
  static constexpr int kInputs = F::kInputs;
  const F& f;
  const LaunchShape& shape;
  cudaStream_t stream;

  cudaError_t operator()(const VectorPlan<kInputs>& plan) const {
    return run(vector_kernel<F, T, kThreads>, plan.args);
  }

  cudaError_t operator()(const RowsPlan<kInputs>& plan) const {
    if constexpr (sizeof(T) >= 2) {
      if (plan.vecs == 2) return run(rows_kernel<F, T, Access::kAligned, kThreads, 2>, plan.args);
    }
    switch (plan.access) {
      case Access::kAligned:
        return run(rows_kernel<F, T, Access::kAligned, kThreads, 1>, plan.args);
      case Access::kUnaligned:
        if constexpr (kEveryPath) {
          return run(rows_kernel<F, T, Access::kUnaligned, kThreads, 1>, plan.args);
        }
        break;
      case Access::kConverted:
        if constexpr (kEveryPath) {
          return run(rows_kernel<F, T, Access::kConverted, kThreads, 1>, plan.args);
        }
        break;
    }
    return cudaErrorInvalidValue;
  }

  cudaError_t operator()(const TiledPlan<kInputs>& plan) const {
    if constexpr (kEveryPath) {
      return plan.packed ? run(packed_tiles_kernel<F, T, kTileThreads>, plan.args, plan.grid)
                         : run(value_tiles_kernel<F, T, kTileThreads>, plan.args, plan.grid);
    }
    return cudaErrorInvalidValue;
  }

  cudaError_t operator()(const PackedPlan<kInputs>& plan) const {
    if constexpr (kEveryPath) return run(packed_kernel<F, T, kThreads>, plan.args);
    return cudaErrorInvalidValue;
  }

  cudaError_t operator()(const PackedRowsPlan<kInputs>& plan) const {
    if constexpr (kEveryPath) {
      return run(packed_rows_kernel<F, T, kThreads>, plan.args, plan.vecs_per_row, plan.vecs);
    }
    return cudaErrorInvalidValue;
  }

  cudaError_t operator()(const GeneralPlan<kInputs>& plan) const {
    return plan.one_type ? run_general<true>(plan) : run_general<false>(plan);
  }

  template <bool kOneType>
  cudaError_t run_general(const GeneralPlan<kInputs>& plan) const {
    return plan.values == 2 ? run(general_kernel<F, T, kThreads, 2, kOneType>, plan.args)
                            : run(general_kernel<F, T, kThreads, 4, kOneType>, plan.args);
  }

  template <typename Kernel, typename... Args>
  cudaError_t run(Kernel* kernel, const Args&... args) const {
    return launch_kernel(kernel, shape, stream, f, args...);
  }
};

template <typename T, typename F, int kInputs, Types kTypes>
cudaError_t launch_as(const F& f, const Plan<kInputs, kTypes>& plan, cudaStream_t stream) {
  constexpr bool kEveryPath = kTypes == Types::kAll || kCategory<T> == Category::kFloat;
  for (const Launch<kInputs>& launch : plan.launches) {
    const Launcher<F, T, kEveryPath> launcher{f, launch.shape, stream};
    const cudaError_t error = std::visit(launcher, launch.path);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Runs an operator. F is its functor, a template over the compute type. `scalars` initialise the
// functor's fields.
template <template <typename> class F, int kInputs, Types kTypes, typename... Scalars>
cudaError_t launch(const Plan<kInputs, kTypes>& plan, cudaStream_t stream,
                   const Scalars&... scalars) {
  return dispatch_storage(plan.dtype, [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    return launch_as<T>(F<C>{from_scalar<C>(scalars)...}, plan, stream);
  });
}

}  // namespace gpuopt::elementwise
