// The launches of group and batch norm for one type.
#pragma once

#include "norm/paths/norm_channels_run.cuh"
#include "norm/paths/norm_columns.cuh"
#include "norm/paths/norm_staged.cuh"

namespace gpuopt::norm {

// Calls f with the values of a word, the walking, and whether there is an activation, as constants.
// Float64 is read by value. A kernel without an activation has fewer registers.
template <typename T, typename Plan, typename F>
cudaError_t with_walking(const Plan& plan, F&& f) {
  const auto with_activation = [&](auto values, auto walking) {
    if (plan.is_activated) return f(values, walking, std::true_type{});
    return f(values, walking, std::false_type{});
  };
  const auto with_values = [&](auto values) {
    if (plan.walking == Walking::kColumns) {
      return with_activation(values, std::integral_constant<Walking, Walking::kColumns>{});
    }
    if constexpr (decltype(values)::value > 1) {
      if (plan.walking == Walking::kMaskedPlanes) {
        return with_activation(values, std::integral_constant<Walking, Walking::kMaskedPlanes>{});
      }
    }
    return with_activation(values, std::integral_constant<Walking, Walking::kPlanes>{});
  };
  if constexpr (sizeof(T) < 8) {
    if (plan.is_wide_access) return with_values(std::integral_constant<int, kVecSize<T>>{});
  }
  return with_values(std::integral_constant<int, 1>{});
}

template <typename T>
cudaError_t run(const ChannelForwardPlan& plan, void* moments, cudaStream_t stream) {
  return with_walking<T>(plan, [&](auto values, auto walking, auto activated) {
    constexpr int kValues = values;
    constexpr Walking kWalking = walking;
    constexpr bool kIsActivated = activated;
    if constexpr (kWalking != Walking::kColumns) {
      if (plan.staged) {
        constexpr bool kMasked = kWalking == Walking::kMaskedPlanes;
        return launch_kernel(normalize_staged<T, kValues, kMasked, kIsActivated>,
                             plan.staged->shape, stream, plan.staged->args);
      }
    }
    if (plan.measure) {
      MeasureArgs args = plan.measure->args;
      args.moments = moments;
      cudaError_t error =
          launch_kernel(measure_channels<T, kValues, kWalking>, plan.measure->shape, stream, args);
      if (error != cudaSuccess) return error;
      MergeArgs merge = plan.merge->args;
      merge.parts = moments;
      error = launch_kernel(merge_moments<T>, plan.merge->shape, stream, merge);
      if (error != cudaSuccess) return error;
    }
    return launch_kernel(normalize_channels<T, kValues, kWalking, kIsActivated>, plan.apply->shape,
                         stream, plan.apply->args);
  });
}

template <typename T>
cudaError_t run(const ChannelBackwardPlan& plan, void* sums, void* means, cudaStream_t stream) {
  const cudaError_t found = with_walking<T>(plan, [&](auto values, auto walking, auto activated) {
    constexpr int kValues = values;
    constexpr Walking kWalking = walking;
    constexpr bool kIsActivated = activated;
    if constexpr (kWalking != Walking::kColumns) {
      if (plan.staged) {
        StagedBackwardArgs args = plan.staged->args;
        args.args.sums = sums;
        constexpr bool kMasked = kWalking == Walking::kMaskedPlanes;
        return launch_kernel(differentiate_staged<T, kValues, kMasked, kIsActivated>,
                             plan.staged->shape, stream, args);
      }
    }
    cudaError_t error = cudaSuccess;
    if (plan.sums) {
      ChannelGradArgs args = plan.sums->args;
      args.sums = sums;
      error = launch_kernel(add_channels<T, kValues, kWalking, kIsActivated>, plan.sums->shape,
                            stream, args);
      if (error != cudaSuccess) return error;
    }
    if (plan.merge) {
      MergeArgs args = plan.merge->args;
      args.parts = sums;
      args.means = means;
      error = launch_kernel(merge_sums<T>, plan.merge->shape, stream, args);
      if (error != cudaSuccess) return error;
    }
    if (!plan.apply) return cudaSuccess;
    ChannelGradArgs args = plan.apply->args;
    args.means = means;
    return launch_kernel(differentiate_channels<T, kValues, kWalking, kIsActivated>,
                         plan.apply->shape, stream, args);
  });
  if (found != cudaSuccess || !plan.finish) return found;
  FinishArgs args = plan.finish->args;
  args.partials = sums;
  return launch_kernel(finish_columns<compute_t<T>>, plan.finish->shape, stream, args,
                       plan.finish->dtype);
}

}  // namespace gpuopt::norm
