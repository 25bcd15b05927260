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

// Chooses the config of a problem: what reduce_rows_config.h and reduce_columns_config.h share.
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

  // Splits each output over as many blocks as it takes to fill the device.
  void split(int blocks_per_sm) {
    const int64_t wanted = int64_t{device.sms} * blocks_per_sm;
    const int64_t groups = ceil_div<int64_t>(config.units(), int64_t{config.y} * units_in_flight());
    if (groups <= tuning.unsplit_groups) return;
    const int64_t most = std::min(wanted / config.tiles, groups);
    if (most > 1) config.splits = static_cast<int>(ceil_div(groups, ceil_div(groups, most)));
  }

  // Whether an input of this size is read faster with streaming loads.
  bool reads_once() const {
    const int64_t bytes =
        layout.outputs * config.outer_units * layout.reduced[0].size * config.apart * item;
    return bytes < tuning.once_below;
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
};

}  // namespace detail
}  // namespace gpuopt::reduce
