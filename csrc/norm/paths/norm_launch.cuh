// Launches the kernels of a plan for one type.
#pragma once

#include <type_traits>

#include "norm/paths/norm_backward.cuh"
#include "norm/paths/norm_columns.cuh"
#include "norm/paths/norm_forward.cuh"
#include "norm/paths/norm_long.cuh"
#include "norm/paths/norm_run.cuh"

namespace gpuopt::norm {

// Calls f with the access as a constant. Long rows are not read in pairs.
template <typename T, bool kWithPairs, typename F>
cudaError_t with_access(Access access, F&& f) {
  if constexpr (sizeof(T) < 8) {
    if (access == Access::kVector) return f(std::integral_constant<Access, Access::kVector>{});
  }
  if constexpr (sizeof(T) == 2 && kWithPairs) {
    if (access == Access::kPair) return f(std::integral_constant<Access, Access::kPair>{});
  }
  return f(std::integral_constant<Access, Access::kValue>{});
}

template <typename T>
cudaError_t launch_rows(const ForwardPlan& plan, const RowsPlan<ForwardArgs>& path,
                        cudaStream_t stream) {
  return with_access<T, true>(plan.access, [&](auto access) {
    constexpr int kValues = values_of(access, sizeof(T)), kSlots = forward_slots(access, sizeof(T));
    if constexpr (access == Access::kVector) {
      if (path.slots == 1) {
        return launch_kernel(path.rows == 1 ? normalize_rows<T, kValues, 1, 1>
                                            : normalize_rows<T, kValues, 1, kForwardRows>,
                             path.shape, stream, path.args);
      }
    }
    return launch_kernel(normalize_rows<T, kValues, kSlots, 1>, path.shape, stream, path.args);
  });
}

template <typename T>
cudaError_t launch_rows(const BackwardPlan& plan, const RowsPlan<BackwardArgs>& path,
                        const BackwardArgs& args, cudaStream_t stream) {
  return with_access<T, true>(plan.access, [&](auto access) {
    constexpr int kValues = values_of(access, sizeof(T)),
                  kSlots = backward_slots(access, sizeof(T));
    if constexpr (access == Access::kVector) {
      if (path.slots == 1) {
        return launch_kernel(differentiate_rows<T, kValues, 1>, path.shape, stream, args);
      }
    }
    return launch_kernel(differentiate_rows<T, kValues, kSlots>, path.shape, stream, args);
  });
}

// One launch, or one for each of the two passes.
template <typename Args>
cudaError_t launch_passes(void (*kernel)(Args, Parts), const LongPlan<Args>& path, void* sums,
                          cudaStream_t stream) {
  Parts parts = path.parts;
  if (parts.count.divisor == 1) return launch_kernel(kernel, path.shape, stream, path.args, parts);
  parts.sums = sums;
  parts.pass = Pass::kMeasure;
  const cudaError_t error = launch_kernel(kernel, path.shape, stream, path.args, parts);
  if (error != cudaSuccess) return error;
  parts.pass = Pass::kApply;
  return launch_kernel(kernel, path.shape, stream, path.args, parts);
}

template <typename T>
cudaError_t run(const ForwardPlan& plan, void* sums, cudaStream_t stream) {
  if (const auto* rows = std::get_if<RowsPlan<ForwardArgs>>(&plan.path)) {
    return launch_rows<T>(plan, *rows, stream);
  }
  return with_access<T, false>(plan.access, [&](auto access) {
    constexpr int kValues = values_of(access, sizeof(T)), kSlots = forward_slots(access, sizeof(T));
    return launch_passes(normalize_long_rows<T, kValues, kSlots>,
                         std::get<LongPlan<ForwardArgs>>(plan.path), sums, stream);
  });
}

template <typename T>
cudaError_t run(const BackwardPlan& plan, void* sums, void* partials, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  if (plan.rows) {
    BackwardArgs args = plan.rows->args;
    args.partials = partials;
    error = launch_rows<T>(plan, *plan.rows, args, stream);
    if (error != cudaSuccess) return error;
  }
  if (plan.long_rows) {
    error = with_access<T, false>(plan.access, [&](auto access) {
      constexpr int kValues = values_of(access, sizeof(T)),
                    kSlots = backward_slots(access, sizeof(T));
      return launch_passes(differentiate_long_rows<T, kValues, kSlots>, *plan.long_rows, sums,
                           stream);
    });
    if (error != cudaSuccess) return error;
  }
  if (plan.columns) {
    BackwardArgs args = plan.columns->args;
    args.partials = partials;
    error = with_access<T, false>(plan.access, [&](auto access) {
      return launch_kernel(add_columns<T, values_of(access, sizeof(T))>, plan.columns->shape,
                           stream, args, plan.columns->rows, plan.columns->tiles);
    });
    if (error != cudaSuccess) return error;
  }
  if (!plan.finish) return cudaSuccess;
  FinishArgs args = plan.finish->args;
  args.partials = partials;
  return launch_kernel(finish_columns<compute_t<T>>, plan.finish->shape, stream, args,
                       plan.finish->dtype);
}

}  // namespace gpuopt::norm
