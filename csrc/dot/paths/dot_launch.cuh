// Launches the kernels that a Plan names, for each element type.
#pragma once

#include "dot/paths/dot_launch.h"
#include "dot/paths/dot_rows.cuh"
#include "dot/paths/dot_values.cuh"
#include "dot/paths/dot_vectors.cuh"

namespace gpuopt::dot {

template <typename T>
cudaError_t launch_path(const LinePlan& path, const LaunchShape& shape, cudaStream_t stream) {
  return path.unroll == 1 ? launch_kernel(line_kernel<T, 1>, shape, stream, path.args)
                          : launch_kernel(line_kernel<T, kVecUnroll>, shape, stream, path.args);
}
template <typename T>
cudaError_t launch_path(const RowsPlan& path, const LaunchShape& shape, cudaStream_t stream) {
  return path.shifted ? launch_kernel(rows_kernel<T, true>, shape, stream, path.args)
                      : launch_kernel(rows_kernel<T, false>, shape, stream, path.args);
}
template <typename T>
cudaError_t launch_path(const ShortRowsPlan& path, const LaunchShape& shape, cudaStream_t stream) {
  return launch_kernel(short_rows_kernel<T>, shape, stream, path.args);
}
template <typename T>
cudaError_t launch_path(const TilePlan& path, const LaunchShape& shape, cudaStream_t stream) {
  return launch_kernel(tile_kernel<T>, shape, stream, path.args);
}
template <typename T>
cudaError_t launch_path(const ValuesPlan& path, const LaunchShape& shape, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (path.args.rows_per_lane == 2) {
      return launch_kernel(values_kernel<T, 2>, shape, stream, path.args);
    }
  }
  return launch_kernel(values_kernel<T, 1>, shape, stream, path.args);
}

template <typename T>
cudaError_t launch_part(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  static_assert(sizeof(sum_t<T>) == sum_bytes(sizeof(T)));
  Path path = plan.path;
  void* sums = nullptr;
  if (plan.finish) {
    sums = workspace.allocate(plan.finish->sums_bytes);
    std::visit([&](auto& taken) { taken.args.to = sums; }, path);
  }
  if constexpr (kHasAtomics<T>) {
    if (plan.zeroed != nullptr) {
      // The main kernel overlaps this launch. cudaMemsetAsync in its stead costs 2 us more (2^17
      // values, H200).
      LaunchShape shape;
      shape.use_pdl = true;
      const cudaError_t error =
          launch_kernel(zero_kernel<T>, shape, stream, static_cast<T*>(plan.zeroed));
      if (error != cudaSuccess) return error;
    }
  }
  const cudaError_t error = std::visit(
      [&](const auto& taken) { return launch_path<T>(taken, plan.launch, stream); }, path);
  if (error != cudaSuccess || !plan.finish) return error;
  const FinishPlan& finish = *plan.finish;
  return launch_kernel(finish_kernel<T>, finish.launch, stream, static_cast<const sum_t<T>*>(sums),
                       static_cast<T*>(finish.out), finish.splits, finish.conjugate_out);
}

}  // namespace gpuopt::dot
