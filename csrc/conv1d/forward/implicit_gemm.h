// Many multiply-adds: implicit GEMM, for fp16 and bf16 on tensor cores. Tensors have any strides.
#pragma once

#include <cmath>

#include "conv1d/cost.h"
#include "conv1d/geometry.h"
#include "conv1d/phases.h"

namespace gpuopt::conv1d {

constexpr int kGemmPositions = 32;  // positions per warp
constexpr int kGemmRows = 4;        // tiles of 16 channels per warp, at most
// In f32, a thread has this many channels at up to kGemmLaneParts positions, 32 apart.
constexpr int kGemmLaneChannels = 8, kGemmLaneParts = 8;

// Blocks per SM, limited by registers. Each computes `rows` times 16 channels.
constexpr int gemm_blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : 2; }

struct ImplicitGemmArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_vec, *last_vec;  // bounds of whole vectors, see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t from_stride, to_stride;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t from_size, to_size, step, padding, dilation, taps;
  int32_t positions;                   // positions per tile
  uint32_t in_channels, out_channels;  // per group
  uint32_t products;                   // multiply-adds per output
  // Taps of an output that are adjacent and aligned: 1, 2, 4 or 8 are copied at once.
  uint32_t tap_values;
  uint32_t all_tiles;  // tiles of all examples
  FastDiv tile_blocks, row_tiles, parts, taps_div;
  // Per row in shared memory: vectors of inputs, vectors of outputs, and taps, padded to a multiple
  // of 16.
  FastDiv row_vecs, made_vecs, row_taps;
  // Whether rows of inputs are contiguous, rows of outputs, and whether outputs are vectors of
  // neighbouring channels. Otherwise values are copied one by one.
  bool from_rows, to_rows, to_vecs;
  PhasedRows phases;      // only in f32, of the inputs of a tile
  FastDiv channel_warps;  // only in f32: warps of a block side by side over its channels
  Activation activation;
};

// The number of an output's taps that are adjacent and aligned, so that they are copied at once.
inline uint32_t tap_values_of(const Problem& p) {
  const int64_t products = macs_per_output(p);
  if (p.weight.tap_stride != 1 || p.weight.in_stride != p.taps) return 1;
  const auto any = reinterpret_cast<uintptr_t>(p.weight.data) / size_of(p.dtype) |
                   static_cast<uint64_t>(products | p.weight.out_stride | p.weight.group_stride);
  return any % 8 == 0 ? 8 : any % 4 == 0 ? 4 : any % 2 == 0 ? 2 : 1;
}

// What does not depend on the tiles. Blocks loop over `all_tiles` tiles of all examples.
inline ImplicitGemmArgs implicit_gemm_args(const Problem& p, int64_t row_tiles, int64_t parts,
                                           int64_t tile_blocks) {
  ImplicitGemmArgs args;
  set_operands(args, p);
  set_strides(args, p);
  set_channels(args, p);
  set_rows(args, p);
  args.from_rows = p.from.stride == 1 || p.from.size == 1;
  args.to_rows = p.to.stride == 1 || p.to.size == 1;
  const int64_t values = kAccessBytes / item_of(p);
  args.to_vecs = p.to.channel_stride == 1 && p.to.stride % values == 0 &&
                 (p.groups == 1 || p.to.channels % values == 0) &&
                 (p.batch == 1 || p.to.batch_stride % values == 0) &&
                 reinterpret_cast<uintptr_t>(p.to.data) % kAccessBytes == 0;
  args.step = static_cast<int32_t>(has_unit_stride(p) ? 1 : p.stride);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.products = static_cast<uint32_t>(macs_per_output(p));
  args.all_tiles = static_cast<uint32_t>(p.batch * row_tiles);
  args.tile_blocks = divide_by(tile_blocks);
  args.row_tiles = divide_by(row_tiles);
  args.parts = divide_by(parts);
  args.taps_div = divide_by(p.taps);
  return args;
}

// The blocks that loop over `all_tiles` tiles for each of `parts` parts of the channels, if an SM
// holds `resident` blocks.
inline int64_t tile_blocks_of(int64_t all_tiles, int64_t parts, int64_t resident,
                              const Device& device) {
  const int64_t most = std::max<int64_t>(device.sms * resident / parts, 1);
  return ceil_div(all_tiles, ceil_div(all_tiles, most));
}

// The most input channels per group that implicit GEMM supports. Not for f64.
inline int64_t most_gemm_channels(bool is_half) { return is_half ? 16 : 8; }

struct ImplicitGemmPlan : PathPlan<ImplicitGemmArgs> {
  static constexpr const char* kName = "implicit_gemm";
  static constexpr const Costs& kCosts = costs::kImplicitGemm;
  int rows;  // tiles of 16 channels per block. In f32: positions per thread

  static std::optional<ImplicitGemmPlan> make(const Problem& p, const Device& device) {
    if (item_of(p) == 8 || !positions_in_32_bits(p) ||
        p.from.channels > most_gemm_channels(is_half(p))) {
      return {};
    }
    return is_half(p) ? make_matrices(p, device) : make_lanes(p, device);
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double blocks = launch.blocks, threads = launch.threads;
    const double mean = static_cast<double>(args.all_tiles) / args.tile_blocks.divisor;
    const double block_tiles = std::ceil(mean), sms = device.sms;
    if (!is_half(p)) {
      const double macs = static_cast<double>(args.products) * rows * kGemmLaneChannels;
      const double taps = args.products * args.channel_warps.divisor * kGemmLaneChannels;
      // Terms: multiply-adds per SM, inputs, taps, tiles per block, multiply-adds per thread.
      return {blocks * mean * macs * threads / sms / 1e5,
              blocks * mean * args.phases.row_values.divisor * args.in_channels / sms / 1e4,
              taps * blocks / sms / 1e4, block_tiles, block_tiles * macs / 1e3};
    }
    const auto steps = static_cast<double>(ceil_div<int64_t>(macs_per_output(p), 16));
    // Terms: inputs read by index, outputs, taps, tiles per block, mma per block and output tile.
    return {blocks * mean * steps * threads / sms / 2048,
            blocks * mean * rows * 16 * threads / sms / 1e4,
            rows * 16 * steps * 16 * blocks / sms / 1e4, block_tiles, block_tiles * steps};
  }

 private:
  static std::optional<ImplicitGemmPlan> make_matrices(const Problem& p, const Device& device) {
    constexpr int64_t kValues = kAccessBytes / 2;
    const int64_t all_rows = ceil_div<int64_t>(p.to.channels, 16);  // in tiles of 16 channels
    const int64_t steps = ceil_div<int64_t>(macs_per_output(p), 16);
    const int64_t step = has_unit_stride(p) ? 1 : p.stride;
    const bool to_rows = p.to.stride == 1 || p.to.size == 1;
    const int64_t most_shared = std::min<int64_t>(device.shared_bytes, kMostSharedBytes);
    struct Shape {
      int64_t threads, positions, parts, rows, row_tiles, row_vecs, made_vecs, bytes;
    };
    const auto shape_of = [&](int64_t warps, int64_t rows) {
      Shape shape;
      shape.threads = 32 * warps;
      shape.positions = warps * kGemmPositions;
      shape.parts = ceil_div(all_rows, rows);
      shape.rows = ceil_div(all_rows, shape.parts);
      shape.row_tiles = ceil_div(p.to.size, shape.positions);
      shape.row_vecs = ceil_div((shape.positions - 1) * step + span_of(p) + kValues, kValues);
      shape.made_vecs = shape.positions / kValues + 1;
      const int64_t channels = 16 * shape.rows;
      const int64_t inputs = p.from.channels * shape.row_vecs * kAccessBytes + 32 * steps;
      const int64_t made = to_rows ? channels * shape.made_vecs * kAccessBytes
                                   : shape.positions * (2 * channels + kAccessBytes);
      shape.bytes = channels * (32 * steps + kAccessBytes) + std::max(inputs, made);
      return shape;
    };
    // Blocks shrink for short rows, for launches with few blocks, and to fit into shared memory
    // ((46,126,303) to 5565, 21 groups, 7 taps, stride 5: 161 us with 8 warps, 67 us with 2).
    int64_t warps = kThreads / 32, rows = std::min<int64_t>(kGemmRows, all_rows);
    while (warps > 2 && 2 * p.to.size <= warps * kGemmPositions) warps /= 2;
    const auto blocks = [&] {
      return p.batch * p.groups * ceil_div(all_rows, rows) *
             ceil_div(p.to.size, warps * kGemmPositions);
    };
    while (rows > 1 && blocks() < device.sms) --rows;
    while (warps > 2 && 2 * blocks() < device.sms * (warps > 4 ? 2 : 3)) warps /= 2;
    while (warps > 2 && shape_of(warps, rows).bytes > most_shared) warps /= 2;
    while (rows > 1 && shape_of(warps, rows).bytes > most_shared) --rows;
    const Shape shape = shape_of(warps, rows);
    if (shape.bytes > most_shared) return {};
    // A block keeps the taps of some channels of a group and loops over tiles of all examples.
    const int64_t all_tiles = p.batch * shape.row_tiles;
    if (all_tiles >= kFar) return {};
    const int64_t parts = p.groups * shape.parts;
    const int64_t resident =
        std::min<int64_t>(gemm_blocks(static_cast<int>(shape.rows)) * (kThreads / shape.threads),
                          std::max<int64_t>(device.shared_bytes / (shape.bytes + 1024), 1));
    const int64_t tile_blocks = tile_blocks_of(all_tiles, parts, resident, device);
    // In small launches, extra warps help to copy ((8,16,66) to 104, 41 taps: 4.5 us instead of
    // 11.3).
    int threads = static_cast<int>(shape.threads);
    while (threads < kThreads && parts * tile_blocks * threads < int64_t{device.sms} * kThreads) {
      threads *= 2;
    }

    ImplicitGemmPlan plan;
    plan.launch = launch_shape(parts * tile_blocks, threads, shape.bytes);
    plan.rows = static_cast<int>(shape.rows);
    ImplicitGemmArgs& args = plan.args;
    args = implicit_gemm_args(p, shape.row_tiles, shape.parts, tile_blocks);
    args.positions = static_cast<int32_t>(shape.positions);
    args.tap_values = tap_values_of(p);
    args.row_vecs = divide_by(shape.row_vecs);
    args.made_vecs = divide_by(shape.made_vecs);
    args.row_taps = divide_by(16 * steps);
    return plan;
  }
  static std::optional<ImplicitGemmPlan> make_lanes(const Problem& p, const Device& device) {
    constexpr int64_t kWarps = kThreads / 32, kResident = 2;
    const int64_t products = macs_per_output(p);
    // Warps side by side share inputs. The other warps of a block have other positions.
    const int64_t channel_tiles = ceil_div<int64_t>(p.to.channels, kGemmLaneChannels);
    int64_t channel_warps = std::min(kWarps, pow2_ceil(channel_tiles));
    int64_t warps = kWarps, lane_parts = kGemmLaneParts;
    const auto positions = [&] { return warps / channel_warps * 32 * lane_parts; };
    const auto blocks = [&] {
      return p.batch * p.groups * ceil_div(channel_tiles, channel_warps) *
             ceil_div(p.to.size, positions());
    };
    const auto bytes = [&] {
      return 4 * products * (channel_warps * kGemmLaneChannels + 5) +
             bytes_of_phases(p, positions());
    };
    // Threads and blocks shrink for short rows, for launches with few blocks, and to fit into
    // shared memory.
    const int64_t most_shared = std::min<int64_t>(device.shared_bytes, kMostSharedBytes);
    while (warps > std::max<int64_t>(channel_warps, 2) && 2 * p.to.size <= positions()) warps /= 2;
    while (lane_parts > 2 && (2 * p.to.size <= positions() || 2 * blocks() < device.sms)) {
      lane_parts /= 2;
    }
    while (warps > 2 && 2 * blocks() < device.sms) {
      warps /= 2;
      channel_warps = std::min(channel_warps, warps);
    }
    while (lane_parts > 2 && bytes() > most_shared) lane_parts /= 2;
    while (warps > channel_warps && bytes() > most_shared) warps /= 2;
    const int64_t row_tiles = ceil_div(p.to.size, positions()), all_tiles = p.batch * row_tiles;
    if (bytes() > most_shared || all_tiles >= kFar) return {};
    const int64_t parts = ceil_div(channel_tiles, channel_warps);
    const int64_t resident =
        std::min<int64_t>(kResident * (kWarps / warps), device.shared_bytes / (bytes() + 1024));
    const int64_t tile_blocks =
        tile_blocks_of(all_tiles, p.groups * parts, std::max<int64_t>(resident, 1), device);
    ImplicitGemmPlan plan;
    plan.launch =
        launch_shape(p.groups * parts * tile_blocks, static_cast<int>(32 * warps), bytes());
    plan.rows = static_cast<int>(lane_parts);
    ImplicitGemmArgs& args = plan.args;
    args = implicit_gemm_args(p, row_tiles, parts, tile_blocks);
    args.positions = static_cast<int32_t>(positions());
    args.row_taps = divide_by(products);
    args.phases = phased_rows(p, positions());
    args.channel_warps = divide_by(channel_warps);
    return plan;
  }
};

}  // namespace gpuopt::conv1d
