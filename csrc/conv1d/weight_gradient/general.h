// Weight gradients of any strides and dilations: a thread reads its positions one by one.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kWeightTaps = 8;  // per block of weight_columns_kernel

// Neighbouring threads have neighbouring positions.
struct WeightGeneralPlan : PathPlan<WeightArgs> {
  static constexpr const char* kName = "weight_general";
  static constexpr const Costs& kCosts = costs::kWeightGeneral;
  int channels;  // output channels per thread: 1 or 4
  int taps;      // per block: 1, 4 or 8

  static std::optional<WeightGeneralPlan> make(const Problem& p, const Device& device) {
    WeightGeneralPlan plan;
    plan.taps = p.taps == 1 ? 1 : p.taps <= 4 ? 4 : 8;
    // f64 lacks the registers for more.
    plan.channels = p.to.channels >= 4 && p.taps > 1 && item_of(p) < 8 ? 4 : 1;
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
    const int64_t tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
    const int64_t pairs = p.groups * tiles * p.from.channels * tap_parts;
    const int64_t splits =
        splits_of(device.sms * kWeightBlocks, pairs,
                  ceil_div<int64_t>(p.batch * p.to.size, kThreads) / kThreadPositions);
    if (!fits_grid(pairs * splits)) return {};
    plan.launch = launch_shape(pairs * splits, kThreads);
    plan.args = weight_args(p, splits, tap_parts, tiles, kThreads);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double positions = std::ceil(static_cast<double>(p.batch * p.to.size) /
                                       (static_cast<double>(args.splits.divisor) * kThreads));
    const double per_sm = blocks_per_sm(launch, device), loads = positions * taps;
    // Terms: blocks, positions per thread, multiply-adds per SM, loads per SM and per thread.
    return {per_sm, positions, loads * channels * per_sm, loads * per_sm, loads};
  }
};

// Neighbouring threads have neighbouring channels.
struct WeightColumnsPlan : PathPlan<WeightArgs> {
  static constexpr const char* kName = "weight_columns";
  static constexpr const Costs& kCosts = costs::kWeightColumns;

  static std::optional<WeightColumnsPlan> make(const Problem& p, const Device& device) {
    const int64_t channels = p.groups * p.to.channels;
    const bool channels_first = p.to.channel_stride == 1 && p.to.stride != 1 && p.to.size > 1 &&
                                p.from.channel_stride == 1 && channels >= 8;
    if (!channels_first || item_of(p) == 8) return {};
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, kWeightTaps);
    const int64_t tiles = ceil_div<int64_t>(channels, 32);
    const int64_t pairs = tiles * p.from.channels * tap_parts;
    const int64_t splits =
        splits_of(device.sms * kWeightBlocks, pairs,
                  ceil_div<int64_t>(p.batch * p.to.size, kThreads / 32) / kThreadPositions);
    if (!fits_grid(pairs * splits)) return {};
    WeightColumnsPlan plan;
    plan.launch = launch_shape(pairs * splits, kThreads);
    plan.args = weight_args(p, splits, tap_parts, tiles);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double positions =
        std::ceil(static_cast<double>(p.batch * p.to.size) /
                  (static_cast<double>(args.splits.divisor) * (kThreads / 32)));
    const double per_sm = blocks_per_sm(launch, device);
    // Terms: blocks, positions per thread and per SM.
    return {per_sm, positions, positions * per_sm};
  }
};

}  // namespace gpuopt::conv1d
