// Input gradients of any strides and dilations: a thread finds the taps over its positions.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/forward/general.h"

namespace gpuopt::conv1d {

struct GeneralGradientArgs : GeneralArgs {
  // Taps k and k + tap_cycle meet the same positions of the input, at gradient positions that are
  // position_step apart.
  int64_t tap_cycle, position_step, first_taps;
  int64_t dilation_steps, dilation_rest;  // `dilation = dilation_steps * step + dilation_rest`
  // The members below are set only if 32 bits hold positions.
  FastDiv step_div, common, cycle;  // common is `gcd(step, dilation)`
  uint32_t inverse = 0;             // of `dilation / common` modulo `step / common`
  int32_t lead_steps = 0;           // strides that make positions before a row non-negative
};

// The inverse of `value` modulo `modulus`, which have no common divisor.
inline int64_t inverse_of(int64_t value, int64_t modulus) {
  int64_t a = modulus, b = value % modulus, x = 0, y = 1;
  while (b > 0) {
    const int64_t quotient = a / b;
    a -= quotient * b;
    x -= quotient * y;
    std::swap(a, b);
    std::swap(x, y);
  }
  return (x % modulus + modulus) % modulus;
}

struct GeneralGradientPlan : PathPlan<GeneralGradientArgs> {
  static constexpr const char* kName = "general_gradient";
  static constexpr const Costs& kCosts = costs::kGeneralGradient;
  int channels, positions;  // per thread
  bool narrow;              // 32 bits hold positions

  static std::optional<GeneralGradientPlan> make(const Problem& forward, const Device&) {
    const Problem p = exchanged(forward);
    // A thread with one channel has one position, so that it doesn't wait for another position's
    // taps.
    const auto base = GeneralPlan::make(p, /*one_position=*/true);
    if (!base) return {};
    GeneralGradientPlan plan;
    plan.launch = base->launch;
    plan.channels = base->channels;
    plan.positions = base->positions;
    GeneralGradientArgs& args = plan.args;
    args = {base->args};
    const int64_t common = std::gcd(p.stride, p.dilation);
    args.tap_cycle = p.stride / common;
    args.first_taps = std::min(p.taps, args.tap_cycle);
    args.position_step = p.dilation / common;
    args.dilation_steps = p.dilation / p.stride;
    args.dilation_rest = p.dilation % p.stride;
    // The product of two numbers below tap_cycle fits into 31 bits.
    plan.narrow = strides_in_32_bits(forward) && args.tap_cycle <= 1 << 15;
    if (plan.narrow) {
      args.step_div = divide_by(p.stride);
      args.common = divide_by(common);
      args.cycle = divide_by(args.tap_cycle);
      args.inverse = static_cast<uint32_t>(inverse_of(args.position_step, args.tap_cycle));
      args.lead_steps = lead_steps(p);
    }
    return plan;
  }

  // Terms of the forward problem.
  Terms terms(const Problem& forward, const Device& device) const {
    const double fill = fill_of(launch, device);
    const double loads = positions * static_cast<double>(ceil_div(forward.taps, args.tap_cycle)) *
                         static_cast<double>(forward.to.channels);
    // Terms: positions, loads per thread, loads per SM.
    return {positions * fill, loads, loads * fill};
  }
};

}  // namespace gpuopt::conv1d
