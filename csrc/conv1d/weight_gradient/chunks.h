// Weight gradients of stride 1 along long rows: a warp multiplies chunks of the gradient and input.
#pragma once

#include <cmath>

#include "conv1d/chunk.h"
#include "conv1d/cost.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kWeightWarps = 8;  // per block, at most

constexpr int64_t kChunkSums = 24;  // warps per SM, limited by registers

// Pitch of D in shared memory. Neighbouring taps, sums along diagonals of 8 values, lie in
// different banks.
constexpr int kScratchPitch = 9;

struct WeightChunkArgs : WeightArgs {
  uint32_t chunks;       // chunks of all rows, over which warps loop
  uint32_t chunk_tiles;  // tiles of Sums::kTile positions per chunk
  uint32_t input_vecs;   // input vectors per chunk
  uint32_t tap_count;    // taps per block
  FastDiv row_chunks;
};

struct WeightChunksPlan : PathPlan<WeightChunkArgs> {
  static constexpr const char* kName = "weight_chunks";
  static constexpr const Costs& kCosts = costs::kWeightChunks;
  // The taps that the kernel is compiled for. In fp16 and bf16: matrices of 16 rows.
  int products;

  // In fp16 and bf16, matrices hold taps up to 16 * matrices - 15 positions apart. In f32, a thread
  // has one sum per tap.
  static std::optional<WeightChunksPlan> make(const Problem& p, const Device& device) {
    const int64_t item = item_of(p), values = kAccessBytes / item;
    const int64_t dilation = p.taps > 1 ? p.dilation : 1;
    const bool half = item == 2;
    if (item == 8 || !has_plain_rows(p) || !has_unit_stride(p) || dilation > (half ? 16 : 1))
      return {};
    const auto taps_of = [&](int64_t products) {
      return half ? (16 * products - 15) / dilation + 1 : products;
    };
    int64_t products = half ? 2 : 4;
    const int64_t most = half ? 8 : 32;
    while (products < most && taps_of(products) < p.taps) products *= 2;
    const int64_t taps = std::min(taps_of(products), p.taps), tap_parts = ceil_div(p.taps, taps);
    const int64_t outputs = half ? kMmaOutputs : 2 * 32 * values;
    const int64_t tiles = tiles_of_row(p, outputs);
    // Chunks have 2 KB of the gradient (7 taps in f32 on an H200: 56 us, 71 us with 1 KB).
    const int64_t chunk_tiles =
        ceil_div(tiles, ceil_div<int64_t>(tiles, (2 << 10) / (outputs * item)));
    const int64_t row_chunks = ceil_div(tiles, chunk_tiles), chunks = p.batch * row_chunks;
    const int64_t grad_vecs = chunk_tiles * outputs / values;
    const int64_t input_vecs =
        grad_vecs + (half ? 2 * products - 1 : ceil_div<int64_t>(products, values) + 1);
    const int64_t warp_bytes = 2 * (grad_vecs + input_vecs) * kAccessBytes +
                               products * (half ? 16 * kScratchPitch * 4 : item);
    // With many pairs of channels, one block per pair fills the device. With fewer, sums are split.
    const int64_t pairs = p.groups * p.to.channels * p.from.channels * tap_parts;
    const int64_t most_shared = weight_shared_bytes(device), fitting = most_shared / warp_bytes;
    if (fitting < 4 || chunks >= kFar) return {};
    const int64_t all = device.sms * kChunkSums;
    const int64_t warps =
        std::clamp<int64_t>(all / pairs, 4, std::min<int64_t>(kWeightWarps, fitting));
    const int64_t splits = splits_of(all / warps, pairs, ceil_div(chunks, warps));
    if (!fits_grid(pairs * splits)) return {};
    WeightChunksPlan plan;
    plan.launch = launch_shape(pairs * splits, static_cast<int>(32 * warps), warps * warp_bytes);
    plan.products = static_cast<int>(products);
    plan.args = {weight_args(p, splits, tap_parts)};
    plan.args.chunks = static_cast<uint32_t>(chunks);
    plan.args.chunk_tiles = static_cast<uint32_t>(chunk_tiles);
    plan.args.input_vecs = static_cast<uint32_t>(input_vecs);
    plan.args.tap_count = static_cast<uint32_t>(taps);
    plan.args.row_chunks = divide_by(row_chunks);
    return plan;
  }

  Terms terms(const Problem&, const Device& device) const {
    const double warps = launch.threads / 32;
    const double chunks = std::ceil(args.chunks / (args.splits.divisor * warps));
    const double tiles = chunks * args.chunk_tiles, per_sm = warps * blocks_per_sm(launch, device);
    // Terms: second launch, taps per thread, chunks per SM, taps per SM, tiles per warp.
    return {args.partial ? 1.0 : 0.0, tiles * products, chunks * per_sm, tiles * products * per_sm,
            tiles};
  }
};

}  // namespace gpuopt::conv1d
