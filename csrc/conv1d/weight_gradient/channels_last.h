// Depthwise weight gradients, channels last, of stride 1: a thread has a vector of channels.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kPartPositions = 128;  // positions per part of a row

// Blocks per SM, limited by registers.
constexpr int weight_vec_blocks(int64_t item, int taps) { return item == 2 && taps == 8 ? 3 : 4; }

struct WeightChannelsLastArgs {
  WeightArgs base;
  uint32_t vecs;  // of all channels
  // 2^width_shift threads with vectors side by side form a row of threads. A block has several
  // rows.
  uint32_t width_shift;
  uint32_t parts;     // parts of all rows, over which a row of threads loops
  FastDiv row_parts;  // parts per row
};

struct WeightChannelsLastPlan {
  static constexpr const char* kName = "weight_channels_last";
  static constexpr const Costs& kCosts = costs::kWeightChannelsLast;
  LaunchShape launch;
  WeightChannelsLastArgs args;
  int taps;  // per block

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<WeightChannelsLastPlan> make(const Problem& p, const Device& device) {
    const int64_t row_parts = ceil_div<int64_t>(p.to.size, kPartPositions);
    if (item_of(p) == 8 || !has_vectors_of_channels(p) || !has_unit_stride(p) || has_dilation(p) ||
        p.batch * row_parts >= kFar) {
      return {};
    }
    WeightChannelsLastPlan plan;
    plan.taps = p.taps <= 4 ? 4 : 8;
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
    const int64_t vecs = p.groups / (kAccessBytes / item_of(p));
    int64_t width = 1;
    while (width < 32 && width < vecs) width *= 2;
    const int64_t tiles = ceil_div(vecs, width), parts = p.batch * row_parts;
    const int64_t all = device.sms * weight_vec_blocks(item_of(p), plan.taps);
    const int64_t splits =
        splits_of(all, tiles * tap_parts, ceil_div(parts, kChunkThreads / width));
    if (!fits_grid(tiles * tap_parts * splits)) return {};
    plan.launch = launch_shape(tiles * tap_parts * splits, kChunkThreads);
    plan.args.base = weight_args(p, splits, tap_parts, tiles);
    plan.args.vecs = static_cast<uint32_t>(vecs);
    plan.args.width_shift = shift_of(width);
    plan.args.parts = static_cast<uint32_t>(parts);
    plan.args.row_parts = divide_by(row_parts);
    return plan;
  }
};

inline Terms WeightChannelsLastPlan::terms(const Problem&, const Device& device) const {
  // Terms: second launch, taps per SM.
  return {args.base.partial ? 1.0 : 0.0, taps * fill_of(launch, device)};
}

}  // namespace gpuopt::conv1d
