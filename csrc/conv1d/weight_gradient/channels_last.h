// Depthwise weight gradients, channels last, of stride 1: a thread has a vector of channels, or one
// channel if vectors are not aligned.
#pragma once

#include "conv1d/weight_gradient/channel_tiles.h"

namespace gpuopt::conv1d {

// Positions per part of a row, of a thread at a time. Fewer fill the GPU with a small problem.
constexpr int64_t kFewestPartPositions = 16, kMostPartPositions = 128;

// Blocks per SM, limited by registers.
constexpr int weight_vec_blocks(int64_t item, int taps) { return item == 2 && taps == 8 ? 3 : 4; }

struct WeightChannelsLastArgs : WeightArgs {
  uint32_t vecs;  // of all channels
  // 2^width_shift threads with vectors side by side form a row of threads. A block has several
  // rows.
  uint32_t width_shift;
  uint32_t parts;  // parts of all rows, over which a row of threads loops
  int32_t part_positions;
  FastDiv row_parts;  // parts per row
};

struct WeightChannelsLastPlan : PathPlan<WeightChannelsLastArgs> {
  static constexpr const char* kName = "weight_channels_last";
  static constexpr const Costs& kCosts = costs::kWeightChannelsLast;
  int values;  // channels of a thread: a 16-byte vector or 1
  int taps;    // of a thread, at least as many as the filter has

  static std::optional<WeightChannelsLastPlan> make(const Problem& p, const Device& device) {
    const bool is_depthwise = p.from.channels == 1 && p.to.channels == 1;
    if (!is_depthwise || p.from.channel_stride != 1 || p.to.channel_stride != 1 ||
        item_of(p) == 8 || !has_unit_stride(p) || has_dilation(p) || p.taps > kMostSlidingWeights) {
      return {};
    }
    const auto vec_values = static_cast<int>(kAccessBytes / item_of(p));
    WeightChannelsLastPlan plan;
    plan.values = has_vectors_of_channels(p, vec_values) ? vec_values : 1;
    plan.taps = p.taps <= 4 && plan.values > 1 ? 4 : 8;
    const int64_t vecs = p.groups / plan.values;
    int64_t width = 1;
    while (width < 32 && width < vecs) width *= 2;
    const int64_t tiles = ceil_div(vecs, width), rows = kChunkThreads / width;
    const int64_t all = device.sms * weight_vec_blocks(item_of(p), plan.taps);
    const int64_t fair = ceil_div(p.batch * p.to.size * tiles, all * rows);
    const int64_t part_positions =
        std::clamp(pow2_ceil(fair), kFewestPartPositions, kMostPartPositions);
    const int64_t row_parts = ceil_div(p.to.size, part_positions), parts = p.batch * row_parts;
    const int64_t splits = splits_of(all, tiles, ceil_div(parts, rows));
    if (parts >= kFar || !fits_grid(tiles * splits)) return {};
    plan.launch = launch_shape(tiles * splits, kChunkThreads);
    plan.args = {weight_args(p, splits, 1, tiles)};
    plan.args.vecs = static_cast<uint32_t>(vecs);
    plan.args.width_shift = shift_of(width);
    plan.args.parts = static_cast<uint32_t>(parts);
    plan.args.part_positions = static_cast<int32_t>(part_positions);
    plan.args.row_parts = divide_by(row_parts);
    return plan;
  }

  Terms terms(const Problem&, const Device& device) const {
    // Terms: second launch, taps per SM, positions per SM.
    const double parts = static_cast<double>(args.vecs) * args.parts;
    return {args.partial ? 1.0 : 0.0, taps * fill_of(launch, device),
            parts * args.part_positions / device.sms / 1e4};
  }
};

}  // namespace gpuopt::conv1d
