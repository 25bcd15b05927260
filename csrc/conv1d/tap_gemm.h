// Tap GEMMs: each tap multiplies a matrix of channels with the signal shifted by that tap. Shared
// by the forward pass and the weight gradient. Plain host C++.
#pragma once

#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

constexpr int64_t kTapGemmChannels = 64;  // input or output channels per group, at most
constexpr int kTapGemmPositions = 64;     // positions per warp, or per stage of a weight gradient
// Stages of shared memory: while one is multiplied, the next ones are copied.
constexpr int kTapGemmStages = 3;

// A copy [batch, groups, rows, 16 parts] of values [batch, groups, channels, size] of any strides.
// Row r is position `first` + r. Values outside of the channels and of the row are 0, so a tap is a
// shift by whole rows and no kernel meets an edge.
struct ChannelsLastCopy {
  const void* from;
  void* to;
  int64_t batch_stride, group_stride, channel_stride, stride;
  int32_t size, first;
  uint32_t channels, lanes;  // a thread copies a part of a row
  FastDiv rows, parts, groups;
};

// No copy if 31 bits don't suffice to count its values.
inline std::optional<ChannelsLastCopy> channels_last_copy(const Signal& signal, int64_t batch,
                                                          int64_t groups, int64_t group_stride,
                                                          int64_t rows, int64_t parts,
                                                          int64_t first) {
  if (rows >= kFar || batch * groups >= kFar ||
      batch * groups * rows > kMaxIndex32 / kTapGemmChannels) {
    return {};
  }
  ChannelsLastCopy copy;
  copy.from = signal.data;
  copy.to = nullptr;  // set by launch()
  copy.batch_stride = signal.batch_stride;
  copy.group_stride = group_stride;
  copy.channel_stride = signal.channel_stride;
  copy.stride = signal.stride;
  copy.size = static_cast<int32_t>(signal.size);
  copy.first = static_cast<int32_t>(first);
  copy.channels = static_cast<uint32_t>(signal.channels);
  copy.lanes = static_cast<uint32_t>(batch * groups * rows * parts);
  copy.rows = divide_by(rows);
  copy.parts = divide_by(parts);
  copy.groups = divide_by(groups);
  return copy;
}

inline std::optional<ChannelsLastCopy> channels_last_copy(const Problem& p, const Signal& signal,
                                                          int64_t rows, int64_t parts,
                                                          int64_t first) {
  return channels_last_copy(signal, p.batch, p.groups, signal.channels * signal.channel_stride,
                            rows, parts, first);
}

// The result [batch, channels, size] of any strides.
struct TapGemmResult {
  void* to;
  const void* bias;
  int64_t batch_stride, channel_stride, stride, bias_stride;
  Activation activation;
};

// Time grows with the bytes that copies read and write, in units of 3 MB.
inline double copied_by(const ChannelsLastCopy& a, const ChannelsLastCopy& b) {
  return 64 * (static_cast<double>(a.lanes) + b.lanes) / 3e6;
}

inline bool has_tap_gemm(const Problem& p) {
  return is_half(p) && p.from.channels <= kTapGemmChannels && p.to.channels <= kTapGemmChannels &&
         positions_in_32_bits(p);
}

}  // namespace gpuopt::conv1d
