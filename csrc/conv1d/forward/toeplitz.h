// fp16 and bf16 of stride 1 on tensor cores: the taps form a Toeplitz matrix.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

// Short rows leave a warp few bytes in flight, so a warp may copy several rows at once.
constexpr int64_t kMostWarpRows = 4;

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
    ToeplitzPlan plan{*chunks};
    if (plan.args.row_warps.divisor == 1 && plan.args.warp_tiles == 1) plan.share_warps(p, device);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    // Counted as if every warp had one row, to which the coefficients are fitted.
    const double fill = fill_of(args, device) * args.warp_rows, tiles = args.warp_tiles;
    const auto channels = static_cast<double>(p.from.channels);
    const double products = tiles * channels * static_cast<double>((span_of(p) + 14) / 16 + 1);
    // Terms: mma per warp, tiles, threads, mma per SM, span of the taps.
    return {products, tiles * channels * fill, fill_of(launch, device) * args.warp_rows,
            products * fill, channels * fill * static_cast<double>(span_of(p) * item_of(p)) / 1000};
  }

 private:
  // Gives a warp several rows of one tile, as far as shared memory and twice kChunkWarps allow.
  void share_warps(const Problem& p, const Device& device) {
    const int64_t rows = out_rows(p);
    const auto bytes = static_cast<int64_t>(launch.shared_bytes);
    const int64_t count =
        std::min({kMostWarpRows, kSharedBytes / 2 / bytes, rows / (device.sms * 2 * kChunkWarps)});
    if (count <= 1) return;
    args.warp_rows = static_cast<uint32_t>(count);
    args.warps = static_cast<uint32_t>(ceil_div(rows, count));
    launch = launch_shape(ceil_div<int64_t>(args.warps, kChunkThreads / 32), kChunkThreads,
                          bytes * count);
  }
};

}  // namespace gpuopt::conv1d
