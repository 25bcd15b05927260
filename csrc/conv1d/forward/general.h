// Any strides and dilations: a thread reads its inputs one by one.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

struct GeneralArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_channel, from_stride, to_batch, to_channel, to_stride;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int64_t from_size, to_size, step, padding, dilation, taps;
  uint32_t in_channels, out_channels;  // per group
  int64_t lanes;                       // threads of the launch
  FastDiv row_tiles, tiles, groups;    // tiles of a row, tiles of a group's channels, groups
  // If channels_first, neighbouring threads have neighbouring channels. Otherwise 2^width_shift
  // threads have neighbouring positions.
  bool channels_first;
  uint32_t width_shift;
  Activation activation;
};

// Output channels per thread. f64 lacks the registers for more than one.
inline int general_channels(const Problem& p) {
  return p.to.channels >= 4 && item_of(p) < 8 ? 4 : 1;
}

struct GeneralPlan : PathPlan<GeneralArgs> {
  static constexpr const char* kName = "general";
  static constexpr const Costs& kCosts = costs::kGeneral;
  int channels;   // output channels per thread: 1 or 4
  int positions;  // per thread: 1 or 4

  static std::optional<GeneralPlan> make(const Problem& p, const Device&) {
    return make(p, /*one_position=*/false);
  }
  static std::optional<GeneralPlan> make(const Problem& p, bool one_position) {
    GeneralPlan plan;
    plan.channels = general_channels(p);
    plan.positions = plan.channels == 1 && one_position ? 1 : 4;
    const int64_t tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
    const int64_t rows = p.batch * p.groups * tiles;
    // One group of one example can't be split into launches, which count threads with 31 bits.
    const bool few_lanes = p.to.channels * p.to.size < kMaxIndex32;
    GeneralArgs& args = plan.args;
    args.channels_first =
        has_channels_last(p.to) && p.to.size > 1 && p.groups * p.to.channels >= 8 && few_lanes;
    int64_t width = 1;  // neighbouring threads with neighbouring positions
    if (!args.channels_first) {
      while (width < 32 && width * plan.positions < p.to.size) width *= 2;
    }
    const int64_t row_tiles = ceil_div<int64_t>(p.to.size, width * plan.positions);
    if (rows * row_tiles > kMaxIndex32 - kThreads) return {};
    args.lanes = rows * row_tiles * width;
    plan.launch = launch_shape(ceil_div<int64_t>(args.lanes, kThreads), kThreads);
    set_operands(args, p);
    set_strides(args, p);
    set_channels(args, p);
    set_signal(args, p);
    args.step = p.stride;
    args.dilation = p.dilation;
    args.row_tiles = divide_by(row_tiles);
    args.tiles = divide_by(tiles);
    args.groups = divide_by(p.groups);
    args.width_shift = shift_of(width);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(launch, device);
    const auto in = static_cast<double>(p.from.channels);
    const double loads = in * static_cast<double>(p.taps) * positions * fill;
    // Terms: threads, dependent loads per thread, multiply-adds, scattered loads.
    return {fill, in * static_cast<double>(p.taps / 4 + p.taps % 4), loads * channels,
            args.channels_first ? 0 : loads * scatter_of(p.from)};
  }
};

}  // namespace gpuopt::conv1d
