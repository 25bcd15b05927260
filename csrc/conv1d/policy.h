// Which path a convolution takes.
#pragma once

#include <string_view>

#include "conv1d/plan.h"

namespace gpuopt::conv1d {
namespace detail {

constexpr int64_t kOwnChannels = 8;     // input channels per group, up to which kernels compete
constexpr int64_t kChunkOutputs = 256;  // of a row, from which warps compute it in chunks
constexpr int64_t kHalfPhaseOutputs = 216 << 10;  // from which fp16 and bf16 are soon decomposed

template <typename Plan, typename Path>
bool is(const Path& path) {
  return std::holds_alternative<Plan>(path);
}

// Sets the path to this plan, if it supports the problem.
template <typename Plan, typename Path>
bool take(Path& path, const Problem& p, const Device& device) {
  auto plan = Plan::make(p, device);
  if (plan) path = *plan;
  return plan.has_value();
}

inline bool is_depthwise(const Problem& p) { return p.from.channels == 1 && p.to.channels <= 4; }

inline bool is_chunked(const ForwardPath& path) {
  return is<DirectPlan>(path) || is<ShortFilterPlan>(path) || is<ToeplitzPlan>(path) ||
         is<SlidingPlan>(path) || is<StridedPlan>(path) || is<PolyphasePlan>(path);
}

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
inline bool pays_polyphase(const Problem& p, const PolyphasePlan& plan) {
  const int64_t outputs = outputs_of(p), products = macs_per_output(p);
  if (is_half(p)) {
    if (p.from.channels == 1) return outputs >= kHalfPhaseOutputs || plan.args.phases.divisor >= 8;
    return p.stride <= 3 && outputs >= 128 << 10 && p.from.channels <= 2 && p.to.channels <= 2;
  }
  if (is_depthwise(p) || outputs < 64 << 10 || outputs >= 320 << 10) return true;
  if (p.stride == 4) return p.taps >= 32 || (p.to.channels > 1 && p.groups > 4);
  return p.groups > 4 || products < 40 || products > 100;
}

inline bool pays_forward(const Problem& p, const ForwardPath& path) {
  const int64_t out = p.to.channels, places = p.to.size, products = macs_per_output(p);
  const bool half = is_half(p), depthwise = is_depthwise(p);
  if (p.dtype == DType::kFloat64) return !is<AtenPlan>(path);
  if (const auto* polyphase = std::get_if<PolyphasePlan>(&path))
    return pays_polyphase(p, *polyphase);
  if (is_chunked(path)) {
    // Steps of a power of 2 pick inputs from a few banks of shared memory, for every tap (f32, 44
    // taps, step 4, 168168 outputs: 19.2 us, ATen's 10.7; bf16, 51 taps, step 4, dilation 4,
    // (2,44,153729): 59 and 96).
    const bool strided = is<StridedPlan>(path);
    if (depthwise) {
      // (1,25,15968), 54 taps, step 3, dilation 4, f16: 0.92 of ATen's speed.
      if (half && strided && p.dilation > 1 && p.taps >= 48) return false;
      return !strided || (p.stride < 8 && (half || p.stride != 4)) || p.taps < 24;
    }
    if (strided) return products <= 15;
    // Tensor cores multiply the places between dilated taps, too: (1,35,146032) to 133 channels,
    // 7 groups, 16 taps, dilation 16, f16 has 0.82 of ATen's speed.
    if (half && has_dilation(p) && out > 4 && p.from.channels * span_of(p) > 1024) return false;
    return products <= (half ? 512 : 64);
  }
  if (is<RowsPlan>(path)) {
    if (has_short_rows(p, places) || has_far_taps(p, places)) return false;
    return depthwise || products <= (half || (p.groups == 1 && out > 8) ? 16 : 64);
  }
  if (is<ExpandPlan>(path) || is<ExpandMmaPlan>(path)) {
    if (depthwise) return true;
    // (62,3,3227) to 17 channels, one group, 4 taps, step 5, f32: 0.82 of ATen's speed.
    return half ? places >= 128
                : products <= (p.groups == 1 && p.from.channels > 1 ? 10 : 14) && places >= 256 &&
                      p.batch * places >= 4096;
  }
  if (is<ChannelsLastPlan>(path)) return has_unit_stride(p) || p.taps <= 32;
  if (is<AtenPlan>(path)) return false;
  if (depthwise) return p.taps <= most_value_taps(p);
  return products <= 15 && places >= 128;
}

// Of an input gradient of stride 1, the forward problem `p` and the path of the transposed one.
inline bool pays_backward_input(const Problem& p, const ForwardPath& path) {
  if (is<AtenPlan>(path)) return false;
  if (p.dtype == DType::kFloat64) return true;
  if (is<RowsPlan>(path) && has_short_rows(p, p.from.size)) return false;
  if (is_depthwise(p) || is<PolyphasePlan>(path)) return true;
  const int64_t in = p.from.channels, out = p.to.channels, products = out * p.taps;
  if (products >= 32 && p.batch * p.groups * in * p.from.size < 32 << 10) return false;
  const bool chunks = is_chunked(path);
  const int64_t most = in == 1 ? 256 : chunks && is_half(p) ? 512 : 64;
  return (chunks || is<RowsPlan>(path)) && out <= 32 && products <= most;
}

// Of one of another stride.
inline bool pays_backward_input(const Problem& p, const InputGradientPath& path) {
  if (is<AtenPlan>(path)) return false;
  if (p.dtype == DType::kFloat64 || is_depthwise(p)) return true;
  const int64_t out = p.to.channels, products = out * p.taps;
  return is<StridedGradientPlan>(path) ? out * ceil_div(p.taps, tap_cycle_of(p)) <= 16
                                       : out <= 4 && products <= 20;
}

// Blocks of a weight gradient by value, each counted as often as it has places for its threads:
// some 4 ns each.
inline int64_t value_turns(const Problem& p, const WeightGeneralPlan& plan) {
  return p.groups * plan.args.out_parts.divisor * p.from.channels * plan.args.tap_parts.divisor *
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
inline bool has_fan_products(const Problem& p) { return is_half(p) || macs_per_output(p) <= 100; }

inline bool prefers_im2col(const Problem& p, const WeightGradientPath& path, bool ours) {
  const int64_t in = p.from.channels, out = p.to.channels, products = in * p.taps;
  if (out < 5) return false;
  if (!ours) return has_fan_products(p);
  if (const auto* general = std::get_if<WeightGeneralPlan>(&path)) {
    return value_turns(p, *general) > 3072;
  }
  if (!is<WeightChunksPlan>(path) || outputs_of(p) < 1 << 20) return false;
  return is_half(p)
             ? (in > 2 && products <= 28 && out >= 8) || (in == 2 && products <= 16 && out >= 16)
             : in > 2 && products <= 12 && out >= 8;
}

inline bool prefers_col2im(const Problem& p, bool small, bool ours) {
  const int64_t in = p.from.channels, out = p.to.channels;
  if (out < 5) return false;
  if (small) return out * p.taps > 160 && out >= 8;
  if (!ours) return has_fan_products(p);
  return has_unit_stride(p) && out >= (in == 1 ? 32 : 16) && in * p.taps <= 16 &&
         outputs_of(p) >= 1 << 20;
}

// Products of matrices that gather are 1.02 to 15 times as fast as a library where no other kernel
// was faster than that (59 problems on an H100; median 3.3), but where their 16 rows are nearly
// empty: depthwise (1,3863,130) with 49 taps, step 4, bf16 16.1 us, ATen 9.9.
inline bool pays_gemm(const Problem& p) { return p.from.channels > 1 || p.to.channels > 2; }

// Whether these are faster than the fan: where it has few blocks, or where so few of its channels
// are aligned alike that it writes half sectors or its tiles of 16 are nearly empty. README.md has
// the measurements.
inline bool prefers_gemm_to_fan(const Problem& p) {
  const ExpandChannels channels(p);
  const int64_t made = channels.cycle * ceil_div<int64_t>(channels.in_class, 16) * 16;
  return macs_per_output(p) >= 10 &&
         (outputs_of(p) < 3 << 19 || channels.aligned * item_of(p) < kSectorBytes ||
          10 * p.to.channels < 7 * made);
}

// Whether they are faster than chunks of tensor cores. The sums are hundredths of microseconds that
// (4,4 in,20000) to 4 out channels, 4 groups, take on an H100, fitted to 18 of up to 8 input and 64
// output channels, 5 to 64 taps and dilations up to 16: 5 to 73 us, all but one within 15 %.
inline bool prefers_gemm_to_chunks(const Problem& p) {
  const int64_t in = p.from.channels, out = p.to.channels, tiles = ceil_div<int64_t>(out, 16);
  const int64_t chunk_steps = ceil_div<int64_t>(span_of(p) + 14, 16);
  const int64_t steps = ceil_div<int64_t>(in * p.taps, 16);
  return in * (8 * out * chunk_steps + 10 * out + 120) >
         1200 + 600 * tiles + 25 * steps * (3 + 2 * tiles);
}

// Whether they are faster than `path`, which is faster than a library.
inline bool prefers_gemm(const Problem& p, const ForwardPath& path) {
  if (is<ExpandPlan>(path) || is<ExpandMmaPlan>(path)) return prefers_gemm_to_fan(p);
  return (is<ToeplitzPlan>(path) || is<SlidingPlan>(path)) && prefers_gemm_to_chunks(p);
}

inline bool pays_backward_weight(const Problem& p, const WeightGradientPath& path) {
  const int64_t in = p.from.channels, out = p.to.channels;
  if (is<AtenPlan>(path)) return false;
  if (p.dtype == DType::kFloat64) return true;
  if (is_depthwise(p) || is<WeightChunksPlan>(path)) return in * out <= 512;
  if (is<WeightChannelsLastPlan>(path) || is<WeightColumnsPlan>(path)) {
    return in * out <= 8 && p.taps <= 4;
  }
  const auto* general = std::get_if<WeightGeneralPlan>(&path);
  if (general && value_turns(p, *general) <= 512) return true;
  return in * out <= 16 || (in == 1 && out <= 64);
}

// Whether taps are many enough to make up for the decomposition.
inline bool has_many_taps(const Problem& p) {
  const Cuts cuts(p);
  const bool half = is_half(p);
  const int64_t in = p.from.channels, out = p.to.channels, taps = p.taps;
  if (in > 8 || out > (in * taps > 64 ? 8 : 4)) return false;
  if (p.to.size < 150 / (cuts.step > 1 ? 2 : 1)) return false;
  if (cuts.step > 1) {
    if (half) {
      const bool soon = in == 1 && (outputs_of(p) >= kHalfPhaseOutputs || cuts.step >= 8);
      return soon ? cuts.step <= 8 && taps >= 3 * cuts.step + 6
                  : cuts.step <= 5 && taps >= 6 * cuts.step + 12;
    }
    if (p.to.size < 150 && taps < 4 * cuts.step) return false;
    // Threads that read values a stride apart (strided_kernel) share banks of shared memory where
    // the stride is even.
    const int64_t sharing = std::min<int64_t>(std::gcd<int64_t>(cuts.step, 32), 4);
    return cuts.step <= 16 && taps * sharing >= (sharing > 1 ? 10 : 8) * cuts.step;
  }
  if (cuts.dilation > 1) return taps >= (cuts.dilation > 16 ? 24 : in > 1 ? 7 : 9);
  if (p.to.size < kChunkOutputs) return taps >= (in > 1 ? 7 : 3);
  // Up to 64 products are rows_kernel's otherwise, which makes four channels at once and takes 8
  // taps at a time; beyond, a library's.
  if (out > 2) return (taps >= 10 && taps <= 24) || in * taps > 64;
  if (out > 1) return taps >= (in > 1 ? 3 : 9);
  return taps >= (in == 1 ? 192 : in < 6 ? 9 : 3);
}

// Where an SM has few warps, each waits for its own instructions, of which the decomposition takes
// most; strided_kernel has fewer.
inline bool has_few_warps(const Problem& p, const Device& device) {
  const Cuts cuts(p);
  return cuts.step > 1 && cuts.dilation == 1 && p.from.channels == 1 && p.taps < 24 &&
         out_rows(p) * PolyphaseShape(p, cuts, 1).row_warps < device.multiprocessors * 16;
}

inline bool fits_direct(const Problem& p, const Device& device) {
  const bool short_row = p.to.size < 192 - (p.taps >= 9 ? 48 : 0);
  if (short_row && p.taps < 12) return false;
  const DirectRow row(p, device);
  return row.few || !(short_row || (row.tiles > 1 && !row.filled));
}

// The path of rows that are contiguous, by shape alone.
inline bool take_rows(ForwardPath& path, const Problem& p, const Device& device) {
  const bool unit = has_unit_stride(p), half = is_half(p), dilated = has_dilation(p);
  if (p.to.size >= kChunkOutputs || !unit) {
    // Faster in chunks: (4,4,20000) to 256 channels, 4 groups, 31 taps 42.4 and 24.6.
    const bool many = p.from.channels == 1 && p.taps > 16 && unit;
    if (half ? !many && take<ExpandMmaPlan>(path, p, device) : take<ExpandPlan>(path, p, device)) {
      return true;
    }
  }
  if (has_many_taps(p) && !has_few_warps(p, device) && take<PolyphasePlan>(path, p, device)) {
    return true;
  }
  if (!unit) {
    return p.to.channels < 4 && p.to.size >= kChunkOutputs / 2 &&
           take<StridedPlan>(path, p, device);
  }
  if (fits_direct(p, device) && take<DirectPlan>(path, p, device)) return true;
  if (p.to.size >= kChunkOutputs) {
    if (half && !(dilated && p.dilation > 16)) {
      if (take<ShortFilterPlan>(path, p, device) || take<ToeplitzPlan>(path, p, device))
        return true;
    }
    if (!half && p.to.channels == 1 && take<SlidingPlan>(path, p, device)) return true;
  }
  return take<RowsPlan>(path, p, device);
}

// By shape alone.
inline ForwardPath usual_forward(const Problem& p, const Device& device) {
  ForwardPath path;
  if (has_plain_rows(p) && take_rows(path, p, device)) return path;
  if (!take<ChannelsLastPlan>(path, p, device)) take<GeneralPlan>(path, p, device);
  return path;
}

// Multiply-adds per SM up to which the small kernel is faster than `path`, or than ATen if not
// `ours`.
inline int64_t most_small_products(const Problem& p, const ForwardPath& path, bool ours) {
  if (is<ImplicitGemmPlan>(path)) return 14 << 10;
  if (!ours) return p.from.channels == 1 && has_channels_last(p.to) ? 128 << 10 : 48 << 10;
  const int64_t tile = 8 << 10;
  if (is<StridedPlan>(path)) return 48 << 10;
  if (const auto* polyphase = std::get_if<PolyphasePlan>(&path)) {
    return polyphase->args.phases.divisor > 1 ? 40 << 10 : p.from.channels * tile;
  }
  if (is<DirectPlan>(path)) return 512;
  if (is<ShortFilterPlan>(path)) return 4 << 10;
  if (is_chunked(path)) return p.from.channels * tile * (has_dilation(p) ? 2 : 1);
  if (is<ExpandPlan>(path) || is<ExpandMmaPlan>(path) || is<ChannelsLastPlan>(path)) {
    return p.from.channels * tile;
  }
  return 48 << 10;
}

inline bool is_small(const Problem& p, const ForwardPath& path, bool ours, const Device& device) {
  const int64_t outputs = outputs_of(p), sms = device.multiprocessors;
  return outputs <= sms * 2048 &&
         outputs * macs_per_output(p) <= sms * most_small_products(p, path, ours);
}

// The path of a convolution whose usual one is faster than ATen if `pays`.
inline ForwardPath choose_beside(ForwardPath path, bool pays, const Problem& p,
                                 const Device& device) {
  bool ours = pays, has_own = !is<AtenPlan>(path);
  if (ours ? prefers_gemm(p, path) : pays_gemm(p)) {
    if (take<ImplicitGemmPlan>(path, p, device)) ours = has_own = true;
  }
  if (has_own && is_small(p, path, ours, device) && take<SmallPlan>(path, p, device)) ours = true;
  return ours ? path : ForwardPath();
}

inline ForwardPath choose_forward(const Problem& p, const Device& device) {
  ForwardPath path;
  if (p.from.channels <= kOwnChannels) path = usual_forward(p, device);
  const bool pays = pays_forward(p, path);
  return choose_beside(path, pays, p, device);
}

inline void choose_input_gradient(Plan& plan, const Problem& p, const Device& device) {
  const bool own = p.from.channels <= kOwnChannels;
  InputGradientPath path;
  if (has_unit_stride(p)) {
    const Problem laid = transposed(p);
    ForwardPath usual;
    if (own) usual = usual_forward(laid, device);
    const ForwardPath chosen = choose_beside(usual, pays_backward_input(p, usual), laid, device);
    // Implicit GEMMs were not measured beside gradients that go through the channels.
    const bool ours = !is<AtenPlan>(chosen) && !is<ImplicitGemmPlan>(chosen);
    if (prefers_col2im(p, is<SmallPlan>(chosen), ours) && take<Col2imPlan>(path, p, device)) {
      return void(plan.path = path);
    }
    return void(plan.path = chosen);
  }
  if (!own) return void(plan.path = path);
  // 128 positions of a row are enough for a warp.
  if (p.from.size < kChunkOutputs / 2 || p.to.channels > 4 ||
      !take<StridedGradientPlan>(path, p, device)) {
    take<GeneralGradientPlan>(path, p, device);
  }
  const bool pays = pays_backward_input(p, path);
  if (prefers_col2im(p, /*small=*/false, pays) && take<Col2imPlan>(path, p, device)) {
    return void(plan.path = path);
  }
  plan.path = pays ? path : InputGradientPath();
}

// Tiles are mostly halo where rows are short, and are read again for each pair of channels. (16 and
// more pairs: by value in half the time in the mean of 35 random problems; rows of less than 32:
// 0.64 of it in 28; more halo than row: 0.48 of it in 13.) Of so few places that each thread of a
// block has one, by value as well: depthwise (1,2,158) with 1 tap, bf16, 3.0 us by rows.
inline bool fits_weight_rows(const Problem& p) {
  return p.to.size >= 32 && (p.batch * p.to.size > kThreads || p.taps > 8) &&
         span_of(p) <= p.to.size && p.from.channels * p.to.channels < 16;
}

inline WeightGradientPath choose_weight_gradient(const Problem& p, const Device& device) {
  WeightGradientPath path;
  if (p.from.channels > kOwnChannels) return path;
  if (!(p.to.size >= kChunkOutputs && take<WeightChunksPlan>(path, p, device)) &&
      !(fits_weight_rows(p) && take<WeightRowsPlan>(path, p, device)) &&
      !take<WeightChannelsLastPlan>(path, p, device) && !take<WeightColumnsPlan>(path, p, device)) {
    take<WeightGeneralPlan>(path, p, device);
  }
  const bool pays = pays_backward_weight(p, path);
  if (prefers_im2col(p, path, pays) && take<Im2colPlan>(path, p, device)) return path;
  return pays ? path : WeightGradientPath();
}

// Halves of a problem: of its images, else of its groups.
inline std::pair<Problem, Problem> halves_of(const Problem& problem) {
  Problem first = problem, second = problem;
  const bool images = problem.batch > 1;
  int64_t& count = images ? first.batch : first.groups;
  int64_t& rest = images ? second.batch : second.groups;
  count /= 2;
  rest -= count;
  const int64_t item = item_of(problem);
  const auto move = [item](const void*& data, int64_t values) {
    data = static_cast<const char*>(data) + values * item;
  };
  for (Signal* signal : {&second.from, &second.to}) {
    move(signal->data,
         count * (images ? signal->batch_stride : signal->channels * signal->channel_stride));
  }
  if (!images) {
    move(second.weight.data, count * problem.weight.group_stride);
    if (second.bias != nullptr) {
      move(second.bias, count * problem.to.channels * problem.bias_stride);
    }
  }
  return {first, second};
}

}  // namespace detail

// Plans a pass of a problem once; see Problem for what each pass reads and writes.
inline Plan plan(const Problem& p, Pass pass, const Device& device) {
  const Signal& result = pass == Pass::kForward ? p.to : p.from;
  Plan made;
  made.dtype = p.dtype;
  if (pass == Pass::kWeightGradient) {  // whose sums can't be split
    made.path = detail::choose_weight_gradient(p, device);
  } else if (p.batch * p.groups * result.channels * result.size > device.launch_outputs &&
             p.batch * p.groups > 1) {
    const auto [first, second] = detail::halves_of(p);
    made = plan(first, pass, device);
    Plan* last = &made;
    while (last->rest) last = last->rest.get();
    last->rest = std::make_unique<Plan>(plan(second, pass, device));
    const auto begin = static_cast<const char*>(result.data);
    const auto& half = pass == Pass::kForward ? second.to : second.from;
    for (Plan* part = last->rest.get(); part != nullptr; part = part->rest.get()) {
      if (part->is_aten()) return {};
      part->offset += static_cast<const char*>(half.data) - begin;
    }
  } else if (pass == Pass::kForward) {
    made.path = detail::choose_forward(p, device);
  } else {
    detail::choose_input_gradient(made, p, device);
  }
  return made;
}

// The plan of the path with this name, for tests and measurements. ATen if there is none that
// supports the problem.
inline Plan plan_path(const Problem& p, Pass pass, const Device& device, std::string_view name) {
  Plan plan;
  plan.dtype = p.dtype;
  for_each_path(p, pass, device, [&](const auto& path) {
    if (name == name_of(path)) plan.path = path;
  });
  return plan;
}

}  // namespace gpuopt::conv1d
