// Plans for gradients of groups of few input and many output channels.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d::detail {

// The channels of a class are aligned alike, to what a lane loads.
inline int64_t gradient_cycle(const Problem& p) {
  return item_of(p) == 2 ? cycle_of(p.to, kDirectQuad) : 1;
}

// How many products kernels are compiled for that have `products`, or 0.
inline int fan_products(const int* sizes, int count, int64_t products) {
  for (int i = 0; i < count; ++i) {
    if (products <= sizes[i]) return sizes[i];
  }
  return 0;
}

inline Plan plan_fan_input(const Problem& p, const Device& device, const Tuning& tuning) {
  constexpr int kMatrices[] = {16, 32, 64}, kLanes[] = {4, 8, 12, 16, 32};
  Plan plan;
  const int64_t item = item_of(p);
  if (item == 8 || p.from.channels > tuning.most_channels || !has_contiguous_rows(p) ||
      !steps_in_32_bits(p) || p.step > kFanMostStep ||
      p.to.channels < tuning.fan_gradient_channels) {
    return plan;
  }
  // A product of matrices has 16 channels, which are to be aligned alike.
  const int64_t cycle = gradient_cycle(p);
  plan.matrices = item == 2 && p.to.channels >= cycle * tuning.fan_matrix_channels;
  const int64_t most = plan.matrices ? 64 : 32;
  if (p.taps > most) return plan;
  plan.tap_parts = ceil_div(p.from.channels, most / p.taps);
  plan.channels = static_cast<int>(ceil_div(p.from.channels, plan.tap_parts));
  plan.tap_parts = ceil_div<int64_t>(p.from.channels, plan.channels);
  plan.products = plan.matrices ? fan_products(kMatrices, 3, plan.channels * p.taps)
                                : fan_products(kLanes, 5, plan.channels * p.taps);
  const int64_t places =
      plan.matrices ? fan_matrix_places(plan.products / 16) : int64_t{kFanLanePlaces};
  const int64_t span = (p.taps - 1) * p.dilation, slack = plan.matrices ? kDirectQuad - 1 : 0;
  const auto row_of = [&](int64_t splits) { return kFanWarps / splits * places; };
  // Places of the input whose taps all lie on a block's places of the gradient.
  const auto tile_of = [&](int64_t splits) {
    return (row_of(splits) - slack - 1) * p.step - span + 1;
  };
  const int64_t unit = plan.matrices ? 16 : 1;  // of channels
  const auto channels_of = [&](int64_t splits) {
    return ceil_div(ceil_div(p.to.channels, splits), unit) * unit;
  };
  const auto tap_bytes_of = [&](int64_t splits) {
    return splits * plan.products * (plan.matrices ? 2 : 4);
  };
  // As many warps share places as have channels enough, while little is made twice and all taps
  // fit.
  plan.splits = plan.matrices ? cycle : 1;
  while (plan.splits < kFanWarps) {
    const int64_t more = 2 * plan.splits;
    if (p.to.channels < more * tuning.fan_split_channels ||
        2 * tile_of(more) < row_of(more) * p.step ||
        channels_of(more) * tap_bytes_of(more) > kFanTapBytes) {
      break;
    }
    plan.splits = more;
  }
  plan.warp_tiles = tile_of(plan.splits);
  if (2 * plan.warp_tiles < row_of(plan.splits) * p.step) return plan;
  const int64_t sector = kSectorBytes / item;
  if (plan.warp_tiles > 4 * sector) plan.warp_tiles = plan.warp_tiles / sector * sector;
  plan.row_tiles = ceil_div(p.from.size, plan.warp_tiles);
  plan.threads = 32 * kFanWarps;
  const int64_t made = plan.splits * plan.products * (row_of(plan.splits) + 4) * 4;
  const int64_t tap_bytes = tap_bytes_of(plan.splits);
  plan.block_channels = std::min(channels_of(plan.splits),
                                 std::max<int64_t>(kFanTapBytes / tap_bytes / unit, 1) * unit);
  // Taps that don't fit are read again for each tile, which is to be long: (1,7,30416) to 336
  // channels, 6 taps, dilation 3, bf16, where four warps share 64 places: 161 us with the weight's,
  // ATen 135.
  const bool fits = plan.block_channels >= channels_of(plan.splits);
  if (!fits && row_of(plan.splits) < 4 * plan.products) return plan;
  plan.shared_bytes = static_cast<size_t>(made + plan.block_channels * tap_bytes);
  const int64_t most_shared = std::min<int64_t>(device.shared_bytes, kFanSharedBytes) - kFanStatic;
  if (plan.shared_bytes > static_cast<size_t>(most_shared)) return plan;
  plan.most_shared_bytes = static_cast<size_t>(most_shared);
  // Blocks of a group and its part go through tiles of all images.
  plan.lanes = p.batch * plan.row_tiles;
  if (plan.lanes >= kFar) return plan;
  const int64_t parts = p.groups * plan.tap_parts;
  const int64_t resident = int64_t{device.multiprocessors} * fan_input_blocks(plan.products);
  plan.rows = std::min(plan.lanes, std::max<int64_t>(resident / parts, 1));
  plan.blocks = parts * plan.rows;
  plan.path = Path::kFanGradients;
  return plan;
}

inline Plan plan_fan_weight(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p);
  const int64_t products = p.from.channels * p.taps;
  if (item == 8 || p.from.channels > tuning.most_channels || !has_contiguous_rows(p) ||
      !steps_in_32_bits(p) || p.to.channels < tuning.fan_gradient_channels ||
      p.to.size * p.step >= kFanReach || p.step >= kFanReach / 4 ||
      p.from.channels * std::abs(p.from.channel_stride) >= kFanReach) {
    return plan;
  }
  plan.matrices = item == 2;
  int64_t warps = kChunkThreads / 32, warp_units = 32;
  plan.row_lanes = p.to.size;  // units of a row
  if (plan.matrices) {
    plan.cycle = gradient_cycle(p);
    plan.aligned = kDirectQuad;
    // Of few channels that are aligned alike all are taken together, and shifted.
    if (plan.cycle > 1 && p.to.channels < 16 * plan.cycle) plan.aligned = plan.cycle = 1;
    const bool whole = plan.aligned == 1 || has_aligned_rows(p, p.to, kDirectQuad);
    plan.row_lanes = ceil_div<int64_t>(p.to.size + (whole ? 0 : kDirectQuad - 1), kDirectQuad);
    plan.products = products <= 8 ? 8 : products <= 16 ? 16 : 32;
    plan.channels = ceil_div(p.to.channels, plan.cycle) <= 16 ? 16 : 64;
    plan.threads = kThreads;
    warps = kThreads / 32;
    warp_units = 4 * fan_weight_steps(plan.channels / 16);
  } else {
    plan.products = products <= 4 ? 4 : products <= 8 ? 8 : 12;
    plan.channels = products <= 4 ? 16 : 8;
    plan.threads = kChunkThreads;
  }
  plan.lanes = p.batch * plan.row_lanes;
  if (plan.lanes >= kFanReach) return plan;
  plan.tap_parts = ceil_div<int64_t>(products, plan.products);
  plan.tiles = ceil_div<int64_t>(ceil_div(p.to.channels, plan.cycle), plan.channels);
  const int64_t blocks = p.groups * plan.cycle * plan.tiles * plan.tap_parts;
  const int64_t resident = int64_t{device.multiprocessors} * fan_weight_blocks(plan.matrices);
  plan.splits = std::clamp<int64_t>(std::min(resident / blocks, plan.lanes / (warps * warp_units)),
                                    1, kThreads * 16);
  plan.blocks = blocks * plan.splits;
  plan.path = Path::kFanGradients;
  return plan;
}

}  // namespace gpuopt::conv1d::detail
