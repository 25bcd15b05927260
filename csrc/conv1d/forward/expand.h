// Few into many channels: inputs stay in registers while a block loops over the output channels.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

struct ExpandArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int64_t from_size, to_size, padding;
  int32_t step, dilation, taps;
  const char *first_vec, *last_vec;    // bounds of whole vectors, see Rows
  uint32_t row_vecs;                   // vectors of an input row in shared memory
  uint32_t in_channels, out_channels;  // per group
  uint32_t block_channels;             // output channels per block
  uint32_t aligned;                    // alignment of a block's outputs, in values
  FastDiv tiles, cycle;                // tiles of outputs per row, classes of channels
  FastDiv parts, groups;
  Activation activation;
};

// Values per output channel in shared memory: its taps and bias, rounded up to whole vectors.
constexpr int64_t expand_pitch(int products, int64_t item) {
  return item == 8 ? (products + 2) / 2 * 2 : (products + 4) / 4 * 4;
}

// Blocks per SM, limited by registers. A thread needs registers for the inputs under a vector of
// outputs, for the taps, and 20 more.
constexpr int expand_blocks(int products, int64_t item) {
  const int words = 4 * products + static_cast<int>(item / 4) * (products + 3) + 20;
  return std::min(8, 512 / words);
}

// The path supports only problems with at least this many output channels that are aligned alike.
constexpr int64_t kExpandChannels = 8;

// The output channels of a block, and the alignment of its outputs. Channels `cycle` apart are
// aligned alike and form a class. A block computes channels of one class.
struct ExpandChannels {
  int64_t aligned;   // alignment of a block's outputs, in values
  int64_t cycle;     // number of classes
  int64_t in_class;  // channels per class
  int64_t block = 0, parts = 1;

  // Aligns to a sector, or to half a sector if classes would be too small.
  explicit ExpandChannels(const Problem& p) : aligned(kSectorBytes / item_of(p)) {
    if (ceil_div(p.to.channels, cycle_of(p.to, aligned)) < kExpandChannels) aligned /= 2;
    cycle = cycle_of(p.to, aligned);
    in_class = ceil_div(p.to.channels, cycle);
  }

  // Shrinks `block`, to no less than `least`, until there are two blocks per SM. Returns the number
  // of blocks.
  int64_t share(const Device& device, int64_t others, int64_t least) {
    while (block >= 2 * least && others * ceil_div(in_class, block) < int64_t{2} * device.sms) {
      block = ceil_div(block, 2 * least) * least;
    }
    parts = ceil_div(in_class, block);
    return others * parts;
  }

  // Values between the aligned address and the first output of a row, at most.
  int64_t slack(const Problem& p) const {
    return has_aligned_rows(p, p.to, aligned) ? 0 : aligned - 1;
  }
};

inline ExpandArgs expand_args(const Problem& p, const ExpandChannels& channels, int64_t row_tiles,
                              int64_t row_vecs) {
  ExpandArgs args;
  set_operands(args, p);
  set_strides(args, p);
  set_channels(args, p);
  const VectorRange range = vectors_of(p, p.from);
  args.first_vec = range.first;
  args.last_vec = range.last;
  args.groups = divide_by(p.groups);
  args.from_size = p.from.size;
  args.to_size = p.to.size;
  args.padding = p.padding;
  args.step = static_cast<int32_t>(p.stride);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.taps = static_cast<int32_t>(p.taps);
  args.row_vecs = static_cast<uint32_t>(row_vecs);
  args.block_channels = static_cast<uint32_t>(channels.block);
  args.aligned = static_cast<uint32_t>(channels.aligned);
  args.tiles = divide_by(row_tiles);
  args.cycle = divide_by(channels.cycle);
  args.parts = divide_by(channels.parts);
  return args;
}

struct ExpandPlan : PathPlan<ExpandArgs> {
  static constexpr const char* kName = "expand";
  static constexpr const Costs& kCosts = costs::kExpand;
  int products;  // multiply-adds per output that the kernel is compiled for

  static std::optional<ExpandPlan> make(const Problem& p, const Device& device) {
    const int64_t products = macs_per_output(p);
    if (item_of(p) != 4 || products > 16 || !has_plain_rows(p)) return {};
    const int64_t item = item_of(p), values = kAccessBytes / item;
    ExpandChannels channels(p);
    if (channels.in_class < kExpandChannels) return {};
    ExpandPlan plan;
    plan.products = products <= 4 ? 4 : static_cast<int>(ceil_div<int64_t>(products, 2) * 2);
    if (plan.products == 14) plan.products = 16;
    const int64_t tile_outputs = kChunkThreads * values;
    const int64_t row_tiles = ceil_div(p.to.size + channels.slack(p), tile_outputs);
    const int64_t row_vecs = ceil_div((tile_outputs - 1) * p.stride + span_of(p) + values, values);
    channels.block = std::min<int64_t>(channels.in_class, 128);
    const int64_t bytes = channels.block * expand_pitch(plan.products, item) * item +
                          p.from.channels * row_vecs * kAccessBytes;
    if (bytes > kSharedBytes) return {};
    const int64_t others = p.batch * p.groups * channels.cycle * row_tiles;
    // More blocks shorten the tail in which some SMs are idle.
    while (channels.block >= 32 &&
           others * ceil_div(channels.in_class, channels.block) <= int64_t{device.sms} * 48) {
      channels.block = ceil_div<int64_t>(channels.block, 8) * 4;
    }
    const int64_t blocks = channels.share(device, others, 4);
    plan.launch = launch_shape(blocks, kChunkThreads, bytes);
    plan.args = expand_args(p, channels, row_tiles, row_vecs);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double channels = args.block_channels, fill = fill_of(launch, device);
    const double macs = channels * static_cast<double>(macs_per_output(p));
    // Terms: multiply-adds per thread and per SM, inputs, output channels.
    return {macs, macs * fill,
            static_cast<double>(launch.shared_bytes) * blocks_per_sm(launch, device) / 1e5,
            channels * fill};
  }
};

}  // namespace gpuopt::conv1d
