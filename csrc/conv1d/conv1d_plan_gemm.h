// Plans for products of matrices that gather one of their factors: half types of many products.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d::detail {

inline Plan plan_gemm(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  if (item_of(p) != 2 || !has_contiguous_rows(p) || !places_in_32_bits(p) ||
      p.from.channels > tuning.gemm_channels) {
    return plan;
  }
  constexpr int64_t kValues = kAccessBytes / 2;
  const int64_t tiles = ceil_div<int64_t>(p.to.channels, 16);  // of channels
  const int64_t steps = ceil_div<int64_t>(p.from.channels * p.taps, 16);
  const int64_t span = (p.taps - 1) * p.dilation;
  const int64_t most_shared = std::min<int64_t>(device.shared_bytes, kMostSharedBytes);
  plan.taps_pitch = 16 * steps;
  const auto shape = [&](int64_t warps, int64_t rows) {
    const int64_t places = warps * kGemmPlaces;
    plan.threads = static_cast<int>(32 * warps);
    plan.places = places;
    plan.tiles = ceil_div(tiles, rows);
    plan.products = static_cast<int>(ceil_div(tiles, plan.tiles));
    plan.row_tiles = ceil_div(p.to.size, places);
    plan.warp_packs = ceil_div((places - 1) * p.step + span + kValues, kValues);
    plan.made_packs = places / kValues + 1;
    const int64_t channels = 16 * plan.products;
    const int64_t inputs = p.from.channels * plan.warp_packs * kAccessBytes + 32 * steps;
    const int64_t made = channels * plan.made_packs * kAccessBytes;
    return channels * (2 * plan.taps_pitch + kAccessBytes) + std::max(inputs, made);
  };
  // Fewer channels of a block and smaller ones for short rows, where there would be few, and where
  // they don't fit. On an H100, us, the kernel as it was then, of 8, 4 and 2 warps: (46,126,303) to
  // 5565, 21 groups, 7 taps, step 5 161, 84 and 67; (4,49,2304) to 175, 7 groups, 31 taps, step 3
  // 8.0 and, of 4, 13.4; (4,48,2000) to 96, 4 groups, 7 taps, step 3, of 4 and of 2, 7.8 and 5.4.
  int64_t warps = kThreads / 32, rows = std::min<int64_t>(kGemmRows, tiles);
  while (warps > 2 && 2 * p.to.size <= warps * kGemmPlaces) warps /= 2;
  const auto blocks = [&] {
    return p.batch * p.groups * ceil_div(tiles, rows) * ceil_div(p.to.size, warps * kGemmPlaces);
  };
  while (rows > 1 && blocks() < device.multiprocessors) --rows;
  while (warps > 2 && 2 * blocks() < device.multiprocessors * (warps > 4 ? 2 : 3)) warps /= 2;
  while (warps > 2 && shape(warps, rows) > most_shared) warps /= 2;
  while (rows > 1 && shape(warps, rows) > most_shared) --rows;
  const int64_t bytes = shape(warps, rows);
  if (bytes > most_shared) return plan;
  plan.shared_bytes = static_cast<size_t>(bytes);
  plan.most_shared_bytes = static_cast<size_t>(most_shared);
  // Blocks of a group and some channels of it go through tiles of all images.
  plan.lanes = p.batch * plan.row_tiles;
  if (plan.lanes >= kFar) return plan;
  const int64_t parts = p.groups * plan.tiles;
  const int64_t resident =
      std::min<int64_t>(gemm_blocks(plan.products) * (kThreads / plan.threads),
                        std::max<int64_t>(device.shared_bytes / (bytes + 1024), 1));
  const int64_t turns =
      ceil_div(plan.lanes, std::max<int64_t>(device.multiprocessors * resident / parts, 1));
  plan.rows = ceil_div(plan.lanes, turns);
  plan.blocks = parts * plan.rows;
  // Few blocks have more warps than make outputs, which help to copy: (8,16,66) to 104, 4 groups,
  // 41 taps 11.3 us without and 4.5 with them, (7,160,11) to 950, 10 groups, 49 taps, step 4 29.3
  // and 10.8.
  while (plan.threads < kThreads &&
         plan.blocks * plan.threads < device.multiprocessors * kThreads) {
    plan.threads *= 2;
  }
  plan.path = Path::kGemm;
  return plan;
}

}  // namespace gpuopt::conv1d::detail
