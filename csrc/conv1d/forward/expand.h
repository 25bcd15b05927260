// Few into many channels: inputs stay in registers while a block loops over the output channels.
// fp16 and bf16 run on tensor cores, see expand_mma.cuh.
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
  uint32_t iterations = 1;  // fp16 and bf16: of a warp over positions
  Activation activation;
};

constexpr int kExpandMmaParts = 2;  // fp16 and bf16: parts of 32 positions that a warp has at once

// f32: values per output channel in shared memory: its taps and bias, rounded up to whole vectors.
GPUOPT_HOST_DEVICE constexpr int expand_pitch(int products) { return (products + 4) / 4 * 4; }

// f32: blocks per SM, limited by registers. A thread needs registers for the inputs under a vector
// of outputs, for the taps, and 20 more.
constexpr int expand_blocks(int products) { return std::min(8, 512 / (5 * products + 23)); }

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
  // Multiply-adds per output that the kernel is compiled for. fp16 and bf16 have 16 or 32, one or
  // two mma.
  int products;

  static std::optional<ExpandPlan> make(const Problem& p, const Device& device) {
    if (item_of(p) == 8 || macs_per_output(p) > (is_half(p) ? 32 : 16) || !has_plain_rows(p)) {
      return {};
    }
    ExpandChannels channels(p);
    if (channels.in_class < kExpandChannels) return {};
    ExpandPlan plan;
    const bool fits =
        is_half(p) ? plan.fit_mma(p, device, channels) : plan.fit(p, device, channels);
    if (!fits) return {};
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(launch, device);
    const double inputs =
        static_cast<double>(launch.shared_bytes) * blocks_per_sm(launch, device) / 1e5;
    const double channels = args.block_channels;
    if (is_half(p)) {
      const double mma = channels * products / 64;
      const int resident =
          static_cast<int>(std::clamp<size_t>((227 << 10) / (launch.shared_bytes + 1024), 1, 8));
      // Terms: inputs, mma in waves, mma per SM.
      return {inputs, waves_of(launch, device, resident) * mma, mma * fill};
    }
    const double macs = channels * static_cast<double>(macs_per_output(p));
    // Terms: multiply-adds per thread and per SM, inputs, output channels.
    return {macs, macs * fill, inputs, channels * fill};
  }

 private:
  bool fit(const Problem& p, const Device& device, ExpandChannels channels) {
    constexpr int64_t kValues = kAccessBytes / 4, kOutputs = kChunkThreads * kValues;
    products = std::max(static_cast<int>(ceil_div<int64_t>(macs_per_output(p), 2) * 2), 4);
    if (products == 14) products = 16;
    const int64_t tiles = ceil_div(p.to.size + channels.slack(p), kOutputs);
    const int64_t vecs = ceil_div((kOutputs - 1) * p.stride + span_of(p) + kValues, kValues);
    channels.block = std::min<int64_t>(channels.in_class, 128);
    const int64_t bytes =
        channels.block * expand_pitch(products) * 4 + p.from.channels * vecs * kAccessBytes;
    if (bytes > kSharedBytes) return false;
    const int64_t others = p.batch * p.groups * channels.cycle * tiles;
    // More blocks shorten the tail in which some SMs are idle.
    while (channels.block >= 32 &&
           others * ceil_div(channels.in_class, channels.block) <= int64_t{device.sms} * 48) {
      channels.block = ceil_div<int64_t>(channels.block, 8) * 4;
    }
    launch = launch_shape(channels.share(device, others, 4), kChunkThreads, bytes);
    args = expand_args(p, channels, tiles, vecs);
    return true;
  }

  bool fit_mma(const Problem& p, const Device& device, ExpandChannels channels) {
    constexpr int64_t kPositions = kChunkThreads * kExpandMmaParts;
    products = macs_per_output(p) <= 16 ? 16 : 32;
    channels.block = std::min<int64_t>(ceil_div<int64_t>(channels.in_class, 16) * 16, 256);
    const auto tiles_of = [&](int64_t iterations) {
      return ceil_div(p.to.size + channels.slack(p), iterations * kPositions);
    };
    const auto vecs_of = [&](int64_t iterations) {
      return ceil_div<int64_t>((iterations * kPositions - 1) * p.stride + span_of(p) + 8, 8);
    };
    const auto bytes_of = [&](int64_t iterations) {
      return channels.block * ((products + 8) * 2 + 4) +
             p.from.channels * vecs_of(iterations) * kAccessBytes;
    };
    const int64_t others = p.batch * p.groups * channels.cycle;
    // More iterations amortise the loads of the taps. Each SM keeps at least 8 blocks.
    int64_t iterations = 1;
    while ((iterations + 1) * channels.block <= 96 &&
           bytes_of(iterations + 1) <= kSharedBytes / 2 &&
           others * tiles_of(iterations + 1) >= 8 * device.sms) {
      ++iterations;
    }
    const int64_t bytes = bytes_of(iterations);
    if (bytes > kSharedBytes) return false;
    const int64_t blocks = channels.share(device, others * tiles_of(iterations), 16);
    launch = launch_shape(blocks, kChunkThreads, bytes);
    args = expand_args(p, channels, tiles_of(iterations), vecs_of(iterations));
    args.iterations = static_cast<uint32_t>(iterations);
    return true;
  }
};

}  // namespace gpuopt::conv1d
