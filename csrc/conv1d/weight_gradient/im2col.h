// Weight gradients of many output channels by im2col: gradient times columns of inputs.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/input_gradient/col2im.h"
#include "conv1d/phases.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kIm2colReach = 1 << 29;  // bound on positions and offsets of an input
// Blocks per SM, limited by registers.
constexpr int im2col_blocks(bool matrices) { return matrices ? 2 : 3; }
// Groups of 16 positions that a warp has in flight. A warp has 16 * `rows` channels.
constexpr int im2col_steps(int rows) { return rows == 1 ? 4 : 1; }
template <int kRows>
constexpr int kIm2colSteps = im2col_steps(kRows);

// tap_parts splits the products. out_parts splits the channels that are aligned alike.
struct Im2colArgs : WeightArgs {
  uint32_t products;
  uint32_t units;  // quads of all rows of a channel; in f32, tiles
  FastDiv row_units, cycle, taps_div;
  // Only in f32. A tile has tile_positions positions of tile_images rows.
  PhasedRows phases;
  FastDiv tile_positions;
  FastDiv product_warps;  // warps of a block with different products and the same channels
  uint32_t tile_images;
};

struct Im2colPlan : PathPlan<Im2colArgs> {
  static constexpr const char* kName = "im2col";
  static constexpr const Costs& kCosts = costs::kIm2col;
  int channels, products;  // per block; in f32, per warp
  bool shifts;             // fp16 and bf16 channels of any alignment

  static std::optional<Im2colPlan> make(const Problem& p, const Device& device) {
    const int64_t reach = p.to.size * p.stride;
    if (item_of(p) == 8 || p.from.channels > 8 || !strides_in_32_bits(p) || reach >= kIm2colReach ||
        p.stride >= kIm2colReach / 4 ||
        !in_32_bits(std::max(reach, span_of(p) + std::abs(p.padding)), p.from.stride) ||
        !in_32_bits(p.from.channels, p.from.channel_stride)) {
      return {};
    }
    return is_half(p) ? make_matrices(p, device) : make_lanes(p, device);
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double per_sm = blocks_per_sm(launch, device), sums = products * channels / 100.0;
    const double splits = args.splits.divisor, second_launch = args.partial ? 1.0 : 0.0;
    if (!is_half(p)) {
      const double tile = std::ceil(args.tile_images * args.tile_positions.divisor / 32.0);
      const double tiles = std::ceil(args.units / splits), warps = launch.threads / 32;
      const double values = static_cast<double>(args.phases.row_values.divisor) * args.tile_images *
                            static_cast<double>(p.from.channels);
      const double waves = waves_of(launch, device, static_cast<int>(12 / warps));
      // Terms: second launch, sums per SM, inputs per SM, tiles in waves, multiply-adds in waves.
      return {second_launch, sums * warps / 4 * per_sm, tiles * values * per_sm / 1e3,
              tiles * waves, tiles * tile * sums * waves};
    }
    const int iteration_quads = 4 * im2col_steps(channels / 16);
    const double iterations =
        std::ceil(args.units / (splits * (launch.threads / 32) * iteration_quads));
    const double waves = waves_of(launch, device, im2col_blocks(true));
    // Terms: second launch, sums per SM, loads by index, iterations in waves, multiply-adds in
    // waves.
    return {second_launch, sums * per_sm, iterations * products * per_sm, iterations * waves,
            iterations * sums * waves};
  }

 private:
  static std::optional<Im2colPlan> make_matrices(const Problem& p, const Device& device) {
    const int64_t products = macs_per_output(p);
    Im2colPlan plan;
    // If few channels are aligned alike, blocks take channels of any alignment and shift them.
    int64_t cycle = gradient_cycle(p);
    plan.shifts = cycle > 1 && p.to.channels < 16 * cycle;
    if (plan.shifts) cycle = 1;
    const bool whole =
        plan.shifts || !has_gradient_rows(p) || has_aligned_rows(p, p.to, kGradientQuad);
    const int64_t row_units =
        ceil_div<int64_t>(p.to.size + (whole ? 0 : kGradientQuad - 1), kGradientQuad);
    plan.products = products <= 16 ? 16 : 32;
    plan.channels = ceil_div(p.to.channels, cycle) <= 16 ? 16 : 64;
    const int64_t units = p.batch * row_units;
    if (units >= kIm2colReach) return {};
    const int64_t tap_parts = ceil_div<int64_t>(products, plan.products);
    const int64_t tiles = ceil_div<int64_t>(ceil_div(p.to.channels, cycle), plan.channels);
    const int64_t blocks = p.groups * cycle * tiles * tap_parts;
    const int64_t block_units = kThreads / 32 * 4 * im2col_steps(plan.channels / 16);
    const int64_t splits =
        splits_of(int64_t{device.sms} * im2col_blocks(true), blocks, units / block_units);
    if (!fits_grid(blocks * splits)) return {};
    plan.launch = launch_shape(blocks * splits, kThreads);
    plan.args = {weight_args(p, splits, tap_parts, tiles)};
    plan.args.products = static_cast<uint32_t>(products);
    plan.args.units = static_cast<uint32_t>(units);
    plan.args.row_units = divide_by(row_units);
    plan.args.cycle = divide_by(cycle);
    plan.args.taps_div = divide_by(p.taps);
    return plan;
  }
  static std::optional<Im2colPlan> make_lanes(const Problem& p, const Device& device) {
    constexpr int64_t kWarps = kChunkThreads / 32, kMostBytes = 64 << 10;
    const int64_t products = macs_per_output(p);
    Im2colPlan plan;
    plan.shifts = false;
    plan.products = products <= 4 ? 4 : products <= 8 ? 8 : 12;
    plan.channels = products <= 4 ? 16 : 8;
    // The warps of a block read the same inputs.
    const int64_t product_parts = ceil_div<int64_t>(products, plan.products);
    const int64_t tap_parts = ceil_div(product_parts, kWarps);
    const int64_t product_warps = ceil_div(product_parts, tap_parts);
    const int64_t channel_parts = ceil_div<int64_t>(p.to.channels, plan.channels);
    const int64_t out_parts = ceil_div(channel_parts, kWarps / product_warps);
    const int64_t channel_warps = ceil_div(channel_parts, out_parts);
    const int64_t warps = product_warps * channel_warps, blocks = p.groups * out_parts * tap_parts;
    const int64_t resident = int64_t{device.sms} * im2col_blocks(false) * (kWarps / warps);
    struct Tile {
      int64_t positions, images, bytes, units;
    };
    const auto tile_of = [&](int64_t size) {
      Tile tile;
      tile.positions = std::min(size, p.to.size);
      tile.images = std::min(size / tile.positions, p.batch);
      tile.bytes = tile.images * bytes_of_phases(p, tile.positions);
      tile.units = ceil_div(p.batch, tile.images) * ceil_div(p.to.size, tile.positions);
      return tile;
    };
    Tile tile = tile_of(128);
    for (int64_t size = 64; size >= 32; size /= 2) {
      if (tile.bytes <= kMostBytes / 2 && 2 * blocks * tile.units >= resident) break;
      tile = tile_of(size);
    }
    if (tile.bytes > std::min<int64_t>(kMostBytes, device.shared_bytes) ||
        tile.units >= kIm2colReach) {
      return {};
    }
    const int64_t splits = splits_of(resident, blocks, tile.units);
    if (!fits_grid(blocks * splits)) return {};
    plan.launch = launch_shape(blocks * splits, static_cast<int>(32 * warps), tile.bytes);
    plan.args = {weight_args(p, splits, tap_parts, out_parts)};
    plan.args.step = phase_stride(p);
    plan.args.products = static_cast<uint32_t>(products);
    plan.args.units = static_cast<uint32_t>(tile.units);
    plan.args.row_units = divide_by(ceil_div(p.to.size, tile.positions));
    plan.args.cycle = divide_by(1);
    plan.args.taps_div = divide_by(p.taps);
    plan.args.tile_positions = divide_by(tile.positions);
    plan.args.phases = phased_rows(p, tile.positions);
    plan.args.product_warps = divide_by(product_warps);
    plan.args.tile_images = static_cast<uint32_t>(tile.images);
    return plan;
  }
};

}  // namespace gpuopt::conv1d
