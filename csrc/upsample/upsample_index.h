// Maps output pixels to the input pixels that they copy, and input pixels to their copies. The
// first mapping is ATen's arithmetic bit for bit (nearest_neighbor_compute_source_index and
// nearest_neighbor_exact_compute_source_index in aten/src/ATen/native/cuda/UpSample.cuh).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/describe.h"
#include "common/index.h"

namespace gpuopt::upsample {

// The geometry of one direction, height or width.
struct Axis {
  int32_t in = 1;         // input pixels, at least 1
  int32_t out = 1;        // output pixels, at least 1
  float step = 1;         // input pixels per output pixel
  float center = 0;       // added to an output index: 0.5 in nearest-exact, else 0
  float outs_per_in = 1;  // about 1 / step
  int32_t factor = 0;     // if not 0, output pixel o is a copy of input pixel o / factor

  GPUOPT_DESCRIBE(in, out, step, center, outs_per_in, factor)
};

// Axes with fewer pixels are short: float32 represents their indices and half indices exactly, and
// floor_below_2_23() applies.
constexpr int64_t kShortAxis = 1 << 22;

GPUOPT_HOST_DEVICE int32_t floor_to_int(float x) {
#if defined(__CUDA_ARCH__)
  return __float2int_rd(x);
#else
  return x < 2147483648.0f ? static_cast<int32_t>(std::floor(x)) : INT32_MAX;
#endif
}

// Returns floor(x) for 0 <= x < 2^23. A conversion runs at a quarter of the rate of an addition
// (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions"). Instead, 2^23 + x
// is rounded down, which leaves floor(x) in the low bits.
GPUOPT_HOST_DEVICE int32_t floor_below_2_23(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_int(__fadd_rd(x, 8388608.0f)) - 0x4b000000;
#else
  return static_cast<int32_t>(std::floor(x));
#endif
}

GPUOPT_HOST_DEVICE int32_t source_of(const Axis& axis, int32_t out) {
  if (axis.factor == 1) return out;
  const int32_t source = floor_to_int((static_cast<float>(out) + axis.center) * axis.step);
  return source < axis.in - 1 ? source : axis.in - 1;
}

// Returns the source on a short axis. `center` is the output index plus axis.center.
GPUOPT_HOST_DEVICE int32_t source_at(const Axis& axis, float center) {
  return floor_below_2_23(fminf(center * axis.step, static_cast<float>(axis.in - 1)));
}

// Returns the first output pixel whose source is `in` or later, for `in` from 0 to axis.in. The
// copies of input pixel i are [first_copy_of(i), first_copy_of(i + 1)). This range may be empty.
GPUOPT_HOST_DEVICE int32_t first_copy_of(const Axis& axis, int32_t in) {
  if (axis.factor != 0) return in * axis.factor;
  if (in >= axis.in) return axis.out;
  const float source = static_cast<float>(in), out_size = static_cast<float>(axis.out);
  const float estimate = source * axis.outs_per_in - axis.center;
  const float clamped = fmaxf(fminf(estimate, out_size), 0.0f);
  if (axis.out < kShortAxis && axis.in < kShortAxis) {
    // floor(product) >= in means product >= in, so no floor is needed. The estimate has the error
    // of a few roundings of numbers below 2^22, which is less than 1.
    const int32_t floor = floor_below_2_23(clamped);
    const float out = static_cast<float>(floor);
    const auto reaches = [&](float o) { return (o + axis.center) * axis.step >= source; };
    const int32_t before = floor > 0 && reaches(out - 1) ? -1 : 0;
    const int32_t after = reaches(out) ? 0 : reaches(out + 1) ? 1 : 2;
    const int32_t first = floor + (before < 0 ? before : after);
    return first < axis.out ? first : axis.out;
  }
  int32_t out = floor_to_int(clamped);
  out = out < axis.out ? out : axis.out;
  while (out > 0 && source_of(axis, out - 1) >= in) --out;
  while (out < axis.out && source_of(axis, out) < in) ++out;
  return out;
}

// `step` is ATen's compute_scales_value<float>, from the sizes or from a scale factor.
inline Axis make_axis(int64_t in, int64_t out, float step, bool exact) {
  Axis axis;
  axis.in = static_cast<int32_t>(in);
  axis.out = static_cast<int32_t>(out);
  // A scale factor near 0 makes a step of up to infinity. All steps from 4 `in` on give the same
  // sources: output pixel 0 of `nearest` has source 0, every other pixel has the last one.
  axis.step = std::min(step, 4.0f * static_cast<float>(in));
  axis.center = exact ? 0.5f : 0.0f;
  if (in == out) {  // whatever the scale factor, as in ATen
    axis.step = 1;
    axis.factor = 1;
    return axis;
  }
  axis.outs_per_in = std::min(1.0f / axis.step, static_cast<float>(out));
  // Why the source is exactly o / f: the step is 1 / f with a relative error of at most 2^-24, and
  // the product (o + center) step is rounded once more. So the product is (o + center) / f with a
  // relative error of at most 2^-23.
  // It must not reach the next integer. That is at least 0.5 / f away, more than the error while
  // out < 2^21.
  // It must not fall below the integer floor(o / f). With center 0.5 the product exceeds that
  // integer by at least 0.5 / f. With center 0 and step >= 1 / f the rounded product is no less
  // than that integer.
  const int64_t factor = out / in;
  const double f = static_cast<double>(factor);
  if (factor * in == out && out < (1 << 21) && axis.step == static_cast<float>(1.0 / f) &&
      (exact || static_cast<double>(axis.step) * f >= 1.0)) {
    axis.factor = static_cast<int32_t>(factor);
  }
  return axis;
}

}  // namespace gpuopt::upsample
