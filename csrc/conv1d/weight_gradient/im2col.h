// Weight gradients of many output channels by im2col: gradient times columns of inputs.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/input_gradient/col2im.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kIm2colReach = 1 << 29;  // bound on positions and offsets of an input
// Blocks per SM, limited by registers.
constexpr int im2col_blocks(bool matrices) { return matrices ? 2 : 3; }
// Groups of 16 positions that a warp has in flight. A warp has 16 * `rows` channels.
constexpr int im2col_steps(int rows) { return rows == 1 ? 4 : 1; }
template <int kRows>
constexpr int kIm2colSteps = im2col_steps(kRows);

struct Im2colArgs {
  // tap_parts splits the products. out_parts splits the channels that are aligned alike.
  WeightArgs base;
  uint32_t products;
  uint32_t units;  // quads of all rows of a channel; in f32, values
  FastDiv row_units, cycle, taps;
};

struct Im2colPlan {
  static constexpr const char* kName = "im2col";
  static constexpr const Costs& kCosts = costs::kIm2col;
  LaunchShape launch;
  Im2colArgs args;
  int channels, products;  // per block
  bool shifts;             // fp16 and bf16 channels of any alignment

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<Im2colPlan> make(const Problem& p, const Device& device) {
    const int64_t item = item_of(p), products = macs_per_output(p);
    if (item == 8 || p.from.channels > 8 || !has_contiguous_rows(p) || !strides_in_32_bits(p) ||
        p.to.size * p.stride >= kIm2colReach || p.stride >= kIm2colReach / 4 ||
        p.from.channels * std::abs(p.from.channel_stride) >= kIm2colReach) {
      return {};
    }
    Im2colPlan plan;
    plan.shifts = false;
    int threads = kChunkThreads;
    int64_t row_units = p.to.size, warp_units = 32, cycle = 1;
    const bool matrices = item == 2;
    if (matrices) {
      cycle = gradient_cycle(p);
      // If few channels are aligned alike, blocks take channels of any alignment and shift them.
      plan.shifts = cycle > 1 && p.to.channels < 16 * cycle;
      if (plan.shifts) cycle = 1;
      const bool whole = plan.shifts || has_aligned_rows(p, p.to, kGradientQuad);
      row_units = ceil_div<int64_t>(p.to.size + (whole ? 0 : kGradientQuad - 1), kGradientQuad);
      plan.products = products <= 16 ? 16 : 32;
      plan.channels = ceil_div(p.to.channels, cycle) <= 16 ? 16 : 64;
      threads = kThreads;
      warp_units = 4 * im2col_steps(plan.channels / 16);
    } else {
      plan.products = products <= 4 ? 4 : products <= 8 ? 8 : 12;
      plan.channels = products <= 4 ? 16 : 8;
    }
    const int64_t units = p.batch * row_units;
    if (units >= kIm2colReach) return {};
    const int64_t tap_parts = ceil_div<int64_t>(products, plan.products);
    const int64_t tiles = ceil_div<int64_t>(ceil_div(p.to.channels, cycle), plan.channels);
    const int64_t blocks = p.groups * cycle * tiles * tap_parts;
    const int64_t resident = int64_t{device.sms} * im2col_blocks(matrices);
    const int64_t splits = splits_of(resident, blocks, units / (threads / 32 * warp_units));
    if (!fits_grid(blocks * splits)) return {};
    plan.launch = launch_shape(blocks * splits, threads);
    plan.args.base = weight_args(p, splits, tap_parts, tiles);
    plan.args.products = static_cast<uint32_t>(products);
    plan.args.units = static_cast<uint32_t>(units);
    plan.args.row_units = divide_by(row_units);
    plan.args.cycle = divide_by(cycle);
    plan.args.taps = divide_by(p.taps);
    return plan;
  }
};

inline Terms Im2colPlan::terms(const Problem& p, const Device& device) const {
  const bool matrices = is_half(p);
  const int unit = matrices ? 4 * im2col_steps(channels / 16) : 32;
  const double units = std::ceil(
      args.units / (static_cast<double>(args.base.splits.divisor) * (launch.threads / 32) * unit));
  const double per_sm = blocks_per_sm(launch, device);
  const double own = products * channels / 100.0;
  const double waves = waves_of(launch, device, im2col_blocks(matrices));
  // Terms: second launch, sums per SM, loads by index, units in waves, multiply-adds in waves.
  return {args.base.partial ? 1.0 : 0.0, own * per_sm, units * products * per_sm, units * waves,
          units * own * waves};
}

}  // namespace gpuopt::conv1d
