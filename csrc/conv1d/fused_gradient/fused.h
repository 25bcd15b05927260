// All gradients of a depthwise convolution of 2 to 4 taps and its silu, by one kernel that reads
// the input and the output's gradient once. Plain host C++.
#pragma once

#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int64_t kMostFusedTaps = 4;
// Sums are split by the problem alone, so their order does not depend on the device. Rows are split
// into this many warps, and into parts of at least so many tiles.
constexpr int64_t kFusedWarps = 1 << 14, kFusedTiles = 8;
constexpr int64_t kColumnBytes = 8;  // of a thread's channels, at most

// Neighbouring values of a row that a thread has at a time, at least as many as a halo.
GPUOPT_HOST_DEVICE constexpr int64_t fused_values(int64_t item) {
  return item == 8 ? 4 : kAccessBytes / item;
}

// `from` and `to` are [batch, channels, from_size], `grad` is [batch, channels, grad_size]. Output
// i has the position of its last tap, i + offset. All inputs and outputs lie in [begin, end).
struct FusedArgs {
  const void *from, *grad, *weight, *bias;
  void* to;    // the gradient of `from`, may be null
  void* sums;  // [splits, weights + channels], may be null: weights [channels, taps], then biases
  int64_t from_batch, from_channel, from_stride, grad_batch, grad_channel, grad_stride;
  int64_t to_batch, to_channel, to_stride, weight_channel, weight_tap, bias_stride;
  int64_t batch;
  int32_t from_size, grad_size, offset, begin, end;
  int32_t tiles;      // of a row, only for rows
  int32_t part_size;  // rows: tiles of a part; columns: positions of a part
  uint32_t channels;
  uint32_t splits;        // of the sums
  uint32_t width_shift;   // 2^width_shift threads have a part of a row, or channels side by side
  FastDiv parts;          // of a row
  FastDiv channel_parts;  // rows: channels; columns: blocks with channels side by side
  bool has_silu;
};

struct FusedPlan : PathPlan<FusedArgs> {
  static constexpr const char* kName = "fused";
  int taps;
  int values;  // channels of a thread; 0: a thread has values of a row
  // Whether memory is read as vectors. Without, several kernels may be faster than this one.
  bool has_vectors;

  // `p.to` is the output's gradient, `result` the gradient of `p.from`.
  static std::optional<FusedPlan> make(const Problem& p, const Signal& result) {
    const bool is_depthwise = p.from.channels == 1 && p.to.channels == 1;
    const bool has_silu = p.activation == Activation::kSilu;
    if (!is_depthwise || !has_unit_stride(p) || has_dilation(p) || p.taps < 2 ||
        p.taps > kMostFusedTaps || !(has_silu || p.activation == Activation::kNone) ||
        !positions_in_32_bits(p)) {
      return {};
    }
    FusedPlan plan;
    plan.taps = static_cast<int>(p.taps);
    FusedArgs& args = plan.args;
    args = {.from = p.from.data,
            .grad = p.to.data,
            .weight = p.weight.data,
            .bias = p.bias,
            .from_batch = p.from.batch_stride,
            .from_channel = p.from.channel_stride,
            .from_stride = p.from.stride,
            .grad_batch = p.to.batch_stride,
            .grad_channel = p.to.channel_stride,
            .grad_stride = p.to.stride,
            .to_batch = result.batch_stride,
            .to_channel = result.channel_stride,
            .to_stride = result.stride,
            .weight_channel = p.weight.group_stride,
            .weight_tap = p.weight.tap_stride,
            .bias_stride = p.bias_stride,
            .batch = p.batch,
            .from_size = static_cast<int32_t>(p.from.size),
            .grad_size = static_cast<int32_t>(p.to.size),
            .offset = static_cast<int32_t>(p.taps - 1 - p.padding),
            .channels = static_cast<uint32_t>(p.groups),
            .has_silu = has_silu};
    args.begin = std::min(0, args.offset);
    args.end = std::max(args.from_size, args.grad_size + args.offset);
    const bool fits = result.stride != 1 ? plan.split_columns(p)
                                         : has_contiguous_rows(p) && plan.split_rows(p, result);
    if (!fits) return {};
    return plan;
  }

 private:
  bool split_rows(const Problem& p, const Signal& result) {
    const int64_t vec = kAccessBytes / item_of(p);
    // Whether rows of two signals start at the same offset modulo a vector.
    const auto meets = [&](const Signal& signal, int64_t offset) {
      const auto apart = [&](int64_t stride, int64_t other) { return (stride - other) % vec != 0; };
      return signal.stride == 1 && offset % vec == 0 &&
             reinterpret_cast<uintptr_t>(signal.data) % kAccessBytes == 0 &&
             !(p.groups > 1 && apart(signal.channel_stride, result.channel_stride)) &&
             !(p.batch > 1 && apart(signal.batch_stride, result.batch_stride));
    };
    values = 0;
    has_vectors = meets(p.from, 0) && meets(p.to, args.offset);
    const bool aligned = has_aligned_rows(p, result, vec) && args.begin % vec == 0;
    const int64_t vecs = ceil_div<int64_t>(args.end - args.begin + (aligned ? 0 : vec - 1),
                                           fused_values(item_of(p)));
    const int64_t width = std::min<int64_t>(pow2_ceil(vecs), kWarp);
    const int64_t tiles = ceil_div(vecs, width), rows = p.batch * p.groups;
    const int64_t most = std::min(std::max<int64_t>(tiles / kFusedTiles, 1), kMostSplits);
    const int64_t part_tiles =
        ceil_div(tiles, std::clamp<int64_t>(kFusedWarps * (kWarp / width) / rows, 1, most));
    const int64_t parts = ceil_div(tiles, part_tiles);
    const int64_t blocks = ceil_div<int64_t>(rows * parts * width, kChunkThreads);
    args.tiles = static_cast<int32_t>(tiles);
    args.part_size = static_cast<int32_t>(part_tiles);
    args.splits = static_cast<uint32_t>(p.batch * parts);
    args.width_shift = shift_of(width);
    args.parts = divide_by(parts);
    args.channel_parts = divide_by(p.groups);
    launch = launch_shape(blocks, kChunkThreads);
    return fits_grid(blocks * kChunkThreads);
  }

  bool split_columns(const Problem& p) {
    const int64_t vec = kColumnBytes / item_of(p);
    has_vectors = vec > 1 && has_vectors_of_channels(p, vec);
    values = static_cast<int>(has_vectors ? vec : 1);
    const int64_t vecs = p.groups / values, width = std::min<int64_t>(pow2_ceil(vecs), kWarp);
    const int64_t rows = kChunkThreads / width, tiles = ceil_div(vecs, width);
    // A part reads the positions of `taps - 1` outputs in vain. Fewer positions fill the GPU with a
    // small problem.
    const int64_t size = args.end - args.begin, all = p.batch * size * vecs;
    int64_t steps = all >= 1 << 24 ? 64 : all >= 1 << 21 ? 32 : 16, parts, splits;
    do {
      args.part_size = static_cast<int32_t>(steps - (p.taps - 1));
      parts = ceil_div<int64_t>(size, args.part_size);
      splits = ceil_div(p.batch * parts, rows);
      steps *= 2;
    } while (splits > kMostSplits && parts > 1);
    args.splits = static_cast<uint32_t>(splits);
    args.width_shift = shift_of(width);
    args.parts = divide_by(parts);
    args.channel_parts = divide_by(tiles);
    launch = launch_shape(tiles * splits, kChunkThreads);
    return fits_grid(tiles * splits) && fits_grid(p.batch * parts);
  }
};

}  // namespace gpuopt::conv1d
