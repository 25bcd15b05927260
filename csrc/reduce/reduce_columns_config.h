// How columns are read: in vectors, folded, shifted, spread, or singly (README.md), and the shape
// of the blocks.
#pragma once

#include <numeric>

#include "reduce/reduce_config.h"

namespace gpuopt::reduce::detail {

// Chooses the config of a problem whose innermost dimension is kept.
struct ColumnsChooser : Chooser {
  // After so many rows, columns begin at the same offset in a vector again.
  int64_t rows_of_shift() const {
    return values / std::gcd(layout.reduced[0].in_stride, int64_t{values});
  }

  // Whether columns are long enough to be read from aligned vectors, wherever their rows begin.
  bool can_be_shifted() const {
    return vecs_are_possible() && values <= kShiftedValues && config.outer_units == 1 &&
           config.units() >= rows_of_shift() * tuning.shifted_column &&
           layout.kept[0].size >= values && layout.reduced[0].in_stride >= values;
  }

  void plan_columns() {
    const int64_t outer = layout.outputs / layout.kept[0].size;
    const int64_t width = config.column_vecs;
    const int64_t step = config.shifted ? rows_of_shift() : 1;  // y is a multiple of it
    int64_t groups = std::max(ceil_div<int64_t>(config.units(), units_in_flight()), step);
    if (!config.vecs) {
      // Threads need no partners if there are enough of them.
      const int64_t enough = device.sms * groups * tuning.alone_threads;
      if (outer * width >= enough) groups = 1;
    }
    const bool is_single = !config.vecs && !config.spread;
    const int64_t wide = std::min((is_single ? 2 : 1) * tuning.wide, kThreads / step);
    int64_t own = width;
    if (config.fold == 1 && width + config.overlap > wide) {
      const int64_t fits = kThreads / std::min<int64_t>(groups, kThreads / wide) - config.overlap;
      own = ceil_div(width, ceil_div(width, fits));
    }
    config.x = static_cast<int>(own) + config.overlap;
    const int64_t y = std::min<int64_t>(groups, kThreads / config.x);
    // Rounds of one length: 5 groups are read by 3 threads in two rounds, not by 4.
    config.y = static_cast<int>(step > 1 ? y - y % step : ceil_div(groups, ceil_div(groups, y)));
    config.z = static_cast<int>(std::min<int64_t>(outer, kThreads / (config.x * config.y)));
    config.column_tiles = ceil_div<int64_t>(width, own);
    config.tiles = config.column_tiles * ceil_div<int64_t>(outer, config.z);
    if (config.z == 1) split(kBlocks);
    const int of_thread = config.vecs ? values : config.spread ? spread_columns(item) : 1;
    config.shared_bytes = accumulator_bytes() * config.threads() * of_thread;
  }

  void choose() {
    const int64_t columns = layout.kept[0].size;
    const bool can_vec = vecs_are_possible();
    if (can_vec && layout.count == 1 && starts_aligned()) {  // nothing is reduced
      config.packed_out = has_packed_out(values);
      plan_rows_in_vecs();
      return;
    }
    config.inner_units = layout.reduced[0].size;
    // Rows of columns that are not whole vectors.
    if (columns % values != 0 && has_pieces(2 * tuning.tile_row_bytes)) {
      plan_tile();
      return;
    }
    config.path = Path::kColumns;
    config.column_vecs = columns;
    const int64_t common = std::gcd(columns, int64_t{values});
    const bool back_to_back =
        layout.count > 1 && layout.dims[1].reduced && layout.dims[1].in_stride == columns;
    constexpr int64_t kMostFoldedVecs = 128;
    if (can_vec && columns % values == 0 && vecs_are_aligned(1)) {
      config.vecs = true;
      config.column_vecs = columns / values;
    } else if (can_vec && back_to_back && common < values && columns / common <= kMostFoldedVecs &&
               layout.reduced[0].size * common >= values) {
      // Rows of columns without gaps between them: `fold` rows are one row of whole vectors.
      config.vecs = true;
      config.fold = static_cast<int>(values / common);
      config.column_vecs = columns / common;
      config.inner_units = layout.reduced[0].size / config.fold;
      config.unaligned = !vecs_are_aligned(2);
    } else if (can_be_shifted()) {
      config.vecs = config.unaligned = config.shifted = true;
      config.column_vecs = ceil_div<int64_t>(columns, values);
      config.overlap = vecs_are_aligned(1) ? 0 : 1;
    } else if (types.native && values > 1 &&
               layout.outputs >= int64_t{device.sms} * kThreads * kBlocks) {
      config.spread = true;
      config.column_vecs = ceil_div<int64_t>(columns, spread_columns(item));
    }
    config.packed_out = config.vecs && config.fold == 1 && has_packed_out(values);
    // Folded rows that begin inside of vectors are read twice.
    config.read_once = config.vecs && reads_once() && !(config.fold > 1 && config.unaligned);
    plan_columns();
  }
};

}  // namespace gpuopt::reduce::detail
