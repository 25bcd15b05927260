// Convolutions of step 1 along contiguous rows: a block copies the input under a tile of outputs to
// shared memory, where its lanes slide over it.
#pragma once

#include "conv1d/device/slide.cuh"
#include "conv1d/forward/rows.h"

namespace gpuopt::conv1d {

// Blocks that a multiprocessor holds at least, which sets the number of registers.
template <typename T, int kChannels, int P>
constexpr int kRowBlocks = kChannels > 1 ? 2 : (P > 8 || sizeof(T) == 8 ? 3 : 4);

// Loads of a lane under way.
constexpr int kTapsAtOnce = 4;

// A lane makes `P` neighbouring outputs, from an aligned place on, of kChannels rows that are
// aligned alike.
template <typename T, int kChannels, int P, Taps kTaps>
__global__ void __launch_bounds__(kThreads, kRowBlocks<T, kChannels, P>)
    rows_kernel(const __grid_constant__ RowsArgs args) {
  using C = compute_t<T>;
  constexpr int N = kPackSize<T>;
  extern __shared__ uint4 shared[];
  let_next_grid_start();
  const Segment segment(blockIdx.x, blockDim.x, args.row_lanes);
  uint32_t image = segment.row;
  const uint32_t part = args.parts.divmod(image);
  const uint32_t group = args.groups.divmod(image);
  const uint32_t cycle = 1u << args.cycle_shift;
  const uint32_t channel =
      ((part >> args.cycle_shift) * kChannels << args.cycle_shift) + (part & (cycle - 1));
  const bool works = segment.row < args.rows && channel < args.out_channels;

  T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                (int64_t{group} * args.out_channels + channel) * args.to_channel;
  const auto misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(T) % N);
  const int32_t begin = static_cast<int32_t>(segment.lane) * P - misaligned;
  // The place of the segment's first tap.
  const int32_t first = static_cast<int32_t>(segment.first) * P - misaligned - args.padding;
  const T* const from = static_cast<const T*>(args.from) + image * args.from_batch +
                        int64_t{group} * args.in_channels * args.from_channel;
  const uint32_t row_taps = args.in_channels * args.taps_pitch;  // of a channel
  C* const taps = reinterpret_cast<C*>(shared) + segment.block_row * kChannels * row_taps;
  const uint32_t lane_packs = threadIdx.x * (P / N) + segment.block_row * args.halo_packs;
  uint4* const packs =
      shared + args.block_rows * kChannels * row_taps / (kPackBytes / sizeof(C)) + lane_packs;
  const uint32_t tile_packs = blockDim.x * (P / N) + args.block_rows * args.halo_packs;
  wait_for_grid_before();

  if (works) {
    const Rows<T> rows{args.first_pack, args.last_pack};
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const T* const input = from + c * args.from_channel;
      const auto ahead =
          static_cast<int32_t>(reinterpret_cast<uintptr_t>(input + first) / sizeof(T) % N);
      rows.copy_packs(packs + c * tile_packs - segment.index() * (P / N), input, first - ahead,
                      args.from_size,
                      static_cast<int32_t>(segment.lanes * (P / N) + args.halo_packs),
                      segment.index(), static_cast<int32_t>(segment.lanes));
    }
    // Several at once, as each waits for memory: a lane alone may have all the taps of a short row
    // to fetch.
    const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group;
    const uint32_t count = kChannels * args.in_taps;
#pragma unroll 1
    for (uint32_t i = segment.index(); i < count; i += kTapsAtOnce * segment.lanes) {
      C values[kTapsAtOnce];
      uint32_t places[kTapsAtOnce];
#pragma unroll
      for (int b = 0; b < kTapsAtOnce; ++b) {
        uint32_t c = i + b * segment.lanes;
        if (c >= count) break;
        const uint32_t k = args.taps_div.divmod(c);
        uint32_t m = 0;
        if constexpr (kChannels > 1) {
          m = c;
          c = args.in_div.divmod(m);
        }
        // Channels that there are not do the first one's work and leave it.
        const uint32_t own =
            channel + m * cycle < args.out_channels ? channel + m * cycle : channel;
        values[b] = to_compute(
            weight[own * args.weight_out + c * args.weight_in + int64_t{args.weight_tap} * k]);
        places[b] = m * row_taps + c * args.taps_pitch + k;
      }
#pragma unroll
      for (int b = 0; b < kTapsAtOnce; ++b) {
        if (i + b * segment.lanes < count) taps[places[b]] = values[b];
      }
    }
  }
  wait_for_copies();
  __syncthreads();
  if (!works || begin >= args.to_size) return;

  C sums[kChannels][P] = {};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const auto ahead = static_cast<uint32_t>(
        reinterpret_cast<uintptr_t>(from + c * args.from_channel + first) % kPackBytes);
    const uint4* const own = packs + c * tile_packs;
    if constexpr (kTaps == Taps::kDilated) {
      visit_taps<T>(sums, own, ahead, args.dilation * sizeof(T), taps + c * args.taps_pitch,
                    row_taps, args.taps);
    } else {
      slide<kTaps == Taps::kOneStep, T>(sums, own, ahead, taps + c * args.taps_pitch, row_taps,
                                        args.taps);
    }
  }

#pragma unroll
  for (int m = 0; m < kChannels; ++m) {
    if (channel + m * cycle >= args.out_channels) break;
    if (args.bias != nullptr) {
      const int64_t index = int64_t{group} * args.out_channels + channel + m * cycle;
      const C bias = to_compute(static_cast<const T*>(args.bias)[index * args.bias_stride]);
#pragma unroll
      for (int i = 0; i < P; ++i) sums[m][i] += bias;
    }
    activate(sums[m], args.activation);
    store_values<T, P>(to + int64_t{m} * cycle * args.to_channel, begin, args.to_size, sums[m]);
  }
}

template <typename T>
cudaError_t launch(const RowsPlan& plan, void* to, cudaStream_t stream) {
  auto args = plan.args;
  args.to = to;
  const auto start = [&](auto kernel) { return launch_kernel(kernel, plan.launch, stream, args); };
  constexpr int64_t kItem = sizeof(T);
  const auto start_with = [&](auto channels, auto outputs, auto slid_outputs) {
    constexpr int kChannels = decltype(channels)::value, P = decltype(outputs)::value;
    constexpr int kSlid = decltype(slid_outputs)::value;
    return plan.taps == Taps::kDilated   ? start(rows_kernel<T, kChannels, P, Taps::kDilated>)
           : plan.taps == Taps::kSliding ? start(rows_kernel<T, kChannels, kSlid, Taps::kSliding>)
                                         : start(rows_kernel<T, kChannels, P, Taps::kOneStep>);
  };
  using std::integral_constant;
  if (plan.channels == 4) {
    constexpr integral_constant<int, channel_outputs(kItem)> outputs;
    return start_with(integral_constant<int, 4>(), outputs, outputs);
  }
  constexpr integral_constant<int, 1> one;
  if (plan.wide) {
    return start_with(one, integral_constant<int, row_outputs(kItem, true, false)>(),
                      integral_constant<int, row_outputs(kItem, true, true)>());
  }
  constexpr integral_constant<int, row_outputs(kItem, false, false)> outputs;
  return start_with(one, outputs, outputs);
}

}  // namespace gpuopt::conv1d
