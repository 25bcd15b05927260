// Depthwise fp16 and bf16 with short filters on tensor cores; inputs go from memory to registers.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int kDirectQuad = 4;  // values per load
// Most taps. Two mma span 32 positions: the taps, 3 values ahead of them, and 7 for the further
// outputs of a block.
constexpr int kDirectTaps = 22;
// Most taps and values ahead for one mma. It spans 16 positions, 7 of them for the further outputs
// of a block.
constexpr int kDirectNear = 9;
constexpr int kDirectRest = 32;  // outputs behind a row's last tile, at most

// Threads of a block whose warps compute `tiles` tiles each.
constexpr int direct_threads(int tiles) { return tiles == 1 ? 256 : 128; }

// The warps of a row, if a warp has one tile (`tiles`) or two (`pairs`). Two tiles are chosen if
// enough of the outputs that warps could compute in the same time exist (`filled`).
struct DirectRow {
  int64_t tiles, pairs;
  bool far, filled;

  explicit DirectRow(const Problem& p) {
    // If output rows are aligned to quads, the first tap has the same offset in its quad
    // everywhere.
    const int64_t last = kDirectQuad - 1;
    const int64_t ahead = has_aligned_rows(p, p.to, kDirectQuad) ? -p.padding & last : last;
    const int64_t tile = tile_outputs(item_of(p)), size = aligned_size(p, kSectorBytes);
    far = p.taps + ahead > kDirectNear;
    tiles = ceil_div(size, tile);
    pairs = ceil_div(std::max<int64_t>(size - kDirectRest, 1), 2 * tile);
    // With two mma per part, the rest of a row takes as long as a tile.
    const int64_t time = 2 * pairs * tile + (far && size > 2 * pairs * tile ? tile : 0);
    filled = pairs == 1 || p.to.size * 100 >= time * (far ? 84 : 65);
  }
};

struct DirectPlan : PathPlan<ChunkArgs> {
  static constexpr const char* kName = "direct";
  static constexpr const Costs& kCosts = costs::kDirect;
  int tiles;  // per warp: 1 or 2
  bool far;   // taps span 32 positions instead of 16

  static std::optional<DirectPlan> make(const Problem& p, const Device&) {
    const bool whole_quads =
        p.from.size % kDirectQuad == 0 && has_aligned_rows(p, p.from, kDirectQuad);
    if (!is_half(p) || p.from.channels > 1 || has_dilation(p) || p.taps > kDirectTaps ||
        !whole_quads || !has_plain_rows(p) || !has_unit_stride(p)) {
      return {};
    }
    const DirectRow row(p);
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

  Terms terms(const Problem& p, const Device& device) const {
    // Terms: mma per warp, threads.
    return {static_cast<double>(tiles * (p.taps > 6 ? 2 : 1)), fill_of(launch, device)};
  }
};

}  // namespace gpuopt::conv1d
