// fp16 and bf16 of stride 1 on tensor cores: the taps form a Toeplitz matrix.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

struct ToeplitzPlan : ChunkPlan {
  static constexpr const char* kName = "toeplitz";
  static constexpr const Costs& kCosts = costs::kToeplitz;

  static std::optional<ToeplitzPlan> make(const Problem& p, const Device& device) {
    if (!is_half(p) || !has_plain_rows(p) || !has_unit_stride(p)) return {};
    const int64_t values = kAccessBytes / item_of(p), span = span_of(p);
    const int64_t outputs = tile_outputs(item_of(p));
    // An mma multiplies 16 rows of B, so the taps have zeros before and behind them.
    const int64_t taps_pitch = ceil_div<int64_t>(span + 38, values) * values;
    const auto vecs_of = [&](int64_t tiles) {
      return tiles * outputs / values + (span + 14) / 16 * 2 + 1;
    };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, outputs, kSectorBytes), /*most=*/6,
                                   taps_pitch, taps_pitch * item_of(p), vecs_of);
    if (!chunks) return {};
    return ToeplitzPlan{*chunks};
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(args, device), tiles = args.warp_tiles;
    const auto channels = static_cast<double>(p.from.channels);
    const double products = tiles * channels * static_cast<double>((span_of(p) + 14) / 16 + 1);
    // Terms: mma per warp, tiles, threads, mma per SM, span of the taps.
    return {products, tiles * channels * fill, fill_of(launch, device), products * fill,
            channels * fill * static_cast<double>(span_of(p) * item_of(p)) / 1000};
  }
};

}  // namespace gpuopt::conv1d
