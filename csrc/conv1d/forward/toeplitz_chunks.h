// fp16 and bf16 of stride 1 with long filters on tensor cores, one input channel per group.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int kLongVecs = 5;  // vectors of outputs per row of A
// Least distance from the first tap to the last. Shorter filters have at most three matrices of
// taps, and run by toeplitz.
constexpr int64_t kLongSpan = 32;

struct ToeplitzChunksPlan : ChunkPlan {
  static constexpr const char* kName = "toeplitz_chunks";
  static constexpr const Costs& kCosts = costs::kToeplitzChunks;

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<ToeplitzChunksPlan> make(const Problem& p, const Device& device) {
    if (!is_half(p) || p.from.channels > 1 || !has_plain_rows(p) || !has_unit_stride(p)) return {};
    const int64_t values = kAccessBytes / item_of(p), outputs = kLongVecs * kMmaOutputs;
    const int64_t span = span_of(p);
    if (span < kLongSpan) return {};
    const int64_t taps_pitch = ceil_div<int64_t>(span + 38, values) * values;
    const auto vecs_of = [&](int64_t tiles) {
      return tiles * outputs / values + (span + 14) / 16 * 2 + 1;
    };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, outputs, kSectorBytes), /*most=*/3,
                                   taps_pitch, taps_pitch * item_of(p), vecs_of);
    if (!chunks) return {};
    return ToeplitzChunksPlan{*chunks};
  }
};

inline Terms ToeplitzChunksPlan::terms(const Problem& p, const Device& device) const {
  const double fill = fill_of(args, device), tiles = args.warp_tiles;
  const double products = tiles * static_cast<double>((span_of(p) + 14) / 16 + 1);
  // Terms: mma per warp, tiles, threads, mma per SM.
  return {products, tiles * fill, fill_of(launch, device), products * fill, 0};
}

}  // namespace gpuopt::conv1d
