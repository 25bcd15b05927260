// Depthwise fp16 and bf16 with short filters: tensor cores, with inputs that go from memory to
// registers.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int kDirectQuad = 4;   // values of a thread's load
constexpr int kDirectTaps = 22;  // that reach, behind up to 3 values, over 32 positions,
constexpr int kDirectNear = 9;   // and with these over 16
constexpr int kDirectRest = 32;  // outputs behind a row's last tile, at most

// Of a block of direct tiles, so many to a warp.
constexpr int direct_threads(int tiles) { return tiles == 1 ? 256 : 128; }

struct DirectPlan {
  static constexpr const char* kName = "direct";
  static constexpr const Costs& kCosts = costs::kDirect;
  LaunchShape launch;
  ChunkArgs args;
  int tiles;  // of a warp: 1 or 2
  bool far;   // taps reach over 32 positions instead of 16

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<DirectPlan> make(const Problem& p, const Device& device);
};

// How well two tiles a warp fill a row: the outputs that could be computed in the time of a row.
struct DirectRow {
  int64_t tiles, pairs;
  bool far, few, filled;

  DirectRow(const Problem& p, const Device& device) {
    // Where all rows of outputs begin at quads, the first tap has the same offset in one
    // everywhere.
    const int64_t last = kDirectQuad - 1;
    const int64_t ahead = has_aligned_rows(p, p.to, kDirectQuad) ? -p.padding & last : last;
    const int64_t tile = tile_outputs(item_of(p)), size = aligned_size(p, kSectorBytes);
    far = p.taps + ahead > kDirectNear;
    tiles = ceil_div(size, tile);
    pairs = ceil_div(std::max<int64_t>(size - kDirectRest, 1), 2 * tile);
    few = out_rows(p) * tiles <= device.multiprocessors * 40;
    // With many taps, the rest of a row takes the time of a tile.
    const int64_t time = 2 * pairs * tile + (far && size > 2 * pairs * tile ? tile : 0);
    filled = pairs == 1 || p.to.size * 100 >= time * (far ? 84 : 65);
  }
};

inline std::optional<DirectPlan> DirectPlan::make(const Problem& p, const Device& device) {
  const bool whole_quads =
      p.from.size % kDirectQuad == 0 && has_aligned_rows(p, p.from, kDirectQuad);
  if (!is_half(p) || p.from.channels > 1 || has_dilation(p) || p.taps > kDirectTaps ||
      !whole_quads || !has_plain_rows(p) || !has_unit_stride(p)) {
    return {};
  }
  const DirectRow row(p, device);
  DirectPlan plan;
  plan.tiles = row.tiles > 1 && row.filled ? 2 : 1;
  plan.far = row.far;
  ChunkShape shape;
  shape.warp_tiles = plan.tiles;
  shape.row_warps = plan.tiles > 1 ? row.pairs : row.tiles;
  shape.warps = out_rows(p) * shape.row_warps;
  const int threads = direct_threads(plan.tiles);
  plan.launch = launch_shape(ceil_div<int64_t>(shape.warps, threads / 32), threads);
  plan.args = chunk_args(p, shape);
  return plan;
}

inline Terms DirectPlan::terms(const Problem& p, const Device& device) const {
  // Matrix products of a warp, and threads.
  return {static_cast<double>(tiles * (p.taps > 6 ? 2 : 1)), fill_of(launch, device)};
}

}  // namespace gpuopt::conv1d
