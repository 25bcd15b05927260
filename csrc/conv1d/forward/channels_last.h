// Depthwise with channels innermost: a thread slides over the positions of a few channels.
#pragma once

#include "conv1d/forward/channel_tiles.h"

namespace gpuopt::conv1d {

struct ChannelsLastArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_stride, to_batch, to_stride;
  int64_t weight_channel, weight_tap, bias_stride;
  int32_t from_size, to_size, padding, taps;
  int32_t positions;  // of a thread
  uint32_t threads;
  FastDiv vecs, chunks, phases, dilation;
  Activation activation;
};

// A kernel with more taps keeps more values in registers, so it takes fewer channels per thread.
constexpr int64_t kFewColumnTaps = 4;

struct ChannelsLastPlan : PathPlan<ChannelsLastArgs> {
  static constexpr const char* kName = "channels_last";
  static constexpr const Costs& kCosts = costs::kChannelsLast;
  int values;  // channels of a thread

  static std::optional<ChannelsLastPlan> make(const Problem& p, const Device& device) {
    if (!has_channel_tiles(p) || p.taps > most_sliding_taps(is_half(p))) return {};
    ChannelsLastPlan plan;
    plan.values = !is_half(p)                                                 ? 1
                  : p.taps <= kFewColumnTaps && has_vectors_of_channels(p, 4) ? 4
                  : has_vectors_of_channels(p, 2)                             ? 2
                                                                              : 1;
    const int64_t vecs = p.groups / plan.values;
    // Positions that lie a multiple of the dilation apart are a sequence. It begins at its phase.
    const int64_t phases = std::min(p.dilation, p.to.size);
    const int64_t sequences = p.batch * vecs * phases;
    const int64_t size = ceil_div(p.to.size, p.dilation);
    // A thread with many positions loads few inputs that another thread loads, too. With few, more
    // threads fill the GPU. More than 32 or 64 let the blocks drift apart in memory: bf16
    // (1,3320,12384) with 4 taps takes 66 us with 32, 72 us with 64 and 89 us with 128 (H100).
    const int64_t fair = ceil_div(sequences * size, int64_t{device.sms} * 1536);
    const int64_t most = p.taps <= kFewColumnTaps ? 32 : 64;
    const int64_t chunks = ceil_div(size, std::clamp<int64_t>(fair, 8, most));
    const int64_t positions = ceil_div<int64_t>(ceil_div(size, chunks), 8) * 8;
    const int64_t threads = sequences * ceil_div(size, positions);
    plan.launch = launch_shape(ceil_div<int64_t>(threads, kThreads), kThreads);
    ChannelsLastArgs& args = plan.args;
    set_operands(args, p);
    set_signal(args, p);
    args.weight_channel = p.weight.group_stride;
    args.positions = static_cast<int32_t>(positions);
    args.threads = static_cast<uint32_t>(threads);
    args.vecs = divide_by(vecs);
    args.chunks = divide_by(ceil_div(size, positions));
    args.phases = divide_by(phases);
    args.dilation = divide_by(p.dilation);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    // Terms: inputs of a thread's channels that an SM loads, their products, and scattered loads.
    const double loads = fill_of(launch, device) * static_cast<double>(args.positions + args.taps);
    return {loads, loads * static_cast<double>(p.taps * values), loads / args.vecs.divisor};
  }
};

}  // namespace gpuopt::conv1d
