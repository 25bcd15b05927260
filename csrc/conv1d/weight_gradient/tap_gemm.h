// Weight gradients of fp16 and bf16 with many channels and taps: a GEMM per tap on tensor cores.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/tap_gemm.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kTapSumWarps = 8;  // per block, at most. A warp has one tap
// Blocks per SM, limited by registers. A warp sums 16 `rows` x 16 `rows` channels.
constexpr int tap_sum_blocks(int rows) { return rows == 4 ? 1 : 2; }

// `from` is [batch, groups, from_rows, vecs], `grad` [batch, groups, grad_rows, vecs], in vectors
// of 8 channels. A chunk is kTapGemmPositions positions of one example.
struct WeightTapGemmArgs {
  const void *from, *grad;
  void* to;  // [splits, weights] in f32 if there are several splits
  int64_t from_rows, grad_rows, weights;
  int32_t grad_size, step, dilation;
  uint32_t taps, block_taps, tile_rows, in_channels, out_channels, all_chunks;
  FastDiv row_chunks, tap_parts, splits, groups;
};

struct WeightTapGemmPlan : PathPlan<WeightTapGemmArgs> {
  static constexpr const char* kName = "weight_tap_gemm";
  static constexpr const Costs& kCosts = costs::kWeightTapGemm;
  ChannelsLastCopy from, grad;
  int rows;  // tiles of 16 channels

  static std::optional<WeightTapGemmPlan> make(const Problem& p, const Device& device) {
    constexpr int64_t kWarpsPerSm = 16, kChunksPerSplit = 2;  // if sums are split
    const int64_t weights = p.groups * p.to.channels * macs_per_output(p);
    if (!has_tap_gemm(p) || weights > kMaxIndex32 - kThreads) return {};
    const int64_t most = std::max(p.from.channels, p.to.channels);
    const int64_t rows = std::max<int64_t>(ceil_div<int64_t>(most, 16), 2), pitch = 2 * rows + 1;
    const auto tile_rows_of = [&](int64_t taps) {
      return (kTapGemmPositions - 1) * p.stride + (taps - 1) * p.dilation + 1;
    };
    const auto bytes_of = [&](int64_t taps) {
      return kTapGemmStages * (kTapGemmPositions + tile_rows_of(taps)) * pitch * kAccessBytes;
    };
    int64_t block_taps = kTapSumWarps;
    while (block_taps > 1 && bytes_of(block_taps) > device.shared_bytes) block_taps /= 2;
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, block_taps);
    block_taps = ceil_div(p.taps, tap_parts);
    if (bytes_of(block_taps) > device.shared_bytes) return {};
    const int64_t chunks = ceil_div<int64_t>(p.to.size, kTapGemmPositions);
    const int64_t all_chunks = p.batch * chunks, blocks = p.groups * tap_parts;
    if (all_chunks >= kFar) return {};
    const int64_t splits = splits_of(int64_t{device.sms} * kWarpsPerSm, blocks * block_taps,
                                     all_chunks / kChunksPerSplit);
    WeightTapGemmPlan plan;
    const int64_t grad_rows = chunks * kTapGemmPositions;
    const int64_t from_rows = (grad_rows - 1) * p.stride + span_of(p) + 1;
    const auto from = channels_last_copy(p, p.from, from_rows, rows, -p.padding);
    const auto grad = channels_last_copy(p, p.to, grad_rows, rows, 0);
    if (!from || !grad || !fits_grid(blocks * splits)) return {};
    plan.from = *from;
    plan.grad = *grad;
    plan.launch =
        launch_shape(blocks * splits, static_cast<int>(32 * block_taps), bytes_of(block_taps));
    plan.rows = static_cast<int>(rows);
    WeightTapGemmArgs& args = plan.args;
    args.from_rows = from_rows;
    args.grad_rows = grad_rows;
    args.weights = weights;
    args.grad_size = static_cast<int32_t>(p.to.size);
    args.step = static_cast<int32_t>(p.stride);
    args.dilation = static_cast<int32_t>(p.dilation);
    args.taps = static_cast<uint32_t>(p.taps);
    args.block_taps = static_cast<uint32_t>(block_taps);
    args.tile_rows = static_cast<uint32_t>(tile_rows_of(block_taps));
    set_channels(args, p);
    args.all_chunks = static_cast<uint32_t>(all_chunks);
    args.row_chunks = divide_by(chunks);
    args.tap_parts = divide_by(tap_parts);
    args.splits = divide_by(splits);
    args.groups = divide_by(p.groups);
    return plan;
  }

  Terms terms(const Problem&, const Device& device) const {
    const double splits = args.splits.divisor;
    const double mma = std::ceil(args.all_chunks / splits) * rows * rows;
    // Terms: copies, mma per warp and per SM, second launch, partial sums.
    return {copied_by(from, grad), mma, mma * blocks_per_sm(launch, device) * launch.threads / 32,
            splits > 1 ? 1.0 : 0.0,
            splits > 1 ? splits * static_cast<double>(args.weights) / 1e6 : 0};
  }
};

}  // namespace gpuopt::conv1d
