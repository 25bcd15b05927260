// Input gradients of strides other than 1: a thread has a tap and the positions that meet it.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int kStridedGradientPositions = 4;  // per thread at once

// `from` is the gradient, `to` the input's gradient.
struct StridedGradientArgs : ChunkArgs {
  int32_t lead_steps;  // strides that make positions before a row non-negative
  FastDiv step_div, width;
  int32_t tap_cycle, position_step;
  // A warp computes `width` of the first taps side by side, with `rows` positions each.
  int32_t first_taps, rows;

  // The first multiple of the stride from `position` on, divided by the stride.
  GPUOPT_HOST_DEVICE int32_t steps_to(int32_t position) const {
    const auto size = static_cast<int32_t>(step_div.divisor);
    return static_cast<int32_t>(
               step_div.div(static_cast<uint32_t>(position + (lead_steps + 1) * size - 1))) -
           lead_steps;
  }
};

// How many taps a warp computes side by side, so that few threads are idle.
inline int64_t taps_side_by_side(const Problem& p, int64_t first_taps, int64_t outputs) {
  const int64_t positions = ceil_div(outputs, p.stride);
  const auto iterations_of = [&](int64_t width) {
    // Finding a tap's first position costs half as much as kStridedGradientPositions positions.
    const int64_t iterations = ceil_div(positions, 32 / width * kStridedGradientPositions);
    return ceil_div(first_taps, width) * (2 * iterations + 1);
  };
  int64_t best = 1;
  for (int64_t width = 2; width <= std::min<int64_t>(first_taps, 32); ++width) {
    if (iterations_of(width) <= iterations_of(best)) best = width;
  }
  return best;
}

struct StridedGradientPlan : PathPlan<StridedGradientArgs> {
  static constexpr const char* kName = "strided_gradient";
  static constexpr const Costs& kCosts = costs::kStridedGradient;
  bool one_tap;  // each position meets at most one tap of one channel

  static std::optional<StridedGradientPlan> make(const Problem& forward, const Device& device) {
    if (!has_contiguous_rows(forward) || !strides_in_32_bits(forward) || has_unit_stride(forward) ||
        forward.stride > 256) {
      return {};
    }
    const Problem p = exchanged(forward);
    const int64_t item = item_of(p), values = kAccessBytes / item, outputs = 32 * values;
    const int64_t taps_pitch = whole_taps(p);
    const auto vecs_of = [&](int64_t tiles) {
      return ((tiles * outputs - 1 + span_of(p)) / p.stride + values - 1) / values + 1;
    };
    const auto chunks =
        fit_chunks(p, device, tiles_of_row(p, outputs, kSectorBytes), /*most=*/8, taps_pitch,
                   taps_pitch * compute_bytes(p), vecs_of, outputs * item);
    if (!chunks) return {};
    const int64_t cycle = tap_cycle_of(p), first_taps = std::min(p.taps, cycle);
    const int64_t width = taps_side_by_side(p, first_taps, chunks->args.warp_tiles * outputs);
    StridedGradientPlan plan;
    plan.launch = chunks->launch;
    plan.one_tap = p.from.channels == 1 && p.taps <= cycle;
    StridedGradientArgs& args = plan.args;
    args = {chunks->args};
    args.step_div = divide_by(p.stride);
    args.width = divide_by(width);
    args.lead_steps = lead_steps(p);
    args.tap_cycle = static_cast<int32_t>(cycle);
    args.position_step = static_cast<int32_t>(p.dilation / std::gcd(p.stride, p.dilation));
    args.first_taps = static_cast<int32_t>(first_taps);
    args.rows = static_cast<int32_t>(32 / width);
    return plan;
  }

  // Terms of the forward problem.
  Terms terms(const Problem& forward, const Device& device) const {
    const int64_t outputs = args.warp_tiles * 32 * (kAccessBytes / item_of(forward));
    const int64_t width = args.width.divisor;
    const int64_t iterations =
        ceil_div(ceil_div(outputs, forward.stride), 32 / width * kStridedGradientPositions);
    const auto in = static_cast<double>(forward.to.channels),
               taps = static_cast<double>(forward.taps);
    const auto first = static_cast<double>(ceil_div<int64_t>(args.first_taps, width));
    const double cycles = static_cast<double>(ceil_div<int64_t>(forward.taps, args.tap_cycle));
    const double more = 4 * in * first * static_cast<double>(iterations) * cycles;
    const double fill = fill_of(args, device);
    // Terms: channels per SM, first taps per thread, multiply-adds per SM, taps, multiply-adds.
    return {in * fill, in * first * static_cast<double>(2 * iterations + 1), more * fill, in * taps,
            more};
  }
};

}  // namespace gpuopt::conv1d
