// Whether the kernels here are no slower than cuDNN with its tensor cores, which gain with every
// product that an output has. The limits come from 1240 random problems (three seeded lists, not
// kept) of up to 8 input channels a group, forward and both gradients, f32 (TF32 in cuDNN) and
// bf16, beside ATen with cudnn.benchmark on an H200.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d {
namespace detail {

inline bool is_depthwise(const Problem& p) { return p.from.channels == 1 && p.to.channels <= 4; }

// Rows of few places leave a lane alone with all its products, one after the other. (Of half types
// ATen rounds sums of many taps more than once.)
inline bool has_short_rows(const Problem& p, int64_t places) {
  return is_depthwise(p) ? item_of(p) > 2 && places < 128 && p.taps >= 32 : places < 32;
}

// Up to which depthwise problems value by value pay.
inline int64_t most_value_taps(const Problem& p) { return p.dilation < 4 ? 16 : 11; }

// A window for each of many taps, of rows that are short or of so few outputs that latency decides:
// depthwise with 15 taps, dilation 4, f32 / f16, rows' speed over ATen's 0.41 / 0.66 for
// (1,5000,12), 0.74 / 0.66 for (1,1500,48), 0.77 / 0.95 for (1,400,220), 1.05 / 1.01 for
// (1,5000,48), 1.54 / 1.33 for (1,100,48); with 25 taps, dilation 14, f32 0.69 for (2,665,229).
inline bool has_far_taps(const Problem& p, int64_t places) {
  const int64_t outputs = p.batch * p.groups * p.to.channels * places;
  return is_depthwise(p) && p.dilation >= 4 && p.taps > most_value_taps(p) &&
         (places < 32 || (item_of(p) > 2 && p.taps >= 20) ||
          (outputs >= 16 << 10 && outputs < 160 << 10));
}

// f32 of 2 to 8 input and up to 4 output channels a group, 7 to 64 taps, in 400 random problems:
// 1.1 to 9 times ATen's (TF32) speed but where there are some 4 warps for each multiprocessor and
// cuDNN has few groups or a step of 4: (16,24,2048) to 4, 4 groups, 16 taps, dilation 2 0.77;
// (16,12,700) to 12, 4 groups, 16 taps, dilation 16 0.78; (4,192,2048) to 64, 64 groups, 16 taps,
// step 4 0.84. Half types of two channels; of more, or into more, products of matrices are faster:
// (16,8,20000) to 16 channels, 4 groups, 44 taps, step 3 41.6 and 28.6, to 8 25.1 and 26.9, to 4,
// 24 taps, step 2 21.2 and 26.7, (4,28,40000) to 4, 4 groups, 35 taps, step 3 73 and 27. Half types
// of one channel not where there are 6 warps for each multiprocessor or fewer: (1,100,8000) with 40
// taps, step 4 9.5, ATen 8.1, (2,30,10000) with 60, step 5 10.0 and 6.5, with 48, step 2 7.3 and
// 11.5; but step 8, (2,30,20000) with 60 12.1 and 13.3.
inline bool pays_polyphase(const Problem& p, const Plan& plan) {
  const int64_t outputs = outputs_of(p), products = p.from.channels * p.taps;
  if (item_of(p) == 2) {
    if (p.from.channels == 1) return outputs >= kHalfPhaseOutputs || plan.phases >= 8;
    return p.step <= 3 && outputs >= 128 << 10 && p.from.channels <= 2 && p.to.channels <= 2;
  }
  if (is_depthwise(p) || outputs < 64 << 10 || outputs >= 320 << 10) return true;
  if (p.step == 4) return p.taps >= 32 || (p.to.channels > 1 && p.groups > 4);
  return p.groups > 4 || products < 40 || products > 100;
}

inline bool pays_forward(const Problem& p, const Plan& plan) {
  const int64_t out = p.to.channels, places = p.to.size;
  const int64_t products = p.from.channels * p.taps;
  const bool half = item_of(p) == 2, depthwise = is_depthwise(p);
  switch (plan.path) {
    case Path::kChunks:
      // Steps of a power of 2 pick inputs from a few banks of shared memory, for every tap (f32, 44
      // taps, step 4, 168168 outputs: 19.2 us, ATen's 10.7; bf16, 51 taps, step 4, dilation 4,
      // (2,44,153729): 59 and 96).
      if (plan.polyphase) return pays_polyphase(p, plan);
      if (depthwise) {
        // (1,25,15968), 54 taps, step 3, dilation 4, f16: 0.92 of ATen's speed.
        if (half && plan.strided && p.dilation > 1 && p.taps >= 48) return false;
        return !plan.strided || (p.step < 8 && (half || p.step != 4)) || p.taps < 24;
      }
      if (plan.strided) return products <= 15;
      // Tensor cores multiply the places between dilated taps, too: (1,35,146032) to 133 channels,
      // 7 groups, 16 taps, dilation 16, f16 has 0.82 of ATen's speed.
      if (half && plan.dilated && out > 4 && p.from.channels * (p.taps - 1) * p.dilation > 1024) {
        return false;
      }
      return products <= (half ? 512 : 64);
    case Path::kRows:
      if (has_short_rows(p, places) || has_far_taps(p, places)) return false;
      return depthwise || products <= (half || (p.groups == 1 && out > 8) ? 16 : 64);
    case Path::kFan:
      if (depthwise) return true;
      // (62,3,3227) to 17 channels, one group, 4 taps, step 5, f32: 0.82 of ATen's speed.
      return half ? places >= 128
                  : products <= (p.groups == 1 && p.from.channels > 1 ? 10 : 14) && places >= 256 &&
                        p.batch * places >= 4096;
    case Path::kColumns:
      return has_unit_step(p) || p.taps <= 32;
    default:
      if (depthwise) return p.taps <= most_value_taps(p);
      return products <= 15 && places >= 128;
  }
}

inline bool pays_backward_input(const Problem& p, const Plan& plan) {
  if (plan.path == Path::kRows && has_short_rows(p, p.from.size)) return false;
  if (is_depthwise(p) || plan.polyphase) return true;
  const int64_t in = p.from.channels, out = p.to.channels, products = out * p.taps;
  const bool chunks = plan.path == Path::kChunks;
  if (!has_unit_step(p)) {
    return chunks ? out * ceil_div(p.taps, tap_cycle_of(p)) <= 16 : out <= 4 && products <= 20;
  }
  if (products >= 32 && p.batch * p.groups * in * p.from.size < 32 << 10) return false;
  const int64_t most = in == 1 ? 256 : chunks && item_of(p) == 2 ? 512 : 64;
  return (chunks || plan.path == Path::kRows) && out <= 32 && products <= most;
}

// Blocks of a weight gradient by value, each counted as often as it has places for its threads:
// some 4 ns each.
inline int64_t value_turns(const Problem& p, const Plan& plan) {
  return p.groups * plan.tiles * p.from.channels * plan.tap_parts *
         ceil_div<int64_t>(p.batch * p.to.size, kThreads);
}

// Whether gradients that go through the output channels are faster than `plan`, or a library if not
// `ours`. On an H100, us, plan and these (the weight's, (8,8,16384) to 16 channels a group; the
// input's, to 32 in 8192):
//   weight: of one input channel, 3 taps, bf16 29.9 and 33.4, f32 43.6 and 42.2; of two, 7 taps
//     19.9 and 14.0, 37.6 and 54.2; of four, 3 taps 18.8 and 9.7, 32.7 and 16.7; small ones,
//     (2,16,2000), 2.9 and 5.4; by value, 2752 turns 9.6 and 10.9, 9.6 and 9.0, 5504 17.9 and 12.8,
//     16.8 and 14.5; 360 turns 4.8 and 8.5, 4.5 and 5.0;
//   input: of one input channel, 15 taps 59.8 and 42.7, 93.4 and 54.5, of two 55.6 and 40.5, of
//     four 45.5 and 59.9; of 16 output channels 38.5 and 47.4, of two and 3 taps 29.6 and 17.1;
//   few values: (2,4,2000) to 128 channels, 4 groups, 7 taps, 7.7 and 5.4, 10.7 and 5.3; to 64, 3.6
//     and 4.5.
// More products than a library's tensor cores gain with in f32: (1,215,1952) to 12341 channels, 43
// groups, 27 taps 2079, ATen 1704.
inline bool has_fan_products(const Problem& p) {
  return item_of(p) == 2 || p.from.channels * p.taps <= 100;
}

inline bool prefers_fan_weight(const Problem& p, const Plan& plan, bool ours,
                               const Tuning& tuning) {
  const int64_t in = p.from.channels, out = p.to.channels, products = in * p.taps;
  if (out >= tuning.fan_gradient_first) return true;
  if (!ours) return has_fan_products(p);
  if (plan.path == Path::kValues) return value_turns(p, plan) > 3072;
  if (plan.path != Path::kChunks || outputs_of(p) < 1 << 20) return false;
  return item_of(p) == 2
             ? (in > 2 && products <= 28 && out >= 8) || (in == 2 && products <= 16 && out >= 16)
             : in > 2 && products <= 12 && out >= 8;
}

inline bool prefers_fan_input(const Problem& p, const Plan& plan, bool ours, const Tuning& tuning) {
  const int64_t in = p.from.channels, out = p.to.channels;
  if (out >= tuning.fan_gradient_first) return true;
  if (plan.few_values) return out * p.taps > 160 && out >= 8;
  if (!ours) return has_fan_products(p);
  return has_unit_step(p) && out >= (in == 1 ? 32 : 16) && in * p.taps <= 16 &&
         outputs_of(p) >= 1 << 20;
}

// Products of matrices that gather are 1.02 to 15 times as fast as a library where no other kernel
// was faster than that (59 problems on an H100; median 3.3), but where their 16 rows are nearly
// empty: depthwise (1,3863,130) with 49 taps, step 4, bf16 16.1 us, ATen 9.9.
inline bool pays_gemm(const Problem& p) { return p.from.channels > 1 || p.to.channels > 2; }

// Whether these are faster than the fan: where it has few blocks, or where so few of its channels
// are aligned alike that it writes half sectors or its tiles of 16 are nearly empty. README.md has
// the measurements.
inline bool prefers_gemm_to_fan(const Problem& p, const Plan& fan) {
  const int64_t alike = ceil_div<int64_t>(p.to.channels, fan.cycle);
  const int64_t made = fan.cycle * ceil_div<int64_t>(alike, 16) * 16;
  return p.from.channels * p.taps >= 10 &&
         (outputs_of(p) < 3 << 19 || fan.aligned * item_of(p) < kSectorBytes ||
          10 * p.to.channels < 7 * made);
}

// Whether they are faster than chunks of tensor cores. The sums are hundredths of microseconds that
// (4,4 in,20000) to 4 out channels, 4 groups, take on an H100, fitted to 18 of up to 8 input and 64
// output channels, 5 to 64 taps and dilations up to 16: 5 to 73 us, all but one within 15 %.
inline bool prefers_gemm_to_chunks(const Problem& p) {
  const int64_t in = p.from.channels, out = p.to.channels, tiles = ceil_div<int64_t>(out, 16);
  const int64_t chunk_steps = ceil_div<int64_t>((p.taps - 1) * p.dilation + 14, 16);
  const int64_t steps = ceil_div<int64_t>(in * p.taps, 16);
  return in * (8 * out * chunk_steps + 10 * out + 120) >
         1200 + 600 * tiles + 25 * steps * (3 + 2 * tiles);
}

// Whether they are faster than `plan`, which is faster than a library.
inline bool prefers_gemm(const Problem& p, const Plan& plan) {
  if (plan.path == Path::kFan) return prefers_gemm_to_fan(p, plan);
  const bool other = plan.direct || plan.few_taps || plan.strided || plan.polyphase;
  return plan.path == Path::kChunks && !other && prefers_gemm_to_chunks(p);
}

inline bool pays_backward_weight(const Problem& p, const Plan& plan) {
  const int64_t in = p.from.channels, out = p.to.channels;
  if (is_depthwise(p) || plan.path == Path::kChunks) return in * out <= 512;
  if (plan.path == Path::kColumns) return in * out <= 8 && p.taps <= 4;
  if (plan.path == Path::kValues && value_turns(p, plan) <= 512) return true;
  return in * out <= 16 || (in == 1 && out <= 64);
}

}  // namespace detail

inline bool pays(const Problem& p, Pass pass, const Plan& plan) {
  if (p.dtype == DType::kFloat64 || plan.few_values) return true;
  if (plan.path == Path::kFanGradients || plan.path == Path::kGemm) return true;
  switch (pass) {
    case Pass::kForward:
      return detail::pays_forward(p, plan);
    case Pass::kBackwardInput:
      return detail::pays_backward_input(p, plan);
    default:
      return detail::pays_backward_weight(p, plan);
  }
}

}  // namespace gpuopt::conv1d
