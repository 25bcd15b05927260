// Plans for kernels that go through many output channels.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d::detail {

// Blocks of few channels where there would not be two for each multiprocessor.
inline void share_channels(Plan& plan, const Device& device, int64_t others, int64_t in_class,
                           int64_t least) {
  while (plan.block_channels >= 2 * least &&
         others * ceil_div(in_class, plan.block_channels) < 2 * device.multiprocessors) {
    plan.block_channels = ceil_div(plan.block_channels, 2 * least) * least;
  }
  plan.tiles = ceil_div(in_class, plan.block_channels);
  plan.blocks = others * plan.tiles;
}

// How many values of an output row a block's outputs are aligned to: a sector where enough channels
// are aligned alike.
inline int64_t align_fan(Plan& plan, const Problem& p, const Tuning& tuning) {
  int64_t values = kSectorBytes / item_of(p);
  if (ceil_div(p.to.channels, cycle_of(p.to, values)) < tuning.fan_channels) values /= 2;
  plan.cycle = cycle_of(p.to, values);
  plan.aligned = static_cast<int>(values);
  return ceil_div(p.to.channels, plan.cycle);
}

inline Plan plan_fan_mma(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t products = p.from.channels * p.taps, span = (p.taps - 1) * p.dilation;
  const int64_t in_class = align_fan(plan, p, tuning);
  if (products > 32 || in_class < tuning.fan_channels) return plan;
  // Which are faster in chunks: (4,4,20000) to 256 channels, 4 groups, 31 taps 42.4 and 24.6.
  if (p.from.channels == 1 && p.taps > 16 && has_unit_step(p)) return plan;
  plan.products = products <= 16 ? 1 : 2;  // steps of 16
  plan.threads = kChunkThreads;
  const int64_t turn_places = kChunkThreads * kFanMmaParts;
  const int64_t slack = has_aligned_rows(p, p.to, plan.aligned) ? 0 : plan.aligned - 1;
  plan.block_channels = std::min<int64_t>(ceil_div<int64_t>(in_class, 16) * 16, 256);
  const auto shape = [&](int64_t turns) {
    plan.warp_tiles = turns;
    plan.row_tiles = ceil_div(p.to.size + slack, turns * turn_places);
    plan.warp_packs = ceil_div<int64_t>((turns * turn_places - 1) * p.step + span + 8, 8);
    return plan.block_channels * ((16 * plan.products + 8) * 2 + 4) +
           p.from.channels * plan.warp_packs * kAccessBytes;
  };
  const int64_t others = p.batch * p.groups * plan.cycle;
  // As many turns as make up for reading taps, where there are blocks enough.
  int64_t turns = 1;
  while ((turns + 1) * plan.block_channels <= tuning.fan_turn_channels &&
         shape(turns + 1) <= kSharedBytes / 2 &&
         others * plan.row_tiles >= 8 * device.multiprocessors) {
    ++turns;
  }
  const int64_t bytes = shape(turns);
  if (bytes > kSharedBytes) return plan;
  plan.shared_bytes = static_cast<size_t>(bytes);
  share_channels(plan, device, others * plan.row_tiles, in_class, 16);
  plan.path = Path::kFan;
  return plan;
}

inline Plan plan_fan(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  if (item == 2) return plan_fan_mma(p, device, tuning);
  const int64_t products = p.from.channels * p.taps;
  const int64_t in_class = align_fan(plan, p, tuning);
  if (products > 16 || in_class < tuning.fan_channels) return plan;
  const int64_t unit = products > 12 ? 4 : products > 8 ? 2 : 1;
  plan.products = std::max(3, static_cast<int>(ceil_div(products, unit) * unit));
  const int64_t slack = has_aligned_rows(p, p.to, plan.aligned) ? 0 : plan.aligned - 1;
  const int64_t tile_outputs = kChunkThreads * values;
  plan.threads = kChunkThreads;
  plan.row_tiles = ceil_div(p.to.size + slack, tile_outputs);
  plan.block_channels = std::min<int64_t>(in_class, 128);
  plan.warp_packs =
      ceil_div((tile_outputs - 1) * p.step + (p.taps - 1) * p.dilation + values, values);
  plan.shared_bytes =
      static_cast<size_t>(plan.block_channels * fan_pitch(plan.products, item) * item +
                          p.from.channels * plan.warp_packs * kAccessBytes);
  if (plan.shared_bytes > kSharedBytes) return plan;
  const int64_t others = p.batch * p.groups * plan.cycle * plan.row_tiles;
  // Many blocks, so that the last ones don't leave multiprocessors idle for long.
  while (plan.block_channels >= 32 && others * ceil_div(in_class, plan.block_channels) <
                                          int64_t{device.multiprocessors} * tuning.fan_blocks) {
    plan.block_channels = ceil_div<int64_t>(plan.block_channels, 8) * 4;
  }
  share_channels(plan, device, others, in_class, 4);
  plan.path = Path::kFan;
  return plan;
}

}  // namespace gpuopt::conv1d::detail
