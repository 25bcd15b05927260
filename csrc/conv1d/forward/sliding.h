// f32 of stride 1: a window of inputs slides over the taps in registers.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

struct SlidingPlan : ChunkPlan {
  static constexpr const char* kName = "sliding";
  static constexpr const Costs& kCosts = costs::kSliding;
  bool dilated;

  static std::optional<SlidingPlan> make(const Problem& p, const Device& device) {
    if (item_of(p) != 4 || p.from.channels > 1 || !has_plain_rows(p) || !has_unit_stride(p))
      return {};
    const int64_t item = item_of(p), values = kAccessBytes / item, outputs = tile_outputs(item);
    const bool dilated = has_dilation(p);
    const int64_t taps_pitch = whole_taps(p);
    const int64_t halo = dilated ? (span_of(p) + values - 1) / values + 1
                                 : taps_pitch / values + row_taps(item) / values;
    const auto vecs_of = [&](int64_t tiles) { return tiles * outputs / values + halo; };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, outputs, kSectorBytes), /*most=*/3,
                                   taps_pitch, taps_pitch * compute_bytes(p), vecs_of);
    if (!chunks) return {};
    return SlidingPlan{*chunks, dilated};
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(args, device), tiles = args.warp_tiles;
    const auto channels = static_cast<double>(p.from.channels);
    const double macs = tiles * channels * static_cast<double>(ceil_div<int64_t>(p.taps, 8) * 8) *
                        (dilated ? 2 : 1);
    // Terms: taps per warp, dilated taps per SM, tiles, taps per SM, span of the taps.
    return {macs, dilated ? macs * fill : 0, tiles * channels * fill, macs * fill,
            channels * fill *
                static_cast<double>((p.taps - 1) * (p.taps > 1 ? p.dilation : 1) * item_of(p)) /
                1000};
  }
};

}  // namespace gpuopt::conv1d
