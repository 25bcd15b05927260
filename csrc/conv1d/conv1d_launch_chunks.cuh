// Plan -> kernel instantiation -> launch of rows in chunks, for one dtype.
#pragma once

#include "conv1d/conv1d_direct.cuh"
#include "conv1d/conv1d_few_taps.cuh"
#include "conv1d/conv1d_launch_args.cuh"
#include "conv1d/conv1d_mma.cuh"
#include "conv1d/conv1d_polyphase.cuh"
#include "conv1d/conv1d_strided.cuh"
#include "conv1d/conv1d_tiles.cuh"

namespace gpuopt::conv1d {

template <typename T>
cudaError_t launch_polyphase(const Problem& p, const Plan& plan, cudaStream_t stream) {
  PolyphaseArgs args;
  args.chunk = chunk_args(p, plan);
  args.chunk.step = static_cast<int32_t>(p.step);
  const detail::Cuts cuts(p);
  args.gap = static_cast<int32_t>(cuts.gap);
  args.phases = div_by(plan.phases);
  args.phase_pitch = static_cast<uint32_t>(plan.phase_pitch);
  args.stages = static_cast<uint32_t>(plan.stages);
  args.phase_segments = static_cast<uint32_t>(plan.phase_segments);
  args.values =
      static_cast<int32_t>((plan.warp_tiles - 1) * cuts.step + (p.taps - 1) * cuts.dilation + 1);
  args.taps_pitch = static_cast<uint32_t>(plan.taps_pitch);
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if (cuts.step > 1) return start(polyphase_kernel<T, 1, Cut::kInputs>);
  if constexpr (sizeof(T) == 4) {  // half types have tensor cores for the others
    const bool wide = plan.products > 1;
    if (cuts.dilation > 1) {
      return wide ? start(polyphase_kernel<T, 2, Cut::kOutputs>)
                  : start(polyphase_kernel<T, 1, Cut::kOutputs>);
    }
    return wide ? start(polyphase_kernel<T, 2, Cut::kOne>)
                : start(polyphase_kernel<T, 1, Cut::kOne>);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_chunks(const Problem& p, const Plan& plan, cudaStream_t stream) {
  if constexpr (sizeof(T) < 8) {
    if (plan.polyphase) return launch_polyphase<T>(p, plan, stream);
  }
  const ChunkArgs args = chunk_args(p, plan);
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if (plan.strided) return start(strided_kernel<T>);
  if constexpr (sizeof(T) == 2) {
    if (plan.direct) {
      const bool far = plan.products > 1;
      if (plan.warp_tiles == 1) {
        return far ? start(direct_kernel<T, 1, true>) : start(direct_kernel<T, 1, false>);
      }
      return far ? start(direct_kernel<T, 2, true>) : start(direct_kernel<T, 2, false>);
    }
    return plan.few_taps ? start(few_taps_kernel<T>) : start(mma_kernel<T>);
  } else {
    if (p.from.channels > 1) {
      return plan.dilated ? start(tiles_kernel<T, true, false>)
                          : start(tiles_kernel<T, false, false>);
    }
    return plan.dilated ? start(tiles_kernel<T, true, true>) : start(tiles_kernel<T, false, true>);
  }
}

}  // namespace gpuopt::conv1d
