// Strides other than 1: a thread reads the inputs of its outputs from shared memory.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

constexpr int kStridedOutputs = 128;  // per tile of a warp

struct StridedPlan : ChunkPlan {
  static constexpr const char* kName = "strided";
  static constexpr const Costs& kCosts = costs::kStrided;

  static std::optional<StridedPlan> make(const Problem& p, const Device& device) {
    if (item_of(p) == 8 || !has_plain_rows(p) || has_unit_stride(p)) return {};
    const int64_t values = kAccessBytes / item_of(p), span = span_of(p) + values - 1;
    const int64_t taps_pitch = whole_taps(p);
    const auto vecs_of = [&](int64_t tiles) {
      return ((tiles * kStridedOutputs - 1) * p.stride + span) / values + 1;
    };
    const auto chunks = fit_chunks(p, device, tiles_of_row(p, kStridedOutputs, kSectorBytes),
                                   /*most=*/4, taps_pitch, taps_pitch * compute_bytes(p), vecs_of);
    if (!chunks) return {};
    return StridedPlan{*chunks};
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(args, device), tiles = args.warp_tiles;
    const auto channels = static_cast<double>(p.from.channels), taps = static_cast<double>(p.taps);
    const double macs = 4 * tiles * channels * taps;
    // With even strides, threads read from the same banks.
    const auto banks = static_cast<double>(
        std::min<int64_t>(std::gcd<int64_t>(p.stride, 32) * item_of(p) / 4, 32));
    // Terms: input bytes, multiply-adds per thread, taps per SM, bank conflicts, multiply-adds.
    return {channels * fill * tiles * static_cast<double>(kStridedOutputs * p.stride * item_of(p)) /
                1000,
            macs, taps * channels * fill, macs * fill * banks, macs * fill};
  }
};

}  // namespace gpuopt::conv1d
