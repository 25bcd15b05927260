// Chunks of contiguous rows: one warp computes several tiles of one output row. The index
// arithmetic that finds the chunk is shared by all its tiles. Plain host C++.
#pragma once

#include "conv1d/cost.h"

namespace gpuopt::conv1d {

// Most static shared memory that a chunk kernel declares.
constexpr int64_t kStaticBytes = 64;
// A warp has several tiles only if the launch still has this many warps per SM.
constexpr int64_t kChunkWarps = 16;

struct ChunkArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_vec, *last_vec;  // bounds of whole vectors, see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t from_size, to_size, step, padding, taps;
  uint32_t in_channels;  // per group
  uint32_t warps;        // in the launch
  uint32_t warp_tiles;   // tiles of outputs per warp
  uint32_t warp_vecs;    // vectors of an input row in a warp's shared memory
  // Distance in values between the taps of two input channels in shared memory.
  uint32_t taps_pitch;
  FastDiv row_warps, dilation;       // row_warps: warps per row
  FastDiv channels, group_channels;  // output channels: all, per group
  Activation activation;
};

struct ChunkShape {
  int64_t warp_tiles = 1;  // tiles of outputs per warp
  int64_t warp_vecs = 0;   // vectors of an input row in a warp's shared memory
  int64_t row_warps = 1;
  int64_t warps = 1;  // in the launch
  int64_t taps_pitch = 0;
};

inline ChunkArgs chunk_args(const Problem& p, const ChunkShape& shape) {
  ChunkArgs args;
  set_operands(args, p);
  set_strides(args, p);
  set_rows(args, p);
  args.step = static_cast<int32_t>(has_unit_stride(p) ? 1 : p.stride);
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.warps = static_cast<uint32_t>(shape.warps);
  args.warp_tiles = static_cast<uint32_t>(shape.warp_tiles);
  args.warp_vecs = static_cast<uint32_t>(shape.warp_vecs);
  args.taps_pitch = static_cast<uint32_t>(shape.taps_pitch);
  args.row_warps = divide_by(shape.row_warps);
  args.channels = divide_by(p.groups * p.to.channels);
  args.group_channels = divide_by(p.to.channels);
  args.dilation = divide_by(p.taps > 1 ? p.dilation : 1);
  return args;
}

// The plan that all chunk kernels share.
using ChunkPlan = PathPlan<ChunkArgs>;

// Outputs of one tile: 64 vectors in f32 and f64, two mma results in fp16 and bf16.
constexpr int kMmaOutputs = 128;  // of one m16n8k16
constexpr int kMmaParts = 2;      // mma results per tile
constexpr int64_t tile_outputs(int64_t item) {
  return item == 2 ? kMmaParts * kMmaOutputs : 2 * 32 * (kAccessBytes / item);
}

// Taps that are multiplied per iteration along contiguous rows.
GPUOPT_HOST_DEVICE constexpr int64_t row_taps(int64_t item) { return item == 8 ? 4 : 8; }

inline int64_t whole_taps(const Problem& p) {
  const int64_t step = row_taps(item_of(p));
  return ceil_div(p.taps, step) * step;
}

// Plans the chunk of a warp: up to `most` of the `tiles` of a row. The chunk is shorter if SMs
// would lack warps, or if shared memory would not suffice. vecs_of(n) is the number of input
// vectors that n tiles need. made_bytes is the shared memory for the outputs of a tile. Returns
// nothing if one tile does not fit.
template <typename VecsOf>
std::optional<ChunkPlan> fit_chunks(const Problem& p, const Device& device, int64_t tiles,
                                    int64_t most, int64_t taps_pitch, int64_t tap_bytes,
                                    const VecsOf& vecs_of, int64_t made_bytes = 0) {
  ChunkShape shape;
  shape.taps_pitch = taps_pitch;
  const int64_t warps = kChunkThreads / 32, rows = out_rows(p);
  most = std::clamp<int64_t>(rows * tiles / (device.sms * kChunkWarps), 1, most);
  int64_t bytes = 0;
  for (;; most = ceil_div<int64_t>(most, 2)) {
    shape.warp_tiles = ceil_div(tiles, ceil_div(tiles, most));
    shape.warp_vecs = vecs_of(shape.warp_tiles);
    bytes = warps * (p.from.channels * (shape.warp_vecs * kAccessBytes + tap_bytes) +
                     shape.warp_tiles * made_bytes);
    if (bytes <= (most > 1 ? kSharedBytes / 2 : kSharedBytes - kStaticBytes)) break;
    if (most == 1) return {};
  }
  shape.row_warps = ceil_div(tiles, shape.warp_tiles);
  shape.warps = rows * shape.row_warps;
  const int64_t blocks = ceil_div(shape.warps, warps);
  return ChunkPlan{launch_shape(blocks, kChunkThreads, bytes), chunk_args(p, shape)};
}

// Warps of the launch, as a multiple of the warps that all SMs hold.
inline double fill_of(const ChunkArgs& args, const Device& device) {
  return static_cast<double>(args.warps) / device.sms / 64;
}

}  // namespace gpuopt::conv1d
