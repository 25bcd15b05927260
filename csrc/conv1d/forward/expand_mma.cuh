// Expand on tensor cores (PTX ISA, "Matrix Fragments for mma.m16n8k16"). A warp keeps B in
// registers and loops over the output channels.
//
//   A: taps of 16 channels     B: inputs of 8 positions     D: outputs
//   w[m][(c, k)]            x  x[(c, k)][position]       =  y[m][position]
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/forward/expand.cuh"

namespace gpuopt::conv1d {

// Loads the taps of 16 channels. `vecs` points to vector lane / 16 of row lane % 16.
template <int kSteps>
__device__ __forceinline__ void read_taps(uint32_t (&a)[kSteps][4], const uint4* vecs) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) load_fragment(a[s], vecs + 2 * s);
}

// An output has up to 16 * kSteps multiply-adds. Missing taps and inputs are 0.
template <typename T, int kSteps, bool kActivates>
__global__ void __launch_bounds__(kChunkThreads, kSteps > 1 || kActivates ? 4 : 6)
    expand_mma_kernel(const __grid_constant__ ExpandArgs args) {
  constexpr int N = kVecSize<T>;
  // A row of taps has an extra vector, so that ldmatrix has no bank conflicts.
  constexpr int kPitch = 16 * kSteps + N, kRowVecs = kPitch / N;
  constexpr int kParts = kExpandMmaParts;
  extern __shared__ uint4 shared[];
  launch_dependents();
  uint32_t image = blockIdx.x;
  const uint32_t channel_class = args.cycle.divmod(image);
  const uint32_t tile = args.tiles.divmod(image);
  const uint32_t part = args.parts.divmod(image);
  const uint32_t group = args.groups.divmod(image);
  const uint32_t cycle = args.cycle.divisor;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first_channel = channel_class + part * args.block_channels * cycle;
  grid_dependency_wait();
  if (first_channel >= args.out_channels) return;

  const uint32_t channels =
      min(args.block_channels, (args.out_channels - first_channel + cycle - 1) / cycle);
  const uint32_t rows = (channels + 15) / 16 * 16;
  T* const taps = reinterpret_cast<T*>(shared);
  float* const biases = reinterpret_cast<float*>(shared + args.block_channels * kRowVecs);
  uint4* const vecs = shared + args.block_channels * kRowVecs + args.block_channels / 4;
  T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                (int64_t{group} * args.out_channels + first_channel) * args.to_channel;
  const auto misaligned =
      static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(T) % args.aligned);
  const int32_t block_positions =
      static_cast<int32_t>(args.iterations) * (kChunkThreads / 32) * 32 * kParts;
  const int32_t block_begin = static_cast<int32_t>(tile) * block_positions - misaligned;
  const int32_t first = block_begin * args.step - static_cast<int32_t>(args.padding);
  const T* const from = static_cast<const T*>(args.from) + image * args.from_batch +
                        int64_t{group} * args.in_channels * args.from_channel;
  const auto ahead_of = [&](uint32_t c) {
    return offset_in_vec(from + c * args.from_channel + first);
  };
  // Load inputs.
  const Rows<T> input_rows{args.first_vec, args.last_vec};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    input_rows.copy_vecs(vecs + c * args.row_vecs, from + c * args.from_channel,
                         first - ahead_of(c), static_cast<int32_t>(args.from_size),
                         static_cast<int32_t>(args.row_vecs), static_cast<int32_t>(threadIdx.x),
                         kChunkThreads);
  }
  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          first_channel * args.weight_out;
  // Load taps and biases.
  for (uint32_t m = threadIdx.x; m < rows; m += kChunkThreads) {
    uint4* const row = shared + m * kRowVecs;
#pragma unroll
    for (int i = 0; i < kRowVecs; ++i) row[i] = uint4{};
    float bias = 0;
    if (m < channels) {
      T* tap = taps + m * kPitch;
      for (uint32_t c = 0; c < args.in_channels; ++c) {
        const T* value = weight + int64_t{m} * cycle * args.weight_out + c * args.weight_in;
#pragma unroll 1
        for (int32_t first = 0; first < args.taps; first += 16) {
          // All 16 loads are in flight at once.
          T some[16];
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            some[i] = load_if(value + (first + i) * args.weight_tap, first + i < args.taps);
          }
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            if (first + i < args.taps) *tap++ = some[i];
          }
        }
      }
      if (args.bias != nullptr) {
        const int64_t channel = int64_t{group} * args.out_channels + first_channel + m * cycle;
        bias = to_compute(static_cast<const T*>(args.bias)[channel * args.bias_stride]);
      }
    }
    biases[m] = bias;
  }
  wait_for_copies();
  __syncthreads();

  const auto products = static_cast<int32_t>(args.in_channels) * args.taps;
  // Offsets of the inputs in the thread's rows of B: rows 2 * (lane % 4) + 0, 1, 8 and 9 of each
  // 16.
  int32_t offsets[kSteps][4];
#pragma unroll
  for (int i = 0; i < 4 * kSteps; ++i) {
    const auto product = static_cast<int32_t>(i / 4 * 16 + i / 2 % 2 * 8 + 2 * (lane % 4) + i % 2);
    const int32_t c = product / args.taps, k = product - c * args.taps;
    offsets[i / 4][i % 4] = product < products ? c * static_cast<int32_t>(args.row_vecs) * N +
                                                     ahead_of(c) + k * args.dilation
                                               : -1;
  }
  const T* const values = reinterpret_cast<const T*>(vecs);

#pragma unroll 1
  for (uint32_t iteration = 0; iteration < args.iterations; ++iteration) {
    const auto warp_begin =
        static_cast<int32_t>((iteration * (kChunkThreads / 32) + warp) * 32 * kParts);
    if (block_begin + warp_begin >= args.to_size) break;
    // Load B. Column n of mma t is position 8 (n / 2) + 2 t + n % 2, so a thread computes 8
    // neighbouring outputs.
    uint32_t b[kParts][4][kSteps][2];
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const auto position = static_cast<int32_t>(lane / 8 * 8 + lane / 4 % 2 + 2 * t + 32 * p);
        const T* const input = values + (warp_begin + position) * args.step;
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Vec<T, 2> pair;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int32_t offset = offsets[s][2 * half + i];
              pair.values[i] = offset >= 0 ? input[offset] : T{};
            }
            memcpy(&b[p][t][s][half], &pair, sizeof(pair));
          }
        }
      }
    }
    const int32_t begin = block_begin + warp_begin + static_cast<int32_t>(lane % 4 * 8);
    const bool whole =
        block_begin + warp_begin >= 0 && block_begin + warp_begin <= args.to_size - 32 * kParts;
    // Multiply and store, 16 channels per iteration.
#pragma unroll 1
    for (uint32_t m = 0; m < channels; m += 16) {
      uint32_t a[kSteps][4];
      read_taps(a, shared + (m + lane % 16) * kRowVecs + lane / 16);
      float sums[kParts][4][4] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
#pragma unroll
          for (int t = 0; t < 4; ++t) multiply_add_matrices<T>(sums[p][t], a[s], b[p][t][s]);
        }
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint32_t channel = m + 8 * row + lane / 4;
        if (channel >= channels) break;
        const float bias = biases[channel];
        T* const out = to + int64_t{channel} * cycle * args.to_channel;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          float outputs[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) outputs[i] = sums[p][i / 2][2 * row + i % 2];
          if (args.bias != nullptr) {
#pragma unroll
            for (int i = 0; i < 8; ++i) outputs[i] += bias;
          }
          if constexpr (kActivates) activate<T>(outputs, args.activation);
          if (whole) {
            store_whole(out + begin + 32 * p, narrow<T, 8>(outputs));
          } else {
            store_values<T, 8>(out, begin + 32 * p, static_cast<int32_t>(args.to_size), outputs);
          }
        }
      }
    }
  }
}

template <Half T>
auto kernel_of(const ExpandPlan& plan) {
  if (plan.args.activation == Activation::kNone) {
    return plan.products == 16 ? expand_mma_kernel<T, 1, false> : expand_mma_kernel<T, 2, false>;
  }
  return plan.products == 16 ? expand_mma_kernel<T, 1, true> : expand_mma_kernel<T, 2, true>;
}

}  // namespace gpuopt::conv1d
