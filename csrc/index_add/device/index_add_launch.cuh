// Shared by the launchers of all paths. Each launcher is in the file of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "common/launch.cuh"
#include "common/workspace.h"
#include "index_add/device/index_add_values.cuh"
#include "index_add/index_add_plan.h"

namespace gpuopt::index_add {

// One part of a problem, and what its launch needs.
struct Addition {
  const Problem& problem;
  const Layout& layout;
  const Device& device;
  Workspace& workspace;
  cudaStream_t stream;
};

// T is the storage type of the values.
template <typename T>
cudaError_t launch(const AtomicPlan& plan, const Addition& addition);
template <typename T>
cudaError_t launch(const TilesPlan& plan, const Addition& addition);
template <typename T>
cudaError_t launch(const HotPlan& plan, const Addition& addition);
template <typename T>
cudaError_t launch(const SortedPlan& plan, const Addition& addition);
template <typename T>
cudaError_t launch(const BinsPlan& plan, const Addition& addition);
template <typename T>
cudaError_t launch(const LinesPlan& plan, const Addition& addition);

inline Index make_index(const Problem& problem) {
  Index index;
  index.values = problem.index;
  index.is_long = problem.long_index;
  index.stride = problem.index_stride;
  index.bins = problem.bins;
  return index;
}

inline OuterDims make_outer(const Layout& layout) {
  OuterDims outer;
  outer.count = layout.num_outer;
  for (int d = 0; d < layout.num_outer; ++d) {
    outer.sizes[d] = divide_by(layout.outer[d].size);
    outer.self_strides[d] = layout.outer[d].self_stride;
    outer.source_strides[d] = layout.outer[d].source_stride;
  }
  return outer;
}

// Sets the members that the arguments of all kernels have.
template <typename Args>
void set_operands(Args& args, const Addition& addition) {
  args.self = addition.problem.self;
  args.source = addition.problem.source;
  args.bin_stride = addition.problem.bin_stride;
  args.entry_stride = addition.problem.entry_stride;
  if constexpr (requires { args.self_inner_stride; }) {
    args.self_inner_stride = addition.layout.inner.self_stride;
    args.source_inner_stride = addition.layout.inner.source_stride;
  }
  args.outer = make_outer(addition.layout);
  args.alpha = addition.problem.alpha;
}

// Launches a kernel. It requests shared memory beyond 48 KB, which a kernel has only on request.
template <typename Args>
cudaError_t launch_shared(void (*kernel)(Args), const LaunchShape& shape, cudaStream_t stream,
                          const Args& args) {
  if (shape.shared_bytes > 48 << 10) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return launch_kernel(kernel, shape, stream, args);
}

// Calls f(std::integral_constant<int, values>), for the numbers of values per access that plans
// choose.
template <typename T, typename F>
cudaError_t with_values(int values, F&& f) {
  constexpr int kVec = kVecSize<T>, kWord = 4 / static_cast<int>(sizeof(T));
  if constexpr (kVec <= kMaxValues) {
    if (values == kVec) return f(std::integral_constant<int, kVec>());
  }
  if constexpr (kWord > 1) {
    if (values == kWord) return f(std::integral_constant<int, kWord>());
  }
  return values == 1 ? f(std::integral_constant<int, 1>()) : cudaErrorInvalidValue;
}

}  // namespace gpuopt::index_add
