// Plan -> kernel instantiation -> launch, of input gradients of other steps than 1 of one dtype.
#pragma once

#include "conv1d/conv1d_gather.cuh"
#include "conv1d/conv1d_launch.cuh"
#include "conv1d/conv1d_launch_fan_gradients.cuh"

namespace gpuopt::conv1d {

template <typename T>
cudaError_t launch_gather_chunks(const Problem& p, const Plan& plan, cudaStream_t stream) {
  GatherArgs args;
  args.base = chunk_args(p, plan);
  args.step = div_by(p.step);
  args.width = div_by(plan.row_width);
  args.lead_steps = static_cast<int32_t>(lead_steps(p));
  const int64_t cycle = detail::tap_cycle_of(p);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.tap_cycle = static_cast<int32_t>(cycle);
  args.place_step = static_cast<int32_t>(p.dilation / std::gcd(p.step, p.dilation));
  args.first_taps = static_cast<int32_t>(std::min(p.taps, cycle));
  args.rows = static_cast<int32_t>(32 / plan.row_width);
  const bool one = p.from.channels == 1 && p.taps <= cycle;
  return launch_kernel(one ? gather_chunks_kernel<T, true> : gather_chunks_kernel<T, false>,
                       shape_of(plan), stream, args);
}

// That times `value` is 1 modulo `modulus`; the two have no common divisor.
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

// `problem` is the forward problem whose input is written.
template <typename T>
cudaError_t launch_gather(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  const Problem p = detail::exchanged(problem);
  if constexpr (sizeof(T) < 8) {
    if (plan.path == Path::kFanGradients) return launch_fan_input<T>(problem, plan, stream);
  }
  if (plan.path == Path::kChunks) return launch_gather_chunks<T>(p, plan, stream);
  GatherValuesArgs args;
  args.base = values_args(p, plan);
  const int64_t common = std::gcd(p.step, p.dilation);
  args.tap_cycle = p.step / common;
  args.first_taps = std::min(p.taps, args.tap_cycle);
  args.place_step = p.dilation / common;
  args.dilation_steps = p.dilation / p.step;
  args.dilation_rest = p.dilation % p.step;
  // A product of two numbers below the cycle takes 31 bits.
  const bool narrow = detail::steps_in_32_bits(problem) && args.tap_cycle <= 1 << 15;
  if (narrow) {
    args.step = div_by(p.step);
    args.common = div_by(common);
    args.cycle = div_by(args.tap_cycle);
    args.inverse = static_cast<uint32_t>(inverse_of(args.place_step, args.tap_cycle));
    args.lead_steps = static_cast<int32_t>(lead_steps(p));
  }
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if (plan.channels == 4) {
    return narrow ? start(gather_kernel<T, kChannels<T>, 4, int32_t>)
                  : start(gather_kernel<T, kChannels<T>, 4, int64_t>);
  }
  if (plan.places == 1) {
    return narrow ? start(gather_kernel<T, 1, 1, int32_t>) : start(gather_kernel<T, 1, 1, int64_t>);
  }
  return narrow ? start(gather_kernel<T, 1, 4, int32_t>) : start(gather_kernel<T, 1, 4, int64_t>);
}

}  // namespace gpuopt::conv1d
