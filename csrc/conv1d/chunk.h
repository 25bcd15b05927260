// Contiguous rows in chunks: a warp computes some tiles of outputs of one row by itself. What it
// costs to find the chunk is paid once for all of these tiles. Plain host C++.
#pragma once

#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int64_t kStaticBytes = 64;  // of shared memory, at most, that kernels of chunks declare
constexpr int64_t kChunkWarps = 16;   // per SM, from which a warp takes several tiles

struct ChunkArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_pack, *last_pack;  // see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t from_size, to_size, step, padding, taps;
  uint32_t in_channels;              // of a group
  uint32_t warps;                    // of the launch
  uint32_t warp_tiles;               // of outputs, of a warp
  uint32_t warp_packs;               // of an input row in a warp's shared memory
  uint32_t taps_pitch;               // values from one input channel's taps to the next's, there
  FastDiv row_warps, dilation;       // warps of a row
  FastDiv channels, group_channels;  // output channels in all and of a group
  Activation activation;
};

struct ChunkShape {
  int64_t warp_tiles = 1;  // of outputs, of a warp
  int64_t warp_packs = 0;  // vectors of an input row in a warp's shared memory
  int64_t row_warps = 1;
  int64_t warps = 1;  // of the launch
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
  args.warp_packs = static_cast<uint32_t>(shape.warp_packs);
  args.taps_pitch = static_cast<uint32_t>(shape.taps_pitch);
  args.row_warps = divide_by(shape.row_warps);
  args.channels = divide_by(p.groups * p.to.channels);
  args.group_channels = divide_by(p.to.channels);
  args.dilation = divide_by(p.taps > 1 ? p.dilation : 1);
  return args;
}

// What the kernels of chunks have in common.
struct ChunkPlan {
  LaunchShape launch;
  ChunkArgs args;
};

// Outputs of a tile of 64 threads' vectors in f32 and f64, and of two matrix products in fp16 and
// bf16.
constexpr int kMmaOutputs = 128;  // of a matrix product
constexpr int kMmaParts = 2;      // products at once
constexpr int64_t tile_outputs(int64_t item) {
  return item == 2 ? kMmaParts * kMmaOutputs : 2 * 32 * (kAccessBytes / item);
}

// Taps that are multiplied at once along contiguous rows.
constexpr int64_t row_taps(int64_t item) { return item == 8 ? 4 : 8; }

inline int64_t whole_taps(const Problem& p) {
  const int64_t step = row_taps(item_of(p));
  return ceil_div(p.taps, step) * step;
}

// Up to `most` of a row's `tiles` for a warp: fewer where there would not be many warps per SM, or
// where they don't fit. packs_of(tiles) is the number of vectors that they need of an input row.
// Outputs that wait in shared memory take made_bytes a tile. Empty if one tile does not fit.
template <typename PacksOf>
std::optional<ChunkPlan> fit_chunks(const Problem& p, const Device& device, int64_t tiles,
                                    int64_t most, int64_t taps_pitch, int64_t tap_bytes,
                                    const PacksOf& packs_of, int64_t made_bytes = 0) {
  ChunkShape shape;
  shape.taps_pitch = taps_pitch;
  const int64_t warps = kChunkThreads / 32, rows = out_rows(p);
  most = std::clamp<int64_t>(rows * tiles / (device.multiprocessors * kChunkWarps), 1, most);
  int64_t bytes = 0;
  for (;; most = ceil_div<int64_t>(most, 2)) {
    shape.warp_tiles = ceil_div(tiles, ceil_div(tiles, most));
    shape.warp_packs = packs_of(shape.warp_tiles);
    bytes = warps * (p.from.channels * (shape.warp_packs * kAccessBytes + tap_bytes) +
                     shape.warp_tiles * made_bytes);
    if (bytes <= (most > 1 ? kSharedBytes / 2 : kSharedBytes - kStaticBytes)) break;
    if (most == 1) return {};
  }
  shape.row_warps = ceil_div(tiles, shape.warp_tiles);
  shape.warps = rows * shape.row_warps;
  const int64_t blocks = ceil_div(shape.warps, warps);
  return ChunkPlan{launch_shape(blocks, kChunkThreads, bytes), chunk_args(p, shape)};
}

// Warps of a launch in units of what all SMs hold.
inline double fill_of(const ChunkArgs& args, const Device& device) {
  return static_cast<double>(args.warps) / device.multiprocessors / 64;
}

}  // namespace gpuopt::conv1d
