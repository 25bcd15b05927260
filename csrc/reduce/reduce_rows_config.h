// How rows are read: from layout and alignment to a path, threads of a row, and splits.
#pragma once

#include "reduce/reduce_config.h"

namespace gpuopt::reduce::detail {

// Chooses the config of a problem whose innermost dimension is reduced.
struct RowsChooser : Chooser {
  // How far apart the values of the innermost dimension lie, if vectors that hold at least two of
  // them are read together with the gaps. Otherwise 1.
  int64_t gaps_of_vecs() const {
    if (!types.native || layout.count == 0) return 1;
    const int64_t apart = layout.dims[0].in_stride;
    const bool several = apart >= 2 && 2 * apart <= values;
    return several && extent(layout.dims[0], apart) <= kMaxIndex32 ? apart : 1;
  }

  static int64_t extent(const Dim& dim, int64_t apart) { return (dim.size - 1) * apart + 1; }

  // Whether single values of neighbouring outputs share memory sectors.
  bool shares_sectors() const {
    const int64_t stride = layout.kept[0].in_stride;
    return !config.vecs && stride > 0 && stride * item <= kSectorBytes;
  }

  // can_be_line: path kLine supports the problem, if a block has one output.
  void plan_rows(bool can_be_line) {
    const int64_t units = config.units();
    // Enough threads per row that all units of a thread are in flight at once, and at least enough
    // to read whole memory sectors, unless threads that are side by side do.
    int64_t y = shares_sectors()
                    ? 1
                    : std::max(pow2_ceil(ceil_div<int64_t>(units, units_in_flight())),
                               std::min<int64_t>(pow2_ceil(units), config.vecs ? 4 : 8));
    // If that doesn't fill the device, more threads per output, down to one unit per thread.
    const int64_t threads = int64_t{device.sms} * tuning.row_threads;
    y = std::max(y, std::min(pow2_ceil(units), pow2_ceil(threads / layout.outputs)));
    // An SM with one output has threads to spare, and path kLine is the fastest: 1000 values in f32
    // take 0.91 us there, and as many in bf16, which are 125 vectors, 1.56 us on path kRows.
    if (can_be_line && layout.outputs <= device.sms) y = kThreads;
    // A warp combines by shuffles alone, so it reads a row faster than several that meet in shared
    // memory, unless these have all vectors of f32 in flight at once.
    const bool in_one_round = 10 * units >= 9 * y * units_in_flight() && values <= 4;
    if (config.vecs && y > kWarp && y < kThreads && !in_one_round &&
        layout.outputs * kWarp >= int64_t{device.sms} * kThreads * kBlocks) {
      y = kWarp;
    }
    config.y = static_cast<int>(std::min<int64_t>(y, kThreads));
    config.z = kThreads / config.y;
    config.tiles = ceil_div<int64_t>(layout.outputs, config.z);
    if (config.z > 1) return;
    split(tuning.row_blocks);
  }

  void plan_short_rows() {
    config.path = Path::kShortRows;
    config.y = static_cast<int>(pow2_ceil(config.units()));
    config.z = kThreads / config.y;
    config.tiles = ceil_div<int64_t>(layout.outputs, int64_t{config.z} * kVecUnroll);
  }

  void choose() {
    // Gaps lie at the same positions of all vectors of an output.
    int64_t apart = gaps_of_vecs();
    for (int d = 0; d < layout.num_reduced; ++d) {
      if (values % apart != 0 || layout.reduced[d].in_stride % apart != 0) apart = 1;
    }
    const int64_t row = extent(layout.reduced[0], apart);
    config.inner_units = layout.reduced[0].size;
    const bool can_vec = vecs_are_possible() || apart > 1;
    const bool whole_vecs = vecs_are_aligned(1) && row % values == 0 && apart == 1;
    const bool back_to_back = layout.num_kept == 1 && layout.num_reduced == 1 &&
                              layout.kept[0].in_stride == row && starts_aligned();
    if (can_vec && whole_vecs && config.outer_units == 1 && row / values <= tuning.short_row_vecs) {
      config.vecs = true;
      config.inner_units = row / values;
      plan_short_rows();
      return;
    }
    if (can_vec && back_to_back && row < values && values % row == 0) {
      config.packed_out = has_packed_out(values / static_cast<int>(row));
      plan_rows_in_vecs();
      return;
    }
    config.vecs = can_vec && (whole_vecs || row >= (apart > 1 ? kWarp : 2) * values);
    // A piece of one row, or of several that are too short for vectors.
    const bool one_row = layout.num_kept == 1 && layout.num_reduced == 1;
    if (!whole_vecs && (one_row || !config.vecs) &&
        has_pieces(one_row ? tuning.tile_row_bytes : tuning.tile_bytes)) {
      config.vecs = false;
      plan_tile();
      return;
    }
    config.unaligned = config.vecs && !whole_vecs;
    if (config.vecs) {
      config.inner_units = row / values;
      config.apart = apart;
    }
    config.read_once = reads_once();
    const bool can_be_line =
        config.vecs && whole_vecs && config.outer_units == 1 && layout.num_kept <= 1;
    plan_rows(can_be_line);
    config.shared_bytes = accumulator_bytes() * config.threads();
    if (can_be_line && config.z == 1 && (layout.linear_out || config.splits > 1)) {
      config.path = Path::kLine;
    }
  }
};

}  // namespace gpuopt::reduce::detail
