// Convolutions of many taps along contiguous rows, of any step or any dilation: bound by
// multiply-adds, not by memory. A warp cuts what it reads into phases, in each of which neighbours
// are `phases` places apart, so that taps slide over neighbours whatever the step or the dilation
// (polyphase decomposition: Vaidyanathan, "Multirate Systems and Filter Banks", section 4.3). With
// a step, each phase of the input meets every phases-th tap; with a dilation, outputs have phases
// of their own, and all taps.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/forward/polyphase.h"

namespace gpuopt::conv1d {

// The inputs of a warp in shared memory, in packs of four values of a phase. Those with even
// numbers lie side by side in each phase, and so do those with odd ones behind all of these: lanes,
// whose outputs are two packs apart, read neighbouring packs, from all banks.
struct Phases {
  float* first;
  uint32_t phases, pitch;

  __device__ __forceinline__ float* at(uint32_t phase, uint32_t index) const {
    const uint32_t pack = index / 4;
    return first + ((pack % 2 * phases + phase) * pitch + pack / 2) * 4 + index % 4;
  }
  // From a value to the one that is 32 further on in its phase.
  static constexpr int kFurther = 32 / 8 * 4;
};

// Of `count` values those of a lane, every 32nd, with their phase and their index in it:
// visit(phase, index, number).
template <typename Visit>
__device__ __forceinline__ void visit_phases(int32_t lane, int32_t count, const FastDiv& phases,
                                             const Visit& visit) {
  const uint32_t more = phases.div(32), left = 32 - more * phases.divisor;
  auto index = static_cast<uint32_t>(lane);
  uint32_t phase = phases.divmod(index);
#pragma unroll 4
  for (int32_t number = lane; number < count; number += 32) {
    visit(phase, index, number);
    index += more;
    phase += left;
    if (phase >= phases.divisor) {
      phase -= phases.divisor;
      ++index;
    }
  }
}

// A value in float32 to shared memory, or 0 if not `valid`.
template <typename T>
__device__ __forceinline__ void copy_value(float* to, const T* from, bool valid) {
  if constexpr (sizeof(T) == 4) {
    copy_async_if(to, from, valid);
  } else {
    *to = to_compute(load_if(from, valid));
  }
}

// The inputs under a lane's segments of outputs and a pack of taps: a ring of four packs for each,
// of which three are under these and the last is on its way, so that nothing is moved in registers.
template <int kSegments>
struct PhaseWindows {
  static constexpr int kRing = 16;
  float values[kSegments][kRing];

  // Pack `pack` of each segment, from those of its even and odd packs on.
  __device__ __forceinline__ void read(int pack, const uint4* const (&even)[kSegments],
                                       uint32_t to_odd) {
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      const uint4* const from = even[s] + (pack % 2 == 0 ? 0 : to_odd) + pack / 2;
      const auto own = pack_of<float>(load_shared_whole(from));
#pragma unroll
      for (int i = 0; i < 4; ++i) values[s][(pack * 4 + i) % kRing] = own.values[i];
    }
  }

  // Taps 4 step to 4 step + 3, of which `left` there are.
  template <bool kAll>
  __device__ __forceinline__ void add(float (&sums)[kSegments][kSegmentOutputs], int step,
                                      const float* taps, int32_t left) const {
    const auto own = pack_of<float>(load_shared_whole(reinterpret_cast<const uint4*>(taps) + step));
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      // Never taps of 0 in the place of others, which infinite values would make NaN.
      if (kAll || t == 0 || t < left) {
#pragma unroll
        for (int s = 0; s < kSegments; ++s) {
#pragma unroll
          for (int i = 0; i < kSegmentOutputs; ++i) {
            sums[s][i] =
                multiply_add(own.values[t], values[s][(step * 4 + t + i) % kRing], sums[s][i]);
          }
        }
      }
    }
  }
};

// The products of a lane's segments with `count` taps and the inputs of a phase.
template <int kSegments>
__device__ __forceinline__ void slide_over_phase(float (&sums)[kSegments][kSegmentOutputs],
                                                 const uint4* const (&first)[kSegments],
                                                 uint32_t to_odd, const float* taps,
                                                 int32_t count) {
  PhaseWindows<kSegments> windows;
  const uint4* even[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) even[s] = first[s];
#pragma unroll
  for (int pack = 0; pack < 3; ++pack) windows.read(pack, even, to_odd);
#pragma unroll 1
  for (; count >= 16; count -= 16, taps += 16) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      windows.read(step + 3, even, to_odd);
      windows.template add<true>(sums, step, taps, 4);
    }
#pragma unroll
    for (int s = 0; s < kSegments; ++s) even[s] += 2;
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if (count <= 4 * step) break;
    windows.read(step + 3, even, to_odd);
    windows.template add<false>(sums, step, taps, count - 4 * step);
  }
}

// (As many blocks as registers allow: with 8 of two segments, or 10 of one, they spill.)
template <typename T, int kSegments, Cut kCut>
__global__ void __launch_bounds__(kChunkThreads, kSegments == 2 ? 5 : 8)
    polyphase_kernel(const __grid_constant__ PolyphaseArgs args) {
  static_assert(std::is_same_v<compute_t<T>, float>);
  extern __shared__ uint4 shared[];
  let_next_grid_start();
  const ChunkArgs& signal = args.chunk;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const uint32_t phases = kCut == Cut::kOne ? 1 : args.phases.divisor;
  const uint32_t channel_packs = signal.warp_packs;
  uint4* const packs = shared + threadIdx.x / 32 * args.stages * channel_packs;
  const uint32_t to_odd = phases * args.phase_pitch, to_taps = 2 * to_odd;
  wait_for_grid_before();
  if (warp >= signal.warps) return;

  const Chunk<T, 1> chunk(signal, warp);
  const bool whole =
      chunk.first >= 0 && chunk.first + (args.values - 1) * args.gap < signal.from_size;
  const auto stage_of = [&](uint32_t c) {
    return packs + (args.stages == 2 ? c % 2 : c) * channel_packs;
  };
  const auto copy = [&](uint32_t c) {
    uint4* const stage = stage_of(c);
    const Phases inputs{reinterpret_cast<float*>(stage), phases, args.phase_pitch};
    const T* const row = chunk.from + c * signal.from_channel;
    const auto copy_inputs = [&](auto is_inside) {
      const auto copy_input = [&](float* to, int32_t number) {
        const int32_t place = chunk.first + number * args.gap;
        copy_value(to, row + place, is_inside(place));
      };
      if constexpr (kCut == Cut::kOutputs) {
        visit_phases(lane, args.values, args.phases,
                     [&](uint32_t phase, uint32_t index, int32_t number) {
                       copy_input(inputs.at(phase, index), number);
                     });
      } else {
        // A lane's next value of the same phase is always as far away, so that only the first ones
        // take divisions.
        const int32_t apart = kCut == Cut::kOne ? 32 : static_cast<int32_t>(32 * phases);
#pragma unroll 1
        for (int32_t begin = lane; begin < min(args.values, apart); begin += 32) {
          auto index = static_cast<uint32_t>(begin);
          const uint32_t phase = kCut == Cut::kOne ? 0 : args.phases.divmod(index);
          float* to = inputs.at(phase, index);
          if constexpr (sizeof(T) == 2) {
            // Half types are converted, so that a lane waits for them: for all that it has of a
            // phase, 8 and one for each 32 taps, at once. (3,11,22505) with 53 taps, step 5, took
            // 23.8 us when it was one by one, and takes 10.1 (H100).
            constexpr int kSome = 10;
#pragma unroll 1
            for (int32_t number = begin; number < args.values; number += kSome * apart) {
              T some[kSome];
#pragma unroll
              for (int i = 0; i < kSome; ++i) {
                const int32_t own = number + i * apart, place = chunk.first + own * args.gap;
                some[i] = load_if(row + place, own < args.values && is_inside(place));
              }
#pragma unroll
              for (int i = 0; i < kSome; ++i) {
                if (number + i * apart < args.values) *to = to_compute(some[i]);
                to += Phases::kFurther;
              }
            }
          } else {
#pragma unroll 4
            for (int32_t number = begin; number < args.values; number += apart) {
              copy_input(to, number);
              to += Phases::kFurther;
            }
          }
        }
      }
    };
    if (whole) {
      copy_inputs([](int32_t) { return true; });
    } else {
      copy_inputs([&](int32_t place) {
        return static_cast<uint32_t>(place) < static_cast<uint32_t>(signal.from_size);
      });
    }
    auto* const taps = reinterpret_cast<float*>(stage + to_taps);
    const T* const weight = chunk.weight + c * signal.weight_in;
    if constexpr (kCut == Cut::kInputs) {
      visit_phases(lane, signal.taps, args.phases, [&](uint32_t phase, uint32_t index, int32_t k) {
        copy_value(taps + phase * args.taps_pitch + index, weight + k * signal.weight_tap, true);
      });
    } else {
#pragma unroll 4
      for (int32_t k = lane; k < signal.taps; k += 32) {
        copy_value(taps + k, weight + k * signal.weight_tap, true);
      }
    }
    end_copy_group();
  };

  // The phase and the place in it of each segment; lanes that have none do another's work and leave
  // it.
  uint32_t phase[kSegments], segment[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    segment[s] = s * 32 + lane;
    phase[s] = 0;
    if constexpr (kCut == Cut::kOutputs) {
      phase[s] = args.phases.divmod(segment[s]);
    }
  }
  const float bias = load_bias<T>(signal, chunk.channel);
  float sums[kSegments][kSegmentOutputs] = {};
  uint32_t copied = 0;
#pragma unroll 1
  for (uint32_t c = 0; c < signal.in_channels; ++c) {
#pragma unroll 1
    for (; copied < min(signal.in_channels, c + args.stages); ++copied) copy(copied);
    args.stages == 2 && copied > c + 1 ? wait_for_copy_groups<1>() : wait_for_copy_groups<0>();
    __syncwarp();
    const uint4* const stage = stage_of(c);
    const auto* taps = reinterpret_cast<const float*>(stage + to_taps);
    const uint4* first[kSegments];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      first[s] = stage + phase[s] * args.phase_pitch + min(segment[s], args.phase_segments - 1);
    }
    if constexpr (kCut == Cut::kInputs) {
      const auto all = static_cast<uint32_t>(signal.taps);
#pragma unroll 1
      for (uint32_t p = 0; p < min(phases, all); ++p) {
        slide_over_phase<kSegments>(sums, first, to_odd, taps,
                                    static_cast<int32_t>(args.phases.div(all - p + phases - 1)));
#pragma unroll
        for (int s = 0; s < kSegments; ++s) first[s] += args.phase_pitch;
        taps += args.taps_pitch;
      }
    } else {
      slide_over_phase<kSegments>(sums, first, to_odd, taps, signal.taps);
    }
    __syncwarp();
  }

#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    if (signal.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kSegmentOutputs; ++i) sums[s][i] += bias;
    }
    activate(sums[s], signal.activation);
    if (segment[s] >= args.phase_segments) continue;
    const auto apart = static_cast<int32_t>(kCut == Cut::kOutputs ? phases : 1);
    const int32_t place = chunk.begin + static_cast<int32_t>(segment[s]) * kSegmentOutputs * apart +
                          static_cast<int32_t>(phase[s]);
    if constexpr (kCut == Cut::kOutputs) {
#pragma unroll
      for (int i = 0; i < kSegmentOutputs; ++i) {
        const int32_t at = place + i * apart;
        if (static_cast<uint32_t>(at) < static_cast<uint32_t>(signal.to_size)) {
          chunk.to[at] = from_compute<T>(sums[s][i]);
        }
      }
    } else {
      store_values<T, kSegmentOutputs>(chunk.to, place, signal.to_size, sums[s]);
    }
  }
}

template <typename T>
cudaError_t launch(const PolyphasePlan& plan, void* to, cudaStream_t stream) {
  if constexpr (sizeof(T) == 8) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.chunk.to = to;
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    if (plan.cut == Cut::kInputs) return start(polyphase_kernel<T, 1, Cut::kInputs>);
    if constexpr (sizeof(T) == 4) {  // tensor cores take the others of fp16 and bf16
      if (plan.cut == Cut::kOutputs) {
        return plan.wide ? start(polyphase_kernel<T, 2, Cut::kOutputs>)
                         : start(polyphase_kernel<T, 1, Cut::kOutputs>);
      }
      return plan.wide ? start(polyphase_kernel<T, 2, Cut::kOne>)
                       : start(polyphase_kernel<T, 1, Cut::kOne>);
    }
    return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::conv1d
