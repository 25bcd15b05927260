// Plans for weight gradients.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d {
namespace detail {

// Whether there is shared memory for two tiles of weight_rows_kernel.
inline bool shape_weight_tile(Plan& plan, const Problem& p, const Device& device) {
  const int64_t item = item_of(p), values = kAccessBytes / item, outputs = weight_outputs(item);
  plan.row_lanes = lanes_of_row(p, outputs);
  const int64_t own_taps = std::min<int64_t>(p.taps, plan.taps);
  plan.halo_packs = ceil_div(values - 1 + (own_taps - 1) * p.dilation, values);
  plan.block_rows = most_rows(plan, p.batch);
  const int64_t margin = (8 / values + 4) * kAccessBytes;  // read behind a tile, not used
  const int64_t tile_packs = 2 * kThreads * outputs / values + plan.block_rows * plan.halo_packs;
  const int64_t bytes = 2 * tile_packs * kAccessBytes + margin;
  plan.shared_bytes = static_cast<size_t>(bytes);
  plan.most_shared_bytes = static_cast<size_t>(weight_shared_bytes(device));
  return plan.shared_bytes <= plan.most_shared_bytes && p.batch * plan.row_lanes < kFar;
}

// Matrices of 16 rows hold taps up to 16 * matrices - 15 places apart, see MatrixSums; lanes have
// sums for each tap.
inline Plan plan_weight_chunks(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  const int64_t dilation = p.taps > 1 ? p.dilation : 1;
  const bool half = item == 2;
  if (p.to.size < tuning.chunk_outputs || dilation > (half ? tuning.mma_dilation : 1)) return plan;
  const auto taps_of = [&](int64_t products) {
    return half ? (16 * products - 15) / dilation + 1 : products;
  };
  plan.products = half ? 2 : 4;
  const int most = half ? 8 : item == 8 ? 16 : 32;
  while (plan.products < most && taps_of(plan.products) < p.taps) plan.products *= 2;
  plan.taps = static_cast<int>(std::min(taps_of(plan.products), p.taps));
  plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
  const int64_t outputs = half ? kMmaOutputs : 2 * 32 * values;
  const int64_t tiles = lanes_of_row(p, outputs);
  plan.warp_tiles =
      ceil_div(tiles, ceil_div<int64_t>(tiles, tuning.weight_bytes / (outputs * item)));
  plan.row_lanes = ceil_div(tiles, plan.warp_tiles);
  plan.lanes = p.batch * plan.row_lanes;
  const int64_t grad_packs = plan.warp_tiles * outputs / values;
  plan.warp_packs =
      grad_packs + (half ? 2 * plan.products - 1 : ceil_div<int64_t>(plan.products, values) + 1);
  const int64_t warp_bytes = 2 * (grad_packs + plan.warp_packs) * kAccessBytes +
                             plan.products * (half ? 16 * 8 * 4 : item);
  // Warps of a block so that a block for each pair of channels fills the device; splits are for
  // fewer pairs.
  const int64_t blocks = p.groups * p.to.channels * p.from.channels * plan.tap_parts;
  plan.most_shared_bytes = static_cast<size_t>(weight_shared_bytes(device));
  const int64_t fitting = weight_shared_bytes(device) / warp_bytes;
  if (fitting < 4) return plan;
  const int64_t warps = std::clamp<int64_t>(device.multiprocessors * weight_warps(item) / blocks, 4,
                                            std::min<int64_t>(kWeightWarps, fitting));
  plan.threads = static_cast<int>(32 * warps);
  plan.shared_bytes = static_cast<size_t>(warps * warp_bytes);
  if (plan.lanes < kFar) plan.path = Path::kChunks;
  return plan;
}

// `blocks` into `all`, each of which has one of `most` parts at least.
inline void split(Plan& plan, int64_t all, int64_t blocks, int64_t most) {
  plan.splits = std::clamp<int64_t>(std::min(all / blocks, most), 1, kThreads * 16);
  plan.blocks = blocks * plan.splits;
}

// Tiles are mostly halo where rows are short, and are read again for each pair of channels. (16 and
// more pairs: by value in half the time in the mean of 35 random problems; rows of less than 32:
// 0.64 of it in 28; more halo than row: 0.48 of it in 13.) Of so few places that each thread of a
// block has one, by value as well: depthwise (1,2,158) with 1 tap, bf16, 3.0 us by rows.
inline bool fits_weight_rows(const Problem& p, const Tuning& tuning) {
  return p.to.size >= 32 && (p.batch * p.to.size > tuning.few_weight_places || p.taps > 8) &&
         (p.taps - 1) * p.dilation <= p.to.size && p.from.channels * p.to.channels < 16;
}

}  // namespace detail

inline Plan plan_backward_weight(const Problem& p, const Device& device,
                                 const Tuning& tuning = {}) {
  using namespace detail;
  Plan plan;
  if (p.from.channels > tuning.most_channels) return plan;
  const int64_t out_channels = p.groups * p.to.channels;
  const int64_t all = int64_t{device.multiprocessors} * tuning.weight_blocks;
  if (has_contiguous_rows(p) && places_in_32_bits(p) && has_unit_step(p)) {
    plan = plan_weight_chunks(p, device, tuning);
    if (plan.path == Path::kChunks) {
      const int64_t warps = plan.threads / 32;
      split(plan, device.multiprocessors * weight_warps(item_of(p)) / warps,
            out_channels * p.from.channels * plan.tap_parts, ceil_div(plan.lanes, warps));
      return plan;
    }
    plan = Plan();
    if (fits_weight_rows(p, tuning) && p.batch * p.to.size < kFar) {
      plan.path = Path::kRows;
      plan.dilated = p.dilation > 1 && p.taps > 1;
      if (plan.dilated) {
        plan.taps = kDilatedTaps;
      } else {
        const int most = item_of(p) == 8 ? 16 : 32;
        plan.taps = 4;
        while (plan.taps < p.taps && plan.taps < most) plan.taps *= 2;
      }
      plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
      if (shape_weight_tile(plan, p, device)) {
        const int64_t tiles = ceil_div<int64_t>(p.batch * plan.row_lanes, kThreads);
        split(plan, all, out_channels * p.from.channels * plan.tap_parts,
              tiles / tuning.weight_units);
        return plan;
      }
      plan = Plan();
    }
  }
  if (has_packs_of_channels(p) && has_unit_step(p) && (p.dilation == 1 || p.taps == 1) &&
      p.batch * ceil_div<int64_t>(p.to.size, kPartPlaces) < kFar) {
    plan.path = Path::kColumns;
    plan.packed = true;
    plan.taps = p.taps <= 4 ? 4 : 8;
    plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
    const int64_t packs = p.groups / (kAccessBytes / item_of(p));
    while (plan.row_width < 32 && plan.row_width < packs) plan.row_width *= 2;
    plan.tiles = ceil_div(packs, plan.row_width);
    plan.row_tiles = ceil_div<int64_t>(p.to.size, kPartPlaces);
    plan.threads = kChunkThreads;
    split(plan, device.multiprocessors * int64_t{weight_pack_blocks(item_of(p), plan.taps)},
          plan.tiles * plan.tap_parts,
          ceil_div(p.batch * plan.row_tiles, kChunkThreads / plan.row_width));
    return plan;
  }
  plan.channels_first = p.to.channel_stride == 1 && p.to.stride != 1 && p.to.size > 1 &&
                        p.from.channel_stride == 1 && out_channels >= 8;
  if (plan.channels_first) {
    plan.path = Path::kColumns;
    plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
    plan.tiles = ceil_div<int64_t>(out_channels, 32);
    split(plan, all, plan.tiles * p.from.channels * plan.tap_parts,
          ceil_div<int64_t>(p.batch * p.to.size, kThreads / 32) / tuning.weight_units);
    return plan;
  }
  plan.path = Path::kValues;
  plan.taps = p.taps == 1 ? 1 : p.taps <= 4 ? 4 : 8;
  plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
  plan.channels = p.to.channels >= 4 && item_of(p) < 8 ? 4 : 1;  // f64 has no registers for more
  plan.tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
  split(plan, all, p.groups * plan.tiles * p.from.channels * plan.tap_parts,
        ceil_div<int64_t>(p.batch * p.to.size, kThreads) / tuning.weight_units);
  return plan;
}

}  // namespace gpuopt::conv1d
