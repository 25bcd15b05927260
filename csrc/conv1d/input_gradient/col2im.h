// Input gradients from many output channels by col2im. A block computes columns in shared memory.
// Then it adds them up at the positions of the input that they belong to.
#pragma once

#include <cmath>

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

constexpr int kCol2imWarps = 8;                    // per block
constexpr int kCol2imMostStride = 64;              // largest stride: size of the kernel's tables
constexpr int64_t kCol2imTapBytes = 40 << 10;      // shared memory for taps
constexpr int64_t kCol2imSharedBytes = 112 << 10;  // for two blocks per SM on sm_90
constexpr int64_t kCol2imStatic = 2 * 4 * kCol2imMostStride;  // declared by the kernel
// Positions of the gradient per warp.
constexpr int kCol2imPositions = 64;
constexpr int col2im_matrix_positions(int rows) { return rows > 2 ? 32 : 64; }
// Blocks per SM, limited by registers.
constexpr int col2im_blocks(int products) { return products > 16 ? 2 : 3; }
constexpr int kCol2imMatrixProducts = 64, kCol2imProducts = 32;  // of a warp, at most
constexpr int kGradientQuad = 4;                                 // values per load

// `grad` is [batch, groups, out_channels, grad_size], `weight` is [groups, out_channels,
// in_channels, taps], `to` is [batch, groups, in_channels, to_size].
struct Col2imArgs {
  const void *grad, *weight;
  const void* bias;  // of the input channels, may be null
  void* to;          // gradient of the input
  int64_t grad_batch, grad_channel, grad_stride, to_batch, to_channel, to_stride;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t grad_size, to_size, padding, dilation;
  // Taps k and k + tap_cycle are position_step positions of the gradient apart.
  int32_t taps, tap_cycle, position_step;
  // Long filters are computed in parts, which shared memory adds up.
  int32_t tap_parts, part_taps;
  int32_t lead_steps;                  // strides that make positions before a row non-negative
  uint32_t in_channels, out_channels;  // per group
  uint32_t part_channels;              // input channels per block
  uint32_t tile_positions;             // positions of the input per tile
  uint32_t split_shift;     // log2 of the warps that share positions and split the output channels
  uint32_t stage_channels;  // channels per warp whose taps are in shared memory at once
  uint32_t all_tiles;       // tiles of all examples
  FastDiv tile_blocks, step, part_taps_div, row_tiles, parts;
  // Only one in `every` positions of the input meets taps. A tile has `tile_iterations` such
  // positions.
  int32_t every;
  FastDiv tile_iterations;
};

inline bool has_gradient_rows(const Problem& p) { return p.to.stride == 1 || p.to.size == 1; }

// Channels this far apart are aligned alike for quads.
inline int64_t gradient_cycle(const Problem& p) {
  return is_half(p) && has_gradient_rows(p) ? cycle_of(p.to, kGradientQuad) : 1;
}

template <size_t N>
int smallest_of(const int (&sizes)[N], int64_t products) {
  for (int size : sizes) {
    if (products <= size) return size;
  }
  return 0;
}

struct Col2imPlan : PathPlan<Col2imArgs> {
  static constexpr const char* kName = "col2im";
  static constexpr const Costs& kCosts = costs::kCol2im;
  bool matrices;
  int products;  // products (c, k) that the kernel is compiled for

  static std::optional<Col2imPlan> make(const Problem& p, const Device& device) {
    // An mma has 16 channels, whose rows are read as vectors and must be aligned alike.
    if (is_half(p) && has_gradient_rows(p) && p.to.channels >= gradient_cycle(p) * 8) {
      if (const auto plan = make(p, device, /*matrices=*/true)) return plan;
    }
    return make(p, device, /*matrices=*/false);
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double tiles = std::ceil(static_cast<double>(args.all_tiles) / args.tile_blocks.divisor);
    const double channels = static_cast<double>(p.to.channels) / (1 << args.split_shift);
    const int64_t met = p.stride / std::gcd(p.stride, p.dilation);
    const double added = tiles * args.tile_positions * args.part_channels *
                         static_cast<double>(ceil_div(p.taps, met)) / 256;
    // Terms: additions per SM and per thread, multiply-adds per thread, tiles, taps.
    const double all = products * static_cast<double>(args.tap_parts);
    return {added * blocks_per_sm(launch, device), added, tiles * channels * all, tiles,
            channels * all};
  }

 private:
  static std::optional<Col2imPlan> make(const Problem& p, const Device& device, bool matrices) {
    const int64_t item = item_of(p), cycle = gradient_cycle(p), span = span_of(p);
    if (item == 8 || p.from.channels > 8 || !strides_in_32_bits(p) ||
        p.stride > kCol2imMostStride) {
      return {};
    }
    Col2imPlan plan;
    plan.matrices = matrices;
    const int64_t most = plan.matrices ? kCol2imMatrixProducts : kCol2imProducts;
    const int64_t tap_parts = ceil_div(p.taps, most);
    const int64_t part_taps = ceil_div(p.taps, tap_parts);
    int64_t parts = tap_parts > 1 ? p.from.channels : ceil_div(p.from.channels, most / p.taps);
    const int64_t part_channels = ceil_div(p.from.channels, parts);
    parts = ceil_div(p.from.channels, part_channels);
    plan.products = plan.matrices ? smallest_of({16, 32, 64}, part_channels * part_taps)
                                  : smallest_of({8, 16, 32}, part_channels * part_taps);
    const int64_t positions =
        plan.matrices ? col2im_matrix_positions(plan.products / 16) : int64_t{kCol2imPositions};
    const int64_t slack = plan.matrices ? kGradientQuad - 1 : 0, multiple = plan.matrices ? 16 : 1;
    const auto row_of = [&](int64_t splits) { return kCol2imWarps / splits * positions; };
    // Positions of the input whose taps all lie within a block's positions of the gradient.
    const auto tile_of = [&](int64_t splits) {
      return (row_of(splits) - slack - 1) * p.stride - span + 1;
    };
    const auto is_mostly_new = [&](int64_t splits) {
      return 2 * tile_of(splits) >= row_of(splits) * p.stride;
    };
    const auto channels_of = [&](int64_t splits) {
      return ceil_div(ceil_div(p.to.channels, splits), multiple) * multiple;
    };
    const auto tap_bytes_of = [&](int64_t splits) {
      return splits * tap_parts * plan.products * (plan.matrices ? 2 : 4);
    };
    // Several warps share positions and split the output channels, as long as tiles overlap little
    // and all taps fit into shared memory. In a small problem, a warp has few channels.
    int64_t splits = plan.matrices ? cycle : 1;
    const auto least_channels = [&] {
      const bool is_small =
          p.batch * p.groups * parts * ceil_div(p.from.size, tile_of(splits)) < device.sms;
      return is_small && !plan.matrices ? 4 : 16;
    };
    while (splits < kCol2imWarps && is_mostly_new(2 * splits) &&
           p.to.channels >= 2 * splits * least_channels() &&
           channels_of(2 * splits) * tap_bytes_of(2 * splits) <= kCol2imTapBytes) {
      splits *= 2;
    }
    if (!is_mostly_new(splits)) return {};
    int64_t tile = tile_of(splits);
    const int64_t sector = kSectorBytes / item;
    if (tile > 4 * sector) tile = tile / sector * sector;
    const int64_t row_tiles = ceil_div(p.from.size, tile), tap_bytes = tap_bytes_of(splits);
    const int64_t every = std::gcd(p.stride, p.dilation), tile_iterations = ceil_div(tile, every);
    const int64_t made = splits * plan.products * (row_of(splits) + 4) * 4;
    const int64_t added = tap_parts > 1 ? tile_iterations * every * 4 : 0;
    const int64_t free_bytes =
        std::min<int64_t>(device.shared_bytes, kCol2imSharedBytes) - kCol2imStatic - made - added;
    const int64_t stage_channels =
        std::min(channels_of(splits),
                 std::min(kCol2imTapBytes, free_bytes) / tap_bytes / multiple * multiple);
    // Taps that do not fit are read again for each tile. Tiles must then be long.
    if (stage_channels < multiple ||
        (stage_channels < channels_of(splits) && row_of(splits) < 4 * plan.products)) {
      return {};
    }
    const int64_t bytes = made + added + stage_channels * tap_bytes;
    // A block computes some input channels of a group and loops over tiles of all examples.
    const int64_t all_tiles = p.batch * row_tiles;
    if (all_tiles >= kFar) return {};
    const int64_t resident = int64_t{device.sms} * col2im_blocks(plan.products);
    const int64_t tile_blocks =
        std::min(all_tiles, std::max<int64_t>(resident / (p.groups * parts), 1));
    plan.launch = launch_shape(p.groups * parts * tile_blocks, 32 * kCol2imWarps, bytes);

    Col2imArgs& args = plan.args;
    args.grad = p.to.data;
    args.weight = p.weight.data;
    args.bias = p.bias;
    args.to = nullptr;
    args.grad_batch = p.to.batch_stride;
    args.grad_channel = p.to.channel_stride;
    args.grad_stride = has_gradient_rows(p) ? 1 : p.to.stride;
    args.to_batch = p.from.batch_stride;
    args.to_channel = p.from.channel_stride;
    args.to_stride = p.from.stride;
    args.weight_group = p.weight.group_stride;
    args.weight_out = p.weight.out_stride;
    args.weight_in = p.weight.in_stride;
    args.weight_tap = p.weight.tap_stride;
    args.bias_stride = p.bias_stride;
    args.grad_size = static_cast<int32_t>(p.to.size);
    args.to_size = static_cast<int32_t>(p.from.size);
    args.padding = static_cast<int32_t>(p.padding);
    args.dilation = static_cast<int32_t>(p.dilation);
    args.taps = static_cast<int32_t>(p.taps);
    args.tap_cycle = static_cast<int32_t>(tap_cycle_of(p));
    args.tap_parts = static_cast<int32_t>(tap_parts);
    args.part_taps = static_cast<int32_t>(part_taps);
    args.every = static_cast<int32_t>(every);
    args.position_step = static_cast<int32_t>(p.dilation / every);
    args.tile_iterations = divide_by(tile_iterations);
    args.lead_steps = lead_steps(p);
    set_channels(args, p);
    args.part_channels = static_cast<uint32_t>(part_channels);
    args.tile_positions = static_cast<uint32_t>(tile);
    args.split_shift = shift_of(splits);
    args.stage_channels = static_cast<uint32_t>(stage_channels);
    args.all_tiles = static_cast<uint32_t>(all_tiles);
    args.tile_blocks = divide_by(tile_blocks);
    args.step = divide_by(p.stride);
    args.part_taps_div = divide_by(part_taps);
    args.row_tiles = divide_by(row_tiles);
    args.parts = divide_by(parts);
    return plan;
  }
};

}  // namespace gpuopt::conv1d
