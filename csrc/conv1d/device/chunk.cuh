// Chunks on the device: a warp copies the input and the taps of its tiles to shared memory.
#pragma once

#include "common/async.cuh"
#include "conv1d/chunk.h"
#include "conv1d/device/launch.cuh"
#include "conv1d/device/rows.cuh"

namespace gpuopt::conv1d {

// The chunk of a warp. A tile has kTile outputs.
template <typename T, int kTile>
struct Chunk {
  uint32_t channel;  // among all output channels
  T* to;
  const T *from, *weight;  // from the group's first input channel on
  int32_t begin;           // first output, aligned to a sector
  bool is_last;            // last chunk of its row
  int32_t first;           // input position of the first tap
  // Address of input position `first` in values, modulo 2^32.
  uint32_t origin;

  __device__ __forceinline__ Chunk(const ChunkArgs& args, uint32_t warp)
      : Chunk(args, warp, [&](int32_t position) { return position * args.step - args.padding; }) {}

  // first_of(begin) returns the first input position that the chunk reads.
  template <typename FirstOf>
  __device__ __forceinline__ Chunk(const ChunkArgs& args, uint32_t warp, const FirstOf& first_of) {
    uint32_t image = warp;
    const uint32_t chunk = args.row_warps.divmod(image);
    is_last = chunk + 1 == args.row_warps.divisor;
    channel = args.channels.divmod(image);
    uint32_t group = channel;
    const uint32_t out_channel = args.group_channels.divmod(group);
    to = static_cast<T*>(args.to) + image * args.to_batch + channel * args.to_channel;
    const auto misaligned =
        static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) % kSectorBytes / sizeof(T));
    begin = static_cast<int32_t>(chunk * args.warp_tiles * kTile) - misaligned;
    first = first_of(begin);
    from = static_cast<const T*>(args.from) + image * args.from_batch +
           int64_t{group} * args.in_channels * args.from_channel;
    origin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from + first) / sizeof(T));
    weight = static_cast<const T*>(args.weight) + group * args.weight_group +
             out_channel * args.weight_out;
  }

  // Distance in values from the aligned vector below input position `first` to `first`.
  __device__ __forceinline__ int32_t ahead(const ChunkArgs& args, uint32_t in_channel) const {
    return static_cast<int32_t>((origin + in_channel * static_cast<uint32_t>(args.from_channel)) %
                                kVecSize<T>);
  }

  // Starts copying the first `count` vectors of an input row. Values outside the row become 0.
  __device__ __forceinline__ void copy(const ChunkArgs& args, WarpCopies<1>& copies, uint4* vecs,
                                       uint32_t in_channel, int32_t count) const {
    const T* const row = from + in_channel * args.from_channel;
    const Rows<T> rows{args.first_vec, args.last_vec};
    const int32_t position = first - ahead(args, in_channel);
    const auto whole = rows.whole_vecs(position, args.from_size, count);
    copies.copy(vecs + whole.low, reinterpret_cast<const uint4*>(row + position) + whole.low,
                whole.high - whole.low);
    rows.fill_edges(whole, row, position, args.from_size, count,
                    static_cast<int32_t>(threadIdx.x % 32), 32,
                    [&](int32_t q, const uint4& vec) { vecs[q] = vec; });
  }
};

}  // namespace gpuopt::conv1d
