// Weight gradients of stride 1 along short rows: tiles in shared memory hold several rows.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"
#include "conv1d/forward/rows.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

constexpr int kRowsTaps = 8;  // per block

constexpr int64_t weight_outputs(int64_t item) { return 32 / item; }  // per thread

struct WeightRowsArgs : WeightArgs {
  FastDiv row_lanes;   // threads per row
  uint32_t tiles;      // of all rows
  uint32_t tile_rows;  // rows per tile, at most
  uint32_t halo_vecs;  // behind a row
};

struct WeightRowsPlan : PathPlan<WeightRowsArgs> {
  static constexpr const char* kName = "weight_rows";
  static constexpr const Costs& kCosts = costs::kWeightRows;

  static std::optional<WeightRowsPlan> make(const Problem& p, const Device& device) {
    if (item_of(p) == 8 || !has_plain_rows(p) || !has_unit_stride(p) ||
        p.batch * p.to.size >= kFar) {
      return {};
    }
    WeightRowsPlan plan;
    const int64_t item = item_of(p), values = kAccessBytes / item, outputs = weight_outputs(item);
    const int64_t row_lanes = tiles_of_row(p, outputs);
    const int64_t own_taps = std::min<int64_t>(p.taps, kRowsTaps);
    const int64_t halo_vecs = ceil_div(values - 1 + (own_taps - 1) * p.dilation, values);
    const int64_t block_rows = most_rows(kThreads, row_lanes, p.batch);
    const int64_t margin = (8 / values + 4) * kAccessBytes;  // read but not used
    const int64_t tile_vecs = 2 * kThreads * outputs / values + block_rows * halo_vecs;
    const int64_t bytes = 2 * tile_vecs * kAccessBytes + margin;
    const int64_t most_shared = weight_shared_bytes(device);
    if (bytes > most_shared || p.batch * row_lanes >= kFar) return {};
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, kRowsTaps);
    const int64_t tiles = ceil_div<int64_t>(p.batch * row_lanes, kThreads);
    const int64_t pairs = p.groups * p.to.channels * p.from.channels * tap_parts;
    const int64_t splits = splits_of(device.sms * kWeightBlocks, pairs, tiles / kWeightUnits);
    if (!fits_grid(pairs * splits)) return {};
    plan.launch = launch_shape(pairs * splits, kThreads, bytes);
    plan.args = {weight_args(p, splits, tap_parts)};
    plan.args.tiles = static_cast<uint32_t>(tiles);
    plan.args.tile_rows = static_cast<uint32_t>(block_rows);
    plan.args.halo_vecs = static_cast<uint32_t>(halo_vecs);
    plan.args.row_lanes = divide_by(row_lanes);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double tiles = std::ceil(static_cast<double>(args.tiles) / args.splits.divisor);
    const double per_sm = blocks_per_sm(launch, device);
    // Terms: tiles and taps per block, tiles and taps per SM, tiles in waves.
    return {tiles, tiles * static_cast<double>(std::min<int64_t>(kRowsTaps, p.taps)),
            tiles * per_sm, tiles * kRowsTaps * per_sm, tiles * waves_of(launch, device, 3)};
  }
};

}  // namespace gpuopt::conv1d
