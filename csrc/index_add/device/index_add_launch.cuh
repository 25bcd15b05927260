// Shared by the launchers of all paths. Each launcher is in the file of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "common/launch.cuh"
#include "common/workspace.h"
#include "index_add/device/index_add_values.cuh"
#include "index_add/index_add_plan.h"

namespace gpuopt::index_add {

// T is the storage type of the values.
template <typename T>
cudaError_t launch(const AtomicPlan& plan, Workspace& workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch(const TilesPlan& plan, Workspace& workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch(const HotPlan& plan, Workspace& workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch(const SortedPlan& plan, Workspace& workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch(const BinsPlan& plan, Workspace& workspace, cudaStream_t stream);
template <typename T>
cudaError_t launch(const LinesPlan& plan, Workspace& workspace, cudaStream_t stream);

static_assert(sizeof(Sum<Bool>) == sum_bytes(DType::kBool) &&
              sizeof(Sum<uint8_t>) == sum_bytes(DType::kUInt8) &&
              sizeof(Sum<uint16_t>) == sum_bytes(DType::kInt16) &&
              sizeof(Sum<uint64_t>) == sum_bytes(DType::kInt64) &&
              sizeof(Sum<__half>) == sum_bytes(DType::kFloat16) &&
              sizeof(Sum<double>) == sum_bytes(DType::kFloat64));

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
