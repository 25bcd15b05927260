// fp16 and bf16 with many channels and taps: a GEMM per tap on tensor cores.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/tap_gemm.h"

namespace gpuopt::conv1d {

constexpr int kTapGemmWarps = 4;  // per block, at most
// Blocks per SM, limited by registers. A warp has 16 * `rows` channels.
constexpr int tap_gemm_blocks(int rows) { return rows == 4 ? 2 : 3; }

// Floats from a channel of a block's results to the next one, without bank conflicts.
constexpr int kTapGemmPitch = kTapGemmWarps * kTapGemmPositions + 8;

// `from` is [batch, groups, from_rows, vecs], `weight` [groups, out_channels, taps, vecs], in
// vectors of 8 input channels. Partial sums are [splits, batch, groups, out_channels, to_size].
struct TapGemmArgs {
  const void *from, *weight;
  float* partial;  // null if there is one split
  TapGemmResult result;
  int64_t from_rows;
  int32_t to_size, step, dilation;
  uint32_t taps, split_taps, stage_taps, out_channels, tile_rows;
  uint32_t count;  // outputs
  FastDiv tiles, splits, groups, vecs, stage_vecs;
};

struct TapGemmPlan : PathPlan<TapGemmArgs> {
  static constexpr const char* kName = "tap_gemm";
  static constexpr const Costs& kCosts = costs::kTapGemm;
  ChannelsLastCopy from, weight;
  int rows;  // tiles of 16 channels

  static std::optional<TapGemmPlan> make(const Problem& p, const Device& device) {
    constexpr int64_t kMostSplits = 32, kStageBytes = 12 << 10;
    if (!has_tap_gemm(p) || outputs_of(p) > kMaxIndex32 - kThreads) return {};
    const int64_t rows = std::max<int64_t>(ceil_div<int64_t>(p.to.channels, 16), 2);
    const int64_t steps = ceil_div<int64_t>(p.from.channels, 16);
    const int64_t pitch = 2 * steps + 1;  // odd, so that ldmatrix has no bank conflicts
    const int64_t tap_bytes = 16 * rows * pitch * kAccessBytes;
    const int64_t most_shared = std::min<int64_t>(device.shared_bytes, kMostSharedBytes);
    struct Shape {
      int64_t warps, tiles, splits, split_taps, stage_taps, tile_rows, bytes;
      double us;
    };
    const auto shape_of = [&](int64_t most_warps, int64_t splits) {
      Shape shape;
      const int64_t parts = ceil_div<int64_t>(p.to.size, kTapGemmPositions);
      shape.tiles = ceil_div(parts, most_warps);
      shape.warps = ceil_div(parts, shape.tiles);
      shape.split_taps = ceil_div(p.taps, splits);
      shape.splits = ceil_div(p.taps, shape.split_taps);
      shape.stage_taps = std::clamp<int64_t>(kStageBytes / tap_bytes, 1, shape.split_taps);
      shape.tile_rows = (shape.warps * kTapGemmPositions - 1) * p.stride +
                        (shape.split_taps - 1) * p.dilation + 1;
      shape.bytes =
          shape.tile_rows * pitch * kAccessBytes + kTapGemmStages * shape.stage_taps * tap_bytes;
      shape.bytes = std::max<int64_t>(shape.bytes, 16 * kTapGemmPitch * sizeof(float));
      // An estimate: 0.4 mma per cycle and SM if it has 8 warps. Splits are written and read in
      // f32.
      const int64_t blocks = p.batch * p.groups * shape.tiles * shape.splits;
      const auto warps = static_cast<double>(
          std::max<int64_t>(ceil_div<int64_t>(blocks, device.sms) * shape.warps, 8));
      shape.us = warps * static_cast<double>(shape.split_taps * rows * steps * 8) * 1.5e-3;
      if (shape.splits > 1)
        shape.us += 2 + static_cast<double>(shape.splits * outputs_of(p)) * 3e-6;
      return shape;
    };
    std::optional<Shape> best;
    for (int64_t warps = kTapGemmWarps; warps > 0; warps /= 2) {
      for (int64_t splits = 1; splits <= std::min(p.taps, kMostSplits); ++splits) {
        const Shape shape = shape_of(warps, splits);
        const bool fits = shape.bytes <= most_shared && shape.splits * outputs_of(p) < 4 * kFar;
        if (fits && (!best || shape.us < best->us)) best = shape;
      }
    }
    if (!best) return {};
    TapGemmPlan plan;
    const int64_t from_rows =
        (best->tiles * best->warps * kTapGemmPositions - 1) * p.stride + span_of(p) + 1;
    const int64_t blocks = p.batch * p.groups * best->tiles * best->splits;
    const Signal taps{p.weight.data,       p.weight.group_stride, p.weight.in_stride,
                      p.weight.tap_stride, p.from.channels,       p.taps};
    const auto from = channels_last_copy(p, p.from, from_rows, steps, -p.padding);
    const auto weight =
        channels_last_copy(taps, p.groups, p.to.channels, p.weight.out_stride, p.taps, steps, 0);
    if (!from || !weight || blocks > kMaxIndex32) return {};
    plan.from = *from;
    plan.weight = *weight;
    plan.launch = launch_shape(blocks, static_cast<int>(32 * best->warps), best->bytes);
    plan.rows = static_cast<int>(rows);
    TapGemmArgs& args = plan.args;
    args.result = {nullptr,     p.bias,        p.to.batch_stride, p.to.channel_stride,
                   p.to.stride, p.bias_stride, p.activation};
    args.from_rows = from_rows;
    args.to_size = static_cast<int32_t>(p.to.size);
    args.step = static_cast<int32_t>(p.stride);
    args.dilation = static_cast<int32_t>(p.dilation);
    args.taps = static_cast<uint32_t>(p.taps);
    args.split_taps = static_cast<uint32_t>(best->split_taps);
    args.stage_taps = static_cast<uint32_t>(best->stage_taps);
    args.out_channels = static_cast<uint32_t>(p.to.channels);
    args.tile_rows = static_cast<uint32_t>(best->tile_rows);
    args.count = static_cast<uint32_t>(outputs_of(p));
    args.tiles = divide_by(best->tiles);
    args.splits = divide_by(best->splits);
    args.groups = divide_by(p.groups);
    args.vecs = divide_by(2 * steps);
    args.stage_vecs = divide_by(2 * steps * best->stage_taps);
    return plan;
  }

  Terms terms(const Problem&, const Device& device) const {
    const auto mma = static_cast<double>(args.split_taps * args.vecs.divisor / 2 * rows);
    const double splits = args.splits.divisor > 1 ? args.splits.divisor : 0;
    // Terms: copies, mma per warp and per SM, second launch, partial sums.
    return {copied_by(from, weight), mma, mma * blocks_per_sm(launch, device) * launch.threads / 32,
            splits > 0 ? 1.0 : 0.0, splits * args.count / 1e6};
  }
};

}  // namespace gpuopt::conv1d
