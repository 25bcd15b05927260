// Small problems of any strides: all inputs and taps of an output are in flight at once.
#pragma once

#include <cmath>

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

constexpr int kSmallThreads = 128;      // per block
constexpr int kMostSmallThreads = 256;  // per block in large launches
constexpr int kSmallMacs = 24;          // multiply-adds per thread

struct SmallArgs {
  const void *from, *weight, *bias;
  void* to;
  int32_t from_batch, from_group, from_channel, from_stride, to_batch, to_channel, to_stride;
  int32_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t from_size, step, padding, dilation, products, part_products;
  uint32_t outputs;      // in the launch
  uint32_t width_shift;  // 2^width_shift outputs per warp
  // Divisors of the fast and of the slow index of an output. Channels are the fast index if
  // channels_first, otherwise positions are.
  FastDiv inner, outer;
  bool channels_first;
  FastDiv group_channels;  // output channels per group
  FastDiv taps;
  Activation activation;
};

// Whether 32 bits hold all offsets within a signal, with `positions` per row.
inline bool reaches_in_32_bits(const Problem& p, const Signal& signal, int64_t positions) {
  return in_32_bits(p.batch, signal.batch_stride) &&
         in_32_bits(p.groups * signal.channels, signal.channel_stride) &&
         in_32_bits(positions, signal.stride);
}

inline bool fits_small(const Problem& p) {
  const int64_t positions = p.from.size + std::abs(p.padding) + p.taps * p.dilation;
  return positions_in_32_bits(p) && reaches_in_32_bits(p, p.from, positions) &&
         reaches_in_32_bits(p, p.to, p.to.size) && in_32_bits(p.groups, p.weight.group_stride) &&
         in_32_bits(p.to.channels, p.weight.out_stride) &&
         in_32_bits(p.from.channels, p.weight.in_stride) &&
         in_32_bits(p.taps, p.weight.tap_stride) &&
         in_32_bits(p.groups * p.to.channels, p.bias_stride) &&
         macs_per_output(p) <= 32 * kSmallMacs && outputs_of(p) < kFar;
}

struct SmallPlan : PathPlan<SmallArgs> {
  static constexpr const char* kName = "small";
  static constexpr const Costs& kCosts = costs::kSmall;
  int products;  // multiply-adds per thread
  bool one_channel;

  // One thread per output, or several if an output has more than kSmallMacs multiply-adds.
  static std::optional<SmallPlan> make(const Problem& p, const Device& device) {
    if (!fits_small(p)) return {};
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    const int64_t products = macs_per_output(p), outputs = outputs_of(p);
    int64_t parts = 1;
    while (parts * kSmallMacs < products) parts *= 2;
    const int64_t lanes = ceil_div(outputs, 32 / parts) * 32;
    const bool many = lanes > int64_t{device.sms} * 8 * kSmallThreads;
    const int threads = many ? kMostSmallThreads : kSmallThreads;
    SmallPlan plan;
    plan.launch = launch_shape(ceil_div<int64_t>(lanes, threads), threads);
    plan.products = narrow(ceil_div(products, parts));
    plan.one_channel = p.from.channels == 1;
    SmallArgs& args = plan.args;
    args.from = p.from.data;
    args.weight = p.weight.data;
    args.bias = p.bias;
    args.to = nullptr;
    args.from_batch = narrow(p.from.batch_stride);
    args.from_group = narrow(p.from.channels * p.from.channel_stride);
    args.from_channel = narrow(p.from.channel_stride);
    args.from_stride = narrow(p.from.stride);
    args.to_batch = narrow(p.to.batch_stride);
    args.to_channel = narrow(p.to.channel_stride);
    args.to_stride = narrow(p.to.stride);
    args.weight_group = narrow(p.weight.group_stride);
    args.weight_out = narrow(p.weight.out_stride);
    args.weight_in = narrow(p.weight.in_stride);
    args.weight_tap = narrow(p.weight.tap_stride);
    args.bias_stride = narrow(p.bias_stride);
    args.from_size = narrow(p.from.size);
    args.step = narrow(p.stride);
    args.padding = narrow(p.padding);
    args.dilation = narrow(p.dilation);
    args.products = narrow(products);
    args.part_products = plan.products;
    args.outputs = static_cast<uint32_t>(outputs);
    args.width_shift = shift_of(32 / parts);
    args.channels_first = has_channels_last(p.to);
    const FastDiv positions = divide_by(p.to.size), channels = divide_by(p.groups * p.to.channels);
    args.inner = args.channels_first ? channels : positions;
    args.outer = args.channels_first ? positions : channels;
    args.group_channels = divide_by(p.to.channels);
    args.taps = divide_by(p.taps);
    args.activation = p.activation;
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const auto parts = static_cast<double>(ceil_div<int64_t>(macs_per_output(p), products));
    const double fill = fill_of(launch, device);
    // Terms: blocks, sums over threads, multiply-adds per thread and per SM, scattered loads.
    return {blocks_per_sm(launch, device), std::log2(parts) * fill, static_cast<double>(products),
            products * fill, args.channels_first ? 0 : products * fill * scatter_of(p.from)};
  }
};

}  // namespace gpuopt::conv1d
