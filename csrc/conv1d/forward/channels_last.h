// Depthwise with channels innermost: a thread has a vector of channels.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

struct ChannelsLastArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_stride, to_batch, to_stride;
  int64_t weight_channel, weight_tap, bias_stride;
  int64_t from_size, to_size, step, padding, dilation;
  int32_t taps;
  uint32_t channels;
  FastDiv row_tiles, channel_tiles;
  Activation activation;
};

struct ChannelsLastPlan {
  static constexpr const char* kName = "channels_last";
  static constexpr const Costs& kCosts = costs::kChannelsLast;
  LaunchShape launch;
  ChannelsLastArgs args;
  bool slides;

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<ChannelsLastPlan> make(const Problem& p, const Device&) {
    const int64_t block_channels = 8 * (kAccessBytes / item_of(p));
    const int64_t bytes = p.taps * block_channels * compute_bytes(p);
    if (item_of(p) == 8 || !has_vectors_of_channels(p) || bytes > kSharedBytes) return {};
    const int64_t row_tiles = ceil_div<int64_t>(p.to.size, kThreads / 8 * 4);
    const int64_t channel_tiles = ceil_div(p.groups, block_channels);
    ChannelsLastPlan plan;
    plan.launch = launch_shape(p.batch * channel_tiles * row_tiles, kThreads, bytes);
    plan.slides = has_unit_stride(p) && !has_dilation(p);
    ChannelsLastArgs& args = plan.args;
    set_operands(args, p);
    args.from_stride = p.from.stride;
    args.to_stride = p.to.stride;
    args.weight_channel = p.weight.group_stride;
    args.from_size = p.from.size;
    args.to_size = p.to.size;
    args.step = p.stride;
    args.padding = p.padding;
    args.dilation = p.dilation;
    args.taps = static_cast<int32_t>(p.taps);
    args.channels = static_cast<uint32_t>(p.groups);
    args.row_tiles = divide_by(row_tiles);
    args.channel_tiles = divide_by(channel_tiles);
    return plan;
  }
};

inline Terms ChannelsLastPlan::terms(const Problem& p, const Device& device) const {
  // Terms: taps per SM.
  return {static_cast<double>(p.taps) * fill_of(launch, device)};
}

}  // namespace gpuopt::conv1d
