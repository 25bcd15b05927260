// Properties of a convolution's shape that planners and kernels share. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <type_traits>

#include "common/index.h"
#include "common/launch_shape.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

constexpr int kThreads = 256;       // threads of a block
constexpr int kChunkThreads = 128;  // threads of a block whose warps work independently
// Memory is written in sectors of this many bytes. A partly written sector costs extra traffic
// (rows of 15999 bf16: 164 us in unaligned pieces, 90 us in aligned ones).
constexpr int kSectorBytes = 32;
constexpr int64_t kSharedBytes = 48 << 10;       // without opting in
constexpr int64_t kMostSharedBytes = 100 << 10;  // with opting in, for two blocks per SM
// Bound on counts and offsets. Sums of up to three of them fit into 32 bits.
constexpr int64_t kFar = int64_t{1} << 29;

inline int64_t item_of(const Problem& p) { return static_cast<int64_t>(size_of(p.dtype)); }
inline bool is_half(const Problem& p) { return item_of(p) == 2; }
inline int64_t compute_bytes(const Problem& p) { return std::max<int64_t>(item_of(p), 4); }
inline int64_t outputs_of(const Problem& p) {
  return p.batch * p.groups * p.to.channels * p.to.size;
}
inline int64_t macs_per_output(const Problem& p) { return p.from.channels * p.taps; }
inline int64_t out_rows(const Problem& p) { return p.batch * p.groups * p.to.channels; }
inline bool has_dilation(const Problem& p) { return p.dilation > 1 && p.taps > 1; }
// The stride has no effect on a single output.
inline bool has_unit_stride(const Problem& p) { return p.stride == 1 || p.to.size == 1; }
// Distance from the first tap to the last.
inline int64_t span_of(const Problem& p) { return (p.taps - 1) * p.dilation; }

// Whether 32 bits hold `count` strides of a tensor.
inline bool in_32_bits(int64_t count, int64_t stride) {
  return count < kFar && std::abs(stride) < kFar && count * std::abs(stride) < kFar;
}

inline bool positions_in_32_bits(const Problem& p) {
  return p.stride < kFar && p.from.size < 2 * kFar && p.to.size < 2 * kFar &&
         p.to.size * p.stride < 3 * kFar && std::abs(p.padding) < kFar && p.taps < kFar &&
         std::abs(p.weight.tap_stride) < kFar && p.dilation < kFar && p.taps * p.dilation < kFar;
}

inline bool has_contiguous_rows(const Problem& p) {
  return (p.from.stride == 1 || p.from.size == 1) && (p.to.stride == 1 || p.to.size == 1);
}

// Required by most kernels.
inline bool has_plain_rows(const Problem& p) {
  return has_contiguous_rows(p) && positions_in_32_bits(p);
}

// Whether 32 bits hold positions, with the padding and all taps on both sides of a row.
inline bool strides_in_32_bits(const Problem& p) {
  return positions_in_32_bits(p) && std::abs(p.padding) + p.taps * p.dilation + p.stride < kFar / 2;
}

// Taps k and k + tap_cycle lie a whole number of strides apart.
inline int64_t tap_cycle_of(const Problem& p) { return p.stride / std::gcd(p.stride, p.dilation); }

// The number of strides that covers the padding, all taps and a sector. Added to a position in
// strides, it makes the position non-negative.
inline int32_t lead_steps(const Problem& p) {
  return static_cast<int32_t>(ceil_div(std::abs(p.padding) + span_of(p) + kSectorBytes, p.stride));
}

// Whether neighbouring addresses hold neighbouring channels.
inline bool has_channels_last(const Signal& signal) {
  return signal.channel_stride == 1 && signal.stride != 1;
}

// Whether every row of a signal starts at a multiple of `values`.
inline bool has_aligned_rows(const Problem& p, const Signal& signal, int64_t values) {
  return reinterpret_cast<uintptr_t>(signal.data) % (values * item_of(p)) == 0 &&
         (signal.channels * p.groups == 1 || signal.channel_stride % values == 0) &&
         (p.batch == 1 || signal.batch_stride % values == 0);
}

// Outputs of a row, plus the gap before the first output unless rows are aligned to `aligned`
// bytes.
inline int64_t aligned_size(const Problem& p, int aligned) {
  const int64_t values = aligned / item_of(p);
  return p.to.size + (has_aligned_rows(p, p.to, values) ? 0 : values - 1);
}

inline int64_t tiles_of_row(const Problem& p, int64_t outputs, int aligned = kAccessBytes) {
  return ceil_div(aligned_size(p, aligned), outputs);
}

// Channels this far apart begin at the same offset modulo `values`.
inline int64_t cycle_of(const Signal& signal, int64_t values) {
  return signal.channels == 1 ? 1 : values / std::gcd(values, signal.channel_stride);
}

// Whether vectors of `values` neighbouring channels are aligned in both signals.
inline bool has_vectors_of_channels(const Problem& p, int64_t values) {
  const auto fits = [&](const Signal& signal) {
    return signal.channel_stride == 1 && signal.stride % values == 0 &&
           reinterpret_cast<uintptr_t>(signal.data) % (values * item_of(p)) == 0 &&
           (p.batch == 1 || signal.batch_stride % values == 0);
  };
  return p.groups % values == 0 && fits(p.from) && fits(p.to);
}

inline LaunchShape launch_shape(int64_t blocks, int threads, int64_t shared_bytes = 0) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(blocks);
  shape.threads = static_cast<unsigned>(threads);
  shape.shared_bytes = static_cast<size_t>(shared_bytes);
  shape.use_pdl = true;
  return shape;
}

// What every plan has.
template <typename Args>
struct PathPlan {
  LaunchShape launch;
  Args args;
};

// log2 of a power of two.
inline uint32_t shift_of(int64_t power) {
  uint32_t shift = 0;
  while (int64_t{1} << shift < power) ++shift;
  return shift;
}

// ---------------------------------------------------------------- arguments shared by kernels

// Kernels read `from` [batch, groups, in_channels, from_size] and `weight` [groups, out_channels,
// in_channels, taps], and write `to` [batch, groups, out_channels, to_size]. Members such as
// from_batch and weight_tap are strides of these tensors, in elements.

template <typename Args>
void set_operands(Args& args, const Problem& p) {
  args.from = p.from.data;
  args.weight = p.weight.data;
  args.bias = p.bias;
  args.to = nullptr;  // set by launch()
  args.from_batch = p.from.batch_stride;
  args.to_batch = p.to.batch_stride;
  args.weight_tap = static_cast<decltype(args.weight_tap)>(p.weight.tap_stride);
  args.bias_stride = p.bias_stride;
  args.activation = p.activation;
}

template <typename Args>
void set_strides(Args& args, const Problem& p) {
  args.from_channel = p.from.channel_stride;
  args.to_channel = p.to.channel_stride;
  args.weight_group = p.weight.group_stride;
  args.weight_out = p.weight.out_stride;
  args.weight_in = p.weight.in_stride;
}

template <typename Args>
void set_signal(Args& args, const Problem& p) {
  const auto set = [](auto& to, int64_t value) {
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
  };
  if constexpr (requires { args.from_stride; }) {
    args.from_stride = p.from.stride;
    args.to_stride = p.to.stride;
  }
  set(args.from_size, p.from.size);
  set(args.to_size, p.to.size);
  set(args.padding, p.padding);
  set(args.taps, p.taps);
}

template <typename Args>
void set_channels(Args& args, const Problem& p) {
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.out_channels = static_cast<uint32_t>(p.to.channels);
}

struct VectorRange {
  const char *first, *last;
};

// The aligned vectors that lie entirely within a signal's memory.
inline VectorRange vectors_of(const Problem& p, const Signal& signal) {
  const int64_t values = (p.batch - 1) * signal.batch_stride +
                         (p.groups * signal.channels - 1) * signal.channel_stride +
                         (signal.size - 1) * signal.stride + 1;
  const auto begin = reinterpret_cast<uintptr_t>(signal.data);
  const uintptr_t end = begin + static_cast<uintptr_t>(values) * size_of(p.dtype);
  const auto down = [](uintptr_t address) {
    return reinterpret_cast<const char*>(address / kAccessBytes * kAccessBytes);
  };
  return {down(begin + kAccessBytes - 1), down(end) - kAccessBytes};
}

// For kernels that read rows as vectors and index positions with 32 bits.
template <typename Args>
void set_rows(Args& args, const Problem& p) {
  const VectorRange range = vectors_of(p, p.from);
  args.first_vec = range.first;
  args.last_vec = range.last;
  set_signal(args, p);
}

}  // namespace gpuopt::conv1d
