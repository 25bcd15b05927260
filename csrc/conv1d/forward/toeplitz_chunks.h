// fp16 and bf16 of stride 1 with long filters on tensor cores, one input channel per group.
#pragma once

#include "conv1d/forward/toeplitz.h"

namespace gpuopt::conv1d {

constexpr int kLongVecs = 5;  // vectors of outputs per row of A
// Least distance from the first tap to the last. Shorter filters have at most three matrices of
// taps, and run by toeplitz.
constexpr int64_t kLongSpan = 32;

struct ToeplitzChunksPlan : ChunkPlan {
  static constexpr const char* kName = "toeplitz_chunks";
  static constexpr const Costs& kCosts = costs::kToeplitzChunks;

  static std::optional<ToeplitzChunksPlan> make(const Problem& p, const Device& device) {
    if (!is_half(p) || p.from.channels > 1 || !has_plain_rows(p) || !has_unit_stride(p) ||
        span_of(p) < kLongSpan) {
      return {};
    }
    const auto chunks = fit_toeplitz(p, device, kLongVecs * kMmaOutputs, /*most=*/3);
    if (!chunks) return {};
    return ToeplitzChunksPlan{*chunks};
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(args, device), tiles = args.warp_tiles;
    const double products = tiles * static_cast<double>((span_of(p) + 14) / 16 + 1);
    // Terms: mma per warp, tiles, threads, mma per SM.
    return {products, tiles * fill, fill_of(launch, device), products * fill, 0};
  }
};

}  // namespace gpuopt::conv1d
