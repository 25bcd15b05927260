// Depthwise fp16 and bf16 with few taps: tensor cores, with the taps in registers.
#pragma once

#include "conv1d/chunk.h"

namespace gpuopt::conv1d {

constexpr int kFewTaps = 10;  // that reach, behind up to 7 values of a vector, over 24 positions

struct ShortFilterPlan : ChunkPlan {
  static constexpr const char* kName = "short_filter";

  static std::optional<ShortFilterPlan> make(const Problem& p, const Device& device) {
    if (!is_half(p) || p.from.channels > 1 || has_dilation(p) || p.taps > kFewTaps ||
        !has_plain_rows(p) || !has_unit_stride(p)) {
      return {};
    }
    const int64_t outputs = tile_outputs(item_of(p)), values = kAccessBytes / item_of(p);
    const auto packs_of = [&](int64_t tiles) { return tiles * outputs / values + 2; };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, outputs, kSectorBytes), /*most=*/4,
                                   /*taps_pitch=*/0, /*tap_bytes=*/0, packs_of);
    if (!chunks) return {};
    return ShortFilterPlan{*chunks};
  }
};

}  // namespace gpuopt::conv1d
