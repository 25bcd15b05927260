// How a launch reads a problem: from layout, dtypes and alignment to a path, blocks, threads and
// splits. Plain host C++.
//
// An output is one value of the result. A unit is one load of a thread: a vector of 16 bytes, or a
// single value. The units of an output may be split over several blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/device.h"
#include "reduce/reduce_problem.h"
#include "reduce/reduce_tuning.h"
#include "reduce/reduce_types.h"

namespace gpuopt::reduce {

enum class Path : uint8_t {
  // The innermost dimension is reduced, and threads run along it.
  kRows,
  // As kRows, if a block reads one aligned row or a split of one.
  kLine,
  // Aligned rows of at most Tuning::short_row_vecs vectors. Each thread reads several rows.
  kShortRows,
  // A vector holds several rows.
  kRowsInVecs,
  // Pieces of memory that hold all values of their outputs: other short rows, windows of an image,
  // two columns of nine values. A block copies neighbouring pieces to shared memory as one.
  kTile,
  // The innermost dimension is kept, and each thread keeps the columns of one vector.
  kColumns,
  // Combines the partial results of split outputs.
  kFinish,
};

struct Config {
  Path path = Path::kRows;
  bool vecs = false;       // units are vectors of 16 bytes; if not, single values
  bool unaligned = false;  // vectors, or rows of vectors, may begin at any address
  bool read_once = false;  // loads are streaming: their data leaves the caches first
  // kRows: unaligned vectors hold every apart-th value of memory, and skip what lies between.
  int64_t apart = 1;

  // There are inner_units units along the innermost reduced dimension, and outer_units positions
  // along the others.
  int64_t outer_units = 1;
  int64_t inner_units = 1;
  int64_t units() const { return outer_units * inner_units; }

  // A block has x * y * z threads: x along the columns, y along the units of an output, z along the
  // outputs (on path kColumns: along rows of outputs).
  int x = 1, y = 1, z = 1;
  int threads() const { return x * y * z; }
  int64_t column_vecs = 1;   // kColumns: what threads read of a row of columns, side by side
  int64_t column_tiles = 1;  // kColumns: blocks side by side along a row
  // kColumns: so many rows of columns are read as one row of whole vectors (README.md draws it).
  int fold = 1;
  // kColumns: all vectors of a thread begin at the same offset in an aligned one, and the thread
  // reads that. Blocks side by side share `overlap` vectors.
  bool shifted = false;
  int overlap = 0;
  // kColumns: a thread reads several columns value by value. They are as far apart as the block is
  // wide, so that neighbouring threads read neighbouring values.
  bool spread = false;
  bool packed_out = false;  // neighbouring outputs of a thread are an aligned vector in memory
  int64_t tile_pieces = 1;  // kTile: pieces of a block
  int64_t span = 1;         // kTile: values from the first to the last of a piece
  int64_t tiles = 1;        // blocks that cover the outputs

  // The units of an output are dealt to `splits` blocks. They write partial results to a workspace,
  // and a second launch combines them.
  int splits = 1;

  int64_t blocks() const { return tiles * splits; }
  size_t shared_bytes = 0;
};

namespace detail {

// Chooses the config of a problem.
struct Chooser {
  const Problem& problem;
  const Layout& layout;
  const Types& types;
  const Device& device;
  const Tuning& tuning;
  const int64_t item = size_of(problem.in_dtype);
  const int values = static_cast<int>(kAccessBytes / item);  // of a vector
  Config config = {};

  bool starts_aligned() const { return is_aligned(problem.in, kAccessBytes); }

  // Whether the innermost dimension can be read in vectors of several values. (A value of 16 bytes
  // is a vector already.)
  bool vecs_are_possible() const {
    return types.native && values > 1 && layout.count > 0 && layout.dims[0].in_stride == 1;
  }

  // How far apart the values of the innermost dimension lie, if vectors that hold at least two of
  // them are read together with the gaps. Otherwise 1.
  int64_t gaps_of_vecs() const {
    if (!types.native || layout.count == 0) return 1;
    const int64_t apart = layout.dims[0].in_stride;
    const bool several = apart >= 2 && 2 * apart <= values;
    return several && spread(layout.dims[0], apart) <= kMaxIndex32 ? apart : 1;
  }

  static int64_t spread(const Dim& dim, int64_t apart) { return (dim.size - 1) * apart + 1; }

  // Whether vectors are aligned at every index of the dimensions from `skip` on.
  bool vecs_are_aligned(int skip) const {
    if (!starts_aligned()) return false;
    for (int d = skip; d < layout.count; ++d) {
      if (layout.dims[d].in_stride % values != 0) return false;
    }
    return true;
  }

  // Whether each run of so many neighbouring outputs is an aligned vector in memory.
  bool has_packed_out(int run) const {
    const size_t bytes = std::min<size_t>(kAccessBytes, size_of(problem.dtype) * run);
    if (!is_aligned(problem.out, bytes)) return false;
    if (layout.kept[0].out_stride != 1) return false;
    for (int d = 1; d < layout.num_kept; ++d) {
      if (layout.kept[d].out_stride % run != 0) return false;
    }
    return true;
  }

  size_t accumulator_bytes() const { return size_of(accumulator_of(types.values)); }

  int units_in_flight() const {
    return config.vecs || config.spread ? kVecUnroll : values_in_flight(types.native, item);
  }

  // Whether so many blocks keep the device busy to the end. Half as many as SMs hold at once are
  // enough. More run in waves, and the last wave should be nearly full.
  bool fills(int64_t blocks) const {
    const int64_t wave = int64_t{device.sms} * kBlocks;
    if (blocks <= wave) return 2 * blocks >= wave;
    return static_cast<double>(blocks) >=
           tuning.least_fill * static_cast<double>(ceil_div(blocks, wave) * wave);
  }

  // Splits each output over as many blocks as it takes to fill the device. With `in_waves`, outputs
  // of many groups are split further if that keeps it busy to the end.
  void split(int blocks_per_sm, bool in_waves = false) {
    const int64_t wanted = int64_t{device.sms} * blocks_per_sm;
    const int64_t groups = ceil_div<int64_t>(config.units(), int64_t{config.y} * units_in_flight());
    if (groups <= tuning.unsplit_groups) return;
    int64_t most = std::min(std::max<int64_t>(wanted / config.tiles, 1), groups);
    if (in_waves && !fills(config.tiles * most)) {
      int64_t more = most + 1;
      const int64_t last = groups / tuning.wave_groups;
      while (more <= last && !fills(config.tiles * more)) ++more;
      if (more <= last) most = more;
    }
    if (most > 1) config.splits = static_cast<int>(ceil_div(groups, ceil_div(groups, most)));
  }

  // Whether an input of this size is read faster with streaming loads.
  bool reads_once() const {
    const int64_t bytes =
        layout.outputs * config.outer_units * layout.reduced[0].size * config.apart * item;
    return bytes >= tuning.once_from && bytes < tuning.once_below;
  }

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
    if (y > kWarp && y < kThreads && !in_one_round &&
        layout.outputs * kWarp >= int64_t{device.sms} * kThreads * kBlocks) {
      y = kWarp;
    }
    config.y = static_cast<int>(std::min<int64_t>(y, kThreads));
    config.z = kThreads / config.y;
    config.tiles = ceil_div<int64_t>(layout.outputs, config.z);
    if (config.z > 1) return;
    split(config.outer_units > 1 ? tuning.many_rows_blocks : tuning.row_blocks);
  }

  void plan_short_rows() {
    config.path = Path::kShortRows;
    config.y = static_cast<int>(pow2_ceil(config.units()));
    config.z = kThreads / config.y;
    config.tiles = ceil_div<int64_t>(layout.outputs, int64_t{config.z} * kVecUnroll);
  }

  void plan_rows_in_vecs() {
    config.path = Path::kRowsInVecs;
    config.z = kThreads;
    const int64_t rows = values / layout.reduced[0].size;
    config.tiles = ceil_div<int64_t>(layout.outputs, rows * kThreads * kVecUnroll);
  }

  // Whether a step along the outermost dimension, which is kept, leads to another piece of memory
  // with all values of some outputs. A piece has at most `most` bytes, no more gaps than values,
  // and threads that are side by side find their values in enough banks of shared memory.
  bool has_pieces(int64_t most) const {
    if (!types.native || values == 1 || layout.count < 2) return false;
    const Dim& outer = layout.dims[layout.count - 1];
    if (outer.reduced || outer.in_stride * item > most) return false;
    int64_t inside = 1;
    for (int d = 0; d + 1 < layout.count; ++d) inside *= layout.dims[d].size;
    if (inside * 2 < outer.in_stride || span_of_piece() > outer.in_stride) return false;
    int64_t neighbours = 1;
    for (int d = 0; d < layout.num_kept && neighbours < kWarp; ++d) {
      // All banks have 128 bytes. Steps along the dimension lead to every gap-th of them.
      constexpr int64_t kBanks = kWarp * kBankBytes;
      const int64_t gap = std::gcd(layout.kept[d].in_stride * item, kBanks);
      const int64_t in_bank = ceil_div(kWarp / neighbours * gap, kBanks);
      if (in_bank > kMostInBank) return false;
      neighbours *= layout.kept[d].size;
    }
    return true;
  }

  int64_t span_of_piece() const {
    int64_t span = 1;
    for (int d = 0; d + 1 < layout.count; ++d) {
      span += (layout.dims[d].size - 1) * layout.dims[d].in_stride;
    }
    return span;
  }

  void plan_tile() {
    config.path = Path::kTile;
    config.span = span_of_piece();
    const Dim& outer = layout.dims[layout.count - 1];
    const int64_t piece_bytes = outer.in_stride * item;
    const int64_t piece_outputs = layout.outputs / outer.size;
    // At most 32 values per thread, and at most the 48 KB of shared memory of any launch.
    constexpr int64_t kShared = (48 << 10) - kAccessBytes;
    config.y = static_cast<int>(
        std::min<int64_t>(pow2_ceil(ceil_div<int64_t>(config.units(), 32)), kThreads));
    const auto least = [&] { return std::max<int64_t>(kThreads / config.y / piece_outputs, 1); };
    while (least() * piece_bytes > kShared) config.y *= 2;
    config.z = kThreads / config.y;
    // Each group of threads has an output or more, and each SM a block, if there are enough.
    const int64_t fill = std::min(tuning.tile_least_bytes / piece_bytes, outer.size / device.sms);
    const int64_t most = std::min(tuning.tile_bytes / piece_bytes,
                                  std::max(fill, outer.size / (device.sms * tuning.tile_blocks)));
    int64_t times = std::clamp<int64_t>(most / least(), 1, 16);
    if (times > kTileOutputs) times -= times % kTileOutputs;
    config.tile_pieces = least() * times;
    config.tiles = ceil_div(outer.size, config.tile_pieces);
    // A tile may begin behind an aligned vector.
    config.shared_bytes = static_cast<size_t>(config.tile_pieces * piece_bytes + kAccessBytes);
  }

  // After so many rows, columns begin at the same offset in a vector again.
  int64_t rows_of_shift() const {
    return values / std::gcd(layout.reduced[0].in_stride, int64_t{values});
  }

  bool can_be_shifted() const {
    if (!vecs_are_possible() || values > tuning.shifted_values || config.outer_units > 1)
      return false;
    const int64_t least = std::clamp(rows_of_shift() * tuning.shifted_column, tuning.least_shifted,
                                     tuning.most_shifted);
    return config.units() >= least && layout.kept[0].size >= values &&
           layout.reduced[0].in_stride >= values;
  }

  void plan_columns() {
    const int64_t outer = layout.outputs / layout.kept[0].size;
    const int64_t width = config.column_vecs;
    const int64_t step = config.shifted ? rows_of_shift() : 1;  // y is a multiple of it
    int64_t groups = std::max(ceil_div<int64_t>(config.units(), units_in_flight()), step);
    int64_t wide = config.units() <= tuning.short_column ? tuning.wide_short : tuning.wide;
    if (!config.vecs) {
      if (!config.spread) wide = tuning.wide_values;
      // Threads need no partners if there are enough of them.
      const int64_t enough = device.sms * groups * tuning.alone_threads;
      if (outer * width >= enough) groups = 1;
    }
    wide = std::min(wide, kThreads / step);
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
    if (config.z == 1) split(tuning.column_blocks, /*in_waves=*/true);
    const int of_thread = config.vecs ? values : config.spread ? spread_columns(item) : 1;
    config.shared_bytes = accumulator_bytes() * config.threads() * of_thread;
  }

  // Chooses a path for a reduced innermost dimension.
  void plan_inner_reduced() {
    // Gaps lie at the same positions of all vectors of an output.
    int64_t apart = gaps_of_vecs();
    for (int d = 0; d < layout.num_reduced; ++d) {
      if (values % apart != 0 || layout.reduced[d].in_stride % apart != 0) apart = 1;
    }
    const int64_t row = spread(layout.reduced[0], apart);
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

  // Chooses how columns are read and the shape of the blocks.
  void plan_inner_kept() {
    const int64_t columns = layout.kept[0].size;
    const bool can_vec = vecs_are_possible();
    if (can_vec && layout.count == 1 && starts_aligned()) {  // nothing is reduced
      config.packed_out = has_packed_out(values);
      plan_rows_in_vecs();
      return;
    }
    config.inner_units = layout.reduced[0].size;
    // Rows of columns that are not whole vectors. Long columns of few rows are better folded.
    const int64_t piece = layout.reduced[0].size < tuning.long_column ? 2 * tuning.tile_row_bytes
                                                                      : tuning.tile_row_bytes;
    if (columns % values != 0 && has_pieces(piece)) {
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

}  // namespace detail

inline Config config_of(const Problem& problem, const Layout& layout, const Types& types,
                        const Device& device, const Tuning& tuning) {
  detail::Chooser chooser{problem, layout, types, device, tuning};
  for (int d = 1; d < layout.num_reduced; ++d) {
    chooser.config.outer_units *= layout.reduced[d].size;
  }
  if (layout.count == 0 || layout.dims[0].reduced) {
    chooser.plan_inner_reduced();
  } else {
    chooser.plan_inner_kept();
  }
  return chooser.config;
}

}  // namespace gpuopt::reduce
