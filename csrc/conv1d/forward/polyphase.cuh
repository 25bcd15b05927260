// Polyphase convolutions with many taps, bound by multiply-adds (Vaidyanathan, "Multirate Systems
// and Filter Banks", section 4.3; drawing in README.md). Phase p of a row holds every value whose
// index is p modulo `phases`. Taps slide over the neighbours within a phase, whatever the stride or
// the dilation. With a stride, input phase p meets taps p, p + phases, and so on. With a dilation,
// outputs have phases too, and each meets all taps.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/forward/polyphase.h"

namespace gpuopt::conv1d {

// A warp's inputs in shared memory. A vector holds four values of one phase. Outputs of
// neighbouring threads are two vectors apart. Even and odd vectors lie apart, so threads read
// neighbouring vectors, which use all banks.
//
//   even:  phase 0: v0 v2 v4 ... | phase 1: v0 v2 v4 ...
//   odd:   phase 0: v1 v3 v5 ... | phase 1: v1 v3 v5 ...
struct Phases {
  float* first;
  uint32_t phases, pitch;

  __device__ __forceinline__ float* at(uint32_t phase, uint32_t index) const {
    const uint32_t vec = index / 4;
    return first + ((vec % 2 * phases + phase) * pitch + vec / 2) * 4 + index % 4;
  }
  // Distance in shared memory between values that are 32 apart in one phase.
  static constexpr int kFurther = 32 / 8 * 4;
};

// Calls visit(phase, index in the phase, number) for every 32nd of `count` values from `lane` on.
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

// Copies a value to shared memory as f32, or 0 if not `valid`.
template <typename T>
__device__ __forceinline__ void copy_value(float* to, const T* from, bool valid) {
  if constexpr (sizeof(T) == 4) {
    copy_async_if(to, from, valid);
  } else {
    *to = to_compute(load_if(from, valid));
  }
}

// The inputs under a thread's segments and a vector of taps: a ring of four vectors per segment.
// Three vectors are multiplied while the fourth is loaded, and nothing moves between registers.
template <int kSegments>
struct PhaseWindows {
  static constexpr int kRing = 16;
  float values[kSegments][kRing];

  // Reads vector `vec` of each segment. `even` points to the segments' even vectors.
  __device__ __forceinline__ void read(int vec, const uint4* const (&even)[kSegments],
                                       uint32_t to_odd) {
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      const uint4* const from = even[s] + (vec % 2 == 0 ? 0 : to_odd) + vec / 2;
      const auto vec_values = vec_of<float>(load_shared_whole(from));
#pragma unroll
      for (int i = 0; i < 4; ++i) values[s][(vec * 4 + i) % kRing] = vec_values.values[i];
    }
  }

  // Adds taps `4 * step` to `4 * step + 3`. Only `left` of them exist.
  template <bool kAll>
  __device__ __forceinline__ void add(float (&sums)[kSegments][kSegmentOutputs], int step,
                                      const float* taps, int32_t left) const {
    const auto tap_vec =
        vec_of<float>(load_shared_whole(reinterpret_cast<const uint4*>(taps) + step));
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      // Missing taps are skipped: 0 times an infinite value is NaN.
      if (kAll || t == 0 || t < left) {
#pragma unroll
        for (int s = 0; s < kSegments; ++s) {
#pragma unroll
          for (int i = 0; i < kSegmentOutputs; ++i) {
            sums[s][i] =
                multiply_add(tap_vec.values[t], values[s][(step * 4 + t + i) % kRing], sums[s][i]);
          }
        }
      }
    }
  }
};

// Adds `count` taps and the inputs of one phase to a thread's segments.
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
  for (int vec = 0; vec < 3; ++vec) windows.read(vec, even, to_odd);
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

// Registers limit the blocks per SM: 8 with two segments, or 10 with one, spill.
template <typename T, int kSegments, Cut kCut>
__global__ void __launch_bounds__(kChunkThreads, kSegments == 2 ? 5 : 8)
    polyphase_kernel(const __grid_constant__ PolyphaseArgs args) {
  static_assert(std::is_same_v<compute_t<T>, float>);
  extern __shared__ uint4 shared[];
  launch_dependents();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const uint32_t phases = kCut == Cut::kOne ? 1 : args.phases.divisor;
  const uint32_t channel_vecs = args.warp_vecs;
  uint4* const vecs = shared + threadIdx.x / 32 * args.stages * channel_vecs;
  const uint32_t to_odd = phases * args.phase_pitch, to_taps = 2 * to_odd;
  grid_dependency_wait();
  if (warp >= args.warps) return;

  const Chunk<T, 1> chunk(args, warp);
  const bool whole =
      chunk.first >= 0 && chunk.first + (args.values - 1) * args.gap < args.from_size;
  const auto stage_of = [&](uint32_t c) {
    return vecs + (args.stages == 2 ? c % 2 : c) * channel_vecs;
  };
  // Load the inputs and taps of one channel.
  const auto copy = [&](uint32_t c) {
    uint4* const stage = stage_of(c);
    const Phases inputs{reinterpret_cast<float*>(stage), phases, args.phase_pitch};
    const T* const row = chunk.from + c * args.from_channel;
    const auto copy_inputs = [&](auto is_inside) {
      const auto copy_input = [&](float* to, int32_t number) {
        const int32_t position = chunk.first + number * args.gap;
        copy_value(to, row + position, is_inside(position));
      };
      if constexpr (kCut == Cut::kOutputs) {
        visit_phases(lane, args.values, args.phases,
                     [&](uint32_t phase, uint32_t index, int32_t number) {
                       copy_input(inputs.at(phase, index), number);
                     });
      } else {
        // A thread's values of one phase are equally far apart, so only the first needs a division.
        const int32_t apart = kCut == Cut::kOne ? 32 : static_cast<int32_t>(32 * phases);
#pragma unroll 1
        for (int32_t begin = lane; begin < min(args.values, apart); begin += 32) {
          auto index = static_cast<uint32_t>(begin);
          const uint32_t phase = kCut == Cut::kOne ? 0 : args.phases.divmod(index);
          float* to = inputs.at(phase, index);
          if constexpr (sizeof(T) == 2) {
            // fp16 and bf16 values are converted in registers, so a thread waits for its loads. Ten
            // are in flight at once ((3,11,22505), 53 taps, stride 5: 23.8 us one by one, 10.1 us
            // by ten).
            constexpr int kSome = 10;
#pragma unroll 1
            for (int32_t number = begin; number < args.values; number += kSome * apart) {
              T some[kSome];
#pragma unroll
              for (int i = 0; i < kSome; ++i) {
                const int32_t value = number + i * apart, position = chunk.first + value * args.gap;
                some[i] = load_if(row + position, value < args.values && is_inside(position));
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
      copy_inputs([&](int32_t position) {
        return static_cast<uint32_t>(position) < static_cast<uint32_t>(args.from_size);
      });
    }
    auto* const taps = reinterpret_cast<float*>(stage + to_taps);
    const T* const weight = chunk.weight + c * args.weight_in;
    if constexpr (kCut == Cut::kInputs) {
      visit_phases(lane, args.taps, args.phases, [&](uint32_t phase, uint32_t index, int32_t k) {
        copy_value(taps + phase * args.phase_taps_pitch + index, weight + k * args.weight_tap,
                   true);
      });
    } else {
#pragma unroll 4
      for (int32_t k = lane; k < args.taps; k += 32) {
        copy_value(taps + k, weight + k * args.weight_tap, true);
      }
    }
    end_copy_group();
  };

  // The phase of each segment, and its index within the phase. A thread without a segment repeats
  // another thread's.
  uint32_t phase[kSegments], segment[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    segment[s] = s * 32 + lane;
    phase[s] = 0;
    if constexpr (kCut == Cut::kOutputs) {
      phase[s] = args.phases.divmod(segment[s]);
    }
  }
  const float bias = load_bias<T>(args, chunk.channel);
  float sums[kSegments][kSegmentOutputs] = {};
  uint32_t copied = 0;
#pragma unroll 1
  for (uint32_t c = 0; c < args.in_channels; ++c) {
#pragma unroll 1
    for (; copied < min(args.in_channels, c + args.stages); ++copied) copy(copied);
    args.stages == 2 && copied > c + 1 ? wait_for_copy_groups<1>() : wait_for_copy_groups<0>();
    __syncwarp();
    const uint4* const stage = stage_of(c);
    // Multiply.
    const auto* taps = reinterpret_cast<const float*>(stage + to_taps);
    const uint4* first[kSegments];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      first[s] = stage + phase[s] * args.phase_pitch + min(segment[s], args.phase_segments - 1);
    }
    if constexpr (kCut == Cut::kInputs) {
      const auto all = static_cast<uint32_t>(args.taps);
#pragma unroll 1
      for (uint32_t p = 0; p < min(phases, all); ++p) {
        slide_over_phase<kSegments>(sums, first, to_odd, taps,
                                    static_cast<int32_t>(args.phases.div(all - p + phases - 1)));
#pragma unroll
        for (int s = 0; s < kSegments; ++s) first[s] += args.phase_pitch;
        taps += args.phase_taps_pitch;
      }
    } else {
      slide_over_phase<kSegments>(sums, first, to_odd, taps, args.taps);
    }
    __syncwarp();
  }

#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    // Store.
    finish<T>(sums[s], args, bias);
    if (segment[s] >= args.phase_segments) continue;
    const auto apart = static_cast<int32_t>(kCut == Cut::kOutputs ? phases : 1);
    const int32_t position = chunk.begin +
                             static_cast<int32_t>(segment[s]) * kSegmentOutputs * apart +
                             static_cast<int32_t>(phase[s]);
    if constexpr (kCut == Cut::kOutputs) {
#pragma unroll
      for (int i = 0; i < kSegmentOutputs; ++i) {
        const int32_t at = position + i * apart;
        if (static_cast<uint32_t>(at) < static_cast<uint32_t>(args.to_size)) {
          chunk.to[at] = from_compute<T>(sums[s][i]);
        }
      }
    } else {
      store_values<T, kSegmentOutputs>(chunk.to, position, args.to_size, sums[s]);
    }
  }
}

template <Half T>
auto kernel_of(const PolyphasePlan&) {
  return polyphase_kernel<T, 1, Cut::kInputs>;
}
template <Single T>
auto kernel_of(const PolyphasePlan& plan) {
  if (plan.cut == Cut::kInputs) return polyphase_kernel<T, 1, Cut::kInputs>;
  if (plan.cut == Cut::kOutputs) {
    return plan.wide ? polyphase_kernel<T, 2, Cut::kOutputs>
                     : polyphase_kernel<T, 1, Cut::kOutputs>;
  }
  return plan.wide ? polyphase_kernel<T, 2, Cut::kOne> : polyphase_kernel<T, 1, Cut::kOne>;
}

}  // namespace gpuopt::conv1d
