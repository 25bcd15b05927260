// Strides other than 1: a thread reads the inputs of its outputs from shared memory.
#pragma once

#include "conv1d/chunk.h"

namespace gpuopt::conv1d {

constexpr int kStridedOutputs = 128;  // of a tile of a warp

struct StridedPlan : ChunkPlan {
  static constexpr const char* kName = "strided";

  static std::optional<StridedPlan> make(const Problem& p, const Device& device) {
    if (!has_plain_rows(p) || has_unit_stride(p)) return {};
    const int64_t values = kAccessBytes / item_of(p), span = span_of(p) + values - 1;
    const int64_t taps_pitch = whole_taps(p);
    const auto packs_of = [&](int64_t tiles) {
      return ((tiles * kStridedOutputs - 1) * p.stride + span) / values + 1;
    };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, kStridedOutputs, kSectorBytes),
                                   /*most=*/4, taps_pitch, taps_pitch * compute_bytes(p), packs_of);
    if (!chunks) return {};
    return StridedPlan{*chunks};
  }
};

}  // namespace gpuopt::conv1d
