// Weight gradients: sums over all positions of all examples. Blocks compute partial sums of some
// taps in a fixed order, and a second launch adds them up. Plain host C++.
#pragma once

#include <cmath>

#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

constexpr int64_t kSumBytes = 4 << 10;  // shared memory for sums over a block, at most
constexpr int64_t kMostSplits = kThreads * 16;
constexpr int64_t kWeightBlocks = 6;     // per SM, if sums are split
constexpr int64_t kThreadPositions = 4;  // positions per thread at least, if sums are split

// `from` is [batch, groups, in_channels, from_size], `grad` is [batch, groups, out_channels,
// grad_size]. `to` is [splits, weights] if `partial`, otherwise the contiguous gradient.
struct WeightArgs {
  const void *from, *grad;
  void* to;
  const char *from_first_vec, *from_last_vec, *grad_first_vec, *grad_last_vec;  // see Rows
  int64_t from_batch, from_channel, from_stride, grad_batch, grad_channel, grad_stride;
  int64_t from_size, grad_size, step, padding, dilation;
  int64_t batch, weights;                    // weights: elements of the gradient
  int64_t next_images, next_positions;       // from a thread's position to its next
  uint32_t taps, in_channels, out_channels;  // channels per group
  FastDiv splits, tap_parts, in_parts, out_parts;
  bool partial;
};

// Shared memory per block, except the memory for its sums.
inline int64_t weight_shared_bytes(const Device& device) {
  return std::min<int64_t>(kMostSharedBytes, device.shared_bytes) - kSumBytes;
}

// The number of parts that sums are split into, at most `most`, so that `blocks` times the parts
// fill `all` blocks.
inline int64_t splits_of(int64_t all, int64_t blocks, int64_t most) {
  return std::clamp<int64_t>(std::min(all / blocks, most), 1, kMostSplits);
}

// `block_positions` is the number of positions that a block reads at once, see PositionCursor.
inline WeightArgs weight_args(const Problem& p, int64_t splits, int64_t tap_parts,
                              int64_t out_parts = 1, int64_t block_positions = kThreads / 32) {
  WeightArgs args;
  args.from = p.from.data;
  args.grad = p.to.data;
  args.to = nullptr;
  const VectorRange from = vectors_of(p, p.from), grad = vectors_of(p, p.to);
  args.from_first_vec = from.first;
  args.from_last_vec = from.last;
  args.grad_first_vec = grad.first;
  args.grad_last_vec = grad.last;
  args.from_batch = p.from.batch_stride;
  args.from_channel = p.from.channel_stride;
  args.from_stride = p.from.stride;
  args.grad_batch = p.to.batch_stride;
  args.grad_channel = p.to.channel_stride;
  args.grad_stride = p.to.stride;
  args.from_size = p.from.size;
  args.grad_size = p.to.size;
  args.step = p.stride;
  args.padding = p.padding;
  args.dilation = p.dilation;
  args.batch = p.batch;
  args.weights = p.groups * p.to.channels * p.from.channels * p.taps;
  const int64_t apart = splits * block_positions;
  args.next_images = apart / p.to.size;
  args.next_positions = apart % p.to.size;
  args.taps = static_cast<uint32_t>(p.taps);
  set_channels(args, p);
  args.splits = divide_by(splits);
  args.tap_parts = divide_by(tap_parts);
  args.in_parts = divide_by(p.from.channels);
  args.out_parts = divide_by(out_parts);
  args.partial = splits > 1;
  return args;
}

// Whether 31 bits hold the number of blocks. Sums can't be split into launches.
inline bool fits_grid(int64_t blocks) { return blocks <= kMaxIndex32; }

}  // namespace gpuopt::conv1d
