// What a plan and a problem are in the arguments of several kernels.
#pragma once

#include "conv1d/conv1d.h"
#include "conv1d/conv1d_chunk.cuh"

namespace gpuopt::conv1d {

inline LaunchShape shape_of(const Plan& plan) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(plan.blocks);
  shape.threads = static_cast<unsigned>(plan.threads);
  shape.shared_bytes = plan.shared_bytes;
  shape.overlaps_before = true;
  return shape;
}

// For a kernel that declares so many bytes of shared memory besides the plan's.
template <typename Kernel>
cudaError_t allow_shared_bytes(Kernel* kernel, const Plan& plan, int64_t declared) {
  if (plan.shared_bytes <= static_cast<size_t>(detail::kSharedBytes - declared)) return cudaSuccess;
  // The same in every call, as host threads may be between this and their launch.
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(plan.most_shared_bytes));
}

// Of a power of two.
inline uint32_t shift_of(int64_t power) {
  uint32_t shift = 0;
  while (int64_t{1} << shift < power) ++shift;
  return shift;
}

inline FastDiv div_by(int64_t divisor) { return FastDiv(static_cast<uint32_t>(divisor)); }

// Output channels of a lane, where it has several and not by rows: see plan_values.
template <typename T>
constexpr int kChannels = sizeof(T) == 8 ? 1 : 4;

// What the arguments of several kernels have in common.
template <typename Args>
void set_operands(Args& args, const Problem& p) {
  args.from = p.from.data;
  args.to = p.to.data;
  args.weight = p.weight.data;
  args.bias = p.bias;
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
void set_channels(Args& args, const Problem& p) {
  set_strides(args, p);
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.out_channels = static_cast<uint32_t>(p.to.channels);
  args.groups = div_by(p.groups);
}

struct Packs {
  const char *first, *last;
};

// The aligned packs that a signal's memory holds whole.
inline Packs packs_of(const Problem& p, const Signal& signal) {
  const int64_t values = (p.batch - 1) * signal.batch_stride +
                         (p.groups * signal.channels - 1) * signal.channel_stride +
                         (signal.size - 1) * signal.stride + 1;
  const auto begin = reinterpret_cast<uintptr_t>(signal.data);
  const uintptr_t end = begin + static_cast<uintptr_t>(values) * size_of(p.dtype);
  const auto down = [](uintptr_t address) {
    return reinterpret_cast<const char*>(address / kPackBytes * kPackBytes);
  };
  return {down(begin + kPackBytes - 1), down(end) - kPackBytes};
}

// Of rows that fit into 32 bits and are read as packs.
template <typename Args>
void set_rows(Args& args, const Problem& p) {
  const Packs packs = packs_of(p, p.from);
  args.first_pack = packs.first;
  args.last_pack = packs.last;
  args.from_size = static_cast<int32_t>(p.from.size);
  args.to_size = static_cast<int32_t>(p.to.size);
  args.padding = static_cast<int32_t>(p.padding);
  args.taps = static_cast<int32_t>(p.taps);
}

inline ChunkArgs chunk_args(const Problem& p, const Plan& plan) {
  ChunkArgs args;
  set_operands(args, p);
  set_strides(args, p);
  set_rows(args, p);
  args.step = static_cast<int32_t>(plan.strided ? p.step : 1);
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.warps = static_cast<uint32_t>(plan.lanes);
  args.warp_tiles = static_cast<uint32_t>(plan.warp_tiles);
  args.warp_packs = static_cast<uint32_t>(plan.warp_packs);
  args.taps_pitch = static_cast<uint32_t>(plan.taps_pitch);
  args.row_warps = div_by(plan.row_lanes);
  args.channels = div_by(p.groups * p.to.channels);
  args.group_channels = div_by(p.to.channels);
  args.dilation = div_by(p.taps > 1 ? p.dilation : 1);
  return args;
}

}  // namespace gpuopt::conv1d
