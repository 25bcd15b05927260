// The atomic path adds values to memory by atomic operations, in one of three forms: each value by
// itself, tiles that sum rows of one bin first, or frequent bins kept apart. This file says what
// each form supports, and plans it. Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

constexpr int kAtomicThreads = 256;
constexpr int kAtomicUnroll = 4;
constexpr uint64_t kMinDestinations = kAtomicThreads * kAtomicUnroll;  // of sums of blocks

// ---------------------------------------------------------------- tiles
// Rows of a tile that name the same bin are summed from this number on. (131072,64) += (2^20,64) in
// f16 takes, with two, three and four: 80.4, 79.5, 79.7 for uniform indices, 93, 104, 113 for Zipf
// 1.1.
constexpr uint32_t kAggregateFrom = 3;
// Most units in a row of a tile. (65536,1024) += (16384,1024) in f32 takes, with 8, 16 and all:
// 66.4, 62.3, 61.9 for uniform indices, 50, 48, 68 for Zipf 1.1.
constexpr int64_t kTileUnits = 16;
// Least units in a row. By tiles and with frequent bins kept apart, in f32 with uniform indices:
// rows of one vector, (65536,4) += (2^21,4), take 51 and 40. Rows of two vectors take 35 and 33,
// and 40 and 54 for Zipf 1.1.
constexpr int64_t kMinTileUnits = 2;
// A block whose full tile has at most this many rows has as many threads, and loads the tile in two
// batches. Its first sums start earlier, and more blocks alternate on an SM. In one batch of 256
// threads and in two of 128:
//   (131072,64) += (2^20,64) f16    uniform 78.6 and 77.7, Zipf 1.1 92 and 93
//   (65536,64) += (2^18,64) bf16    uniform 28.9 and 27.4, Zipf 1.1 36.2 and 37.0
//   (65536,16) += (2^20,16) f32     45.5 and 47.4 (tiles of more rows)
constexpr int kFewRowsThreads = 128;

// ---------------------------------------------------------------- frequent bins apart
// Not swept: the constants of this section.
constexpr int kHotSamples = 1024;
constexpr int kHotFrom = 4;  // samples that make a bin frequent
constexpr int kHotSlotBits = 11;
constexpr int kHotSlots = 1 << kHotSlotBits;
constexpr int kHotCopies = 8;
constexpr int kHotSharedBytes = 24 << 10;
constexpr int kMaxHotBins = 256;
constexpr int kMaxHotRow = 64;
constexpr int kHotBlocksPerSm = 3;

// A unit is one access of a thread, of `values` values.
struct AtomicArgs {
  void* self = nullptr;          // [outer][bin][row], strided
  const void* source = nullptr;  // [outer][entry][row], strided
  Index index;
  uint64_t first_byte = 0, end_byte = 0;  // the addresses of self's elements
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  uint32_t entries = 0;
  FastDiv units;  // units per row
  OuterDims outer;
  uint64_t total_units = 0;
  ScalarValue alpha;
};

struct AtomicPlan {
  int values = 1;
  bool block_sums = false;  // blocks sum units with one destination
  bool wide_self = false;   // self is float32 and source a half type
  AtomicArgs args;
  uint32_t block_units = 0;
  LaunchShape shape;
};

struct TileArgs {
  uint32_t rows = 0;  // of a full tile
  uint32_t slot_bits = 0;
  uint32_t row_units = 0;  // of a whole row; a tile has args.units of them
  uint32_t row_values = 0;
  uint64_t source_end = 0;  // the address behind the source's elements
  FastDiv columns;          // tiles that make up a row
  FastDiv per_outer;        // tiles below each other, per outer index
};

// The accesses of tiles are vectors.
struct TilesPlan {
  bool anywhere = false;   // rows are not whole aligned vectors
  bool wide_self = false;  // as in AtomicPlan
  AtomicArgs args;
  TileArgs tile;
  LaunchShape shape;
};

// The result of find_hot_bins().
struct HotList {
  uint32_t count;
  uint32_t bins[kMaxHotBins];
};

struct HotPlan {
  int values = 1;
  AtomicArgs args;
  uint32_t block_units = 0;
  uint32_t hot_bins = 0;  // limit on frequent bins with sums in shared memory
  LaunchShape find, add;
};

// log2 of the slots in the hash table of a tile. At most half of the slots are used.
inline int tile_slot_bits(int64_t rows) { return bits_for(rows) + 1; }

// Shared memory of TileTables.
inline int64_t tile_shared_bytes(int64_t rows) {
  return (int64_t{1} << tile_slot_bits(rows)) * 8 + rows * 4 + rows / kAggregateFrom * 8 + rows * 6;
}

inline bool has_vectors(const Problem& problem, const Layout& layout) {
  return values_per_access(problem, layout) * size_of(problem.dtype) == kAccessBytes;
}

// Whether tiles are supported and faster: rows of several vectors, which may lie anywhere in half
// types. Booleans are stored instead of added, so they do not queue up. Plain additions sum the
// rows that a warp has in one bin, so those queue up less. If a warp has many rows, tiles are
// faster from more entries on.
inline bool aggregates(const Problem& problem, const Layout& layout, const Tuning& tuning) {
  const bool anywhere = is_half(problem.dtype) && !problem.wide_self &&
                        layout.inner.self_stride == 1 && layout.inner.source_stride == 1;
  const int64_t values = kAccessBytes / static_cast<int64_t>(size_of(problem.dtype));
  const bool vectors = has_vectors(problem, layout);
  const int64_t units = std::max<int64_t>(layout.inner.size / values, 1);
  const int64_t warp_rows =
      vectors && layout.outer_size == 1 ? std::max<int64_t>(kWarp / 2 / units, 1) : 1;
  return (vectors || anywhere) && problem.dtype != DType::kBool &&
         layout.inner.size >= kMinTileUnits * values &&
         problem.entries >= tuning.min_tile_entries * warp_rows && problem.bins < UINT32_MAX;
}

// Whether frequent bins may delay the other additions, in rows that tiles do not support.
inline bool may_queue_up(const Problem& problem, const Layout& layout, const Tuning& tuning) {
  const int64_t width = layout.inner.size;
  return width <= kMaxHotRow && layout.outer_size == 1 && problem.bins < UINT32_MAX &&
         problem.entries >= kHotSamples && problem.entries * width >= tuning.min_hot_values;
}

inline AtomicArgs make_atomic_args(const Problem& problem, const Layout& layout, int values) {
  AtomicArgs args;
  set_operands(args, problem, layout);
  args.index = make_index(problem);
  int64_t reach = 1 + (problem.bins - 1) * problem.bin_stride +
                  (layout.inner.size - 1) * layout.inner.self_stride;
  for (int d = 0; d < layout.num_outer; ++d) {
    reach += (layout.outer[d].size - 1) * layout.outer[d].self_stride;
  }
  args.first_byte = reinterpret_cast<uint64_t>(problem.self);
  args.end_byte = args.first_byte + static_cast<uint64_t>(reach) * size_of(self_dtype(problem));
  args.entries = static_cast<uint32_t>(problem.entries);
  const int64_t units = ceil_div<int64_t>(layout.inner.size, values);
  args.units = divide_by(units);
  args.total_units = static_cast<uint64_t>(units * problem.entries * layout.outer_size);
  return args;
}

// Whether blocks sum units of less than 16 bytes. Booleans are stored instead of added. Few
// destinations have several units in each block by chance: sums of (253) += (20589) in bf16 take
// 37, single additions 17.
inline bool has_block_sums(const Problem& problem, const AtomicPlan& plan, const Tuning& tuning) {
  const auto values = static_cast<size_t>(plan.values);
  const uint64_t destinations =
      (plan.args.end_byte - plan.args.first_byte) / (size_of(self_dtype(problem)) * values);
  return size_of(problem.dtype) * values < kAccessBytes && problem.dtype != DType::kBool &&
         problem.entries >= tuning.min_block_sums && destinations >= kMinDestinations &&
         destinations < UINT32_MAX;
}

inline AtomicPlan plan_atomic(const Problem& problem, const Layout& layout, const Device& device,
                              const Tuning& tuning, int values) {
  AtomicPlan plan;
  plan.values = values;
  plan.wide_self = problem.wide_self;
  plan.args = make_atomic_args(problem, layout, plan.values);
  plan.block_sums = has_block_sums(problem, plan, tuning);
  // In a small problem each thread has one unit, so that no unit waits for another.
  const uint64_t threads = uint64_t(device.sms) * kAtomicThreads;
  const uint64_t thread_units =
      std::clamp<uint64_t>(plan.args.total_units / threads, 1, kAtomicUnroll);
  plan.block_units = static_cast<uint32_t>(thread_units) * kAtomicThreads;
  plan.shape.threads = kAtomicThreads;
  plan.shape.blocks =
      static_cast<unsigned>(ceil_div<uint64_t>(plan.args.total_units, plan.block_units));
  plan.shape.use_pdl = true;
  return plan;
}

inline TilesPlan plan_tiles(const Problem& problem, const Layout& layout, const Device& device,
                            const Tuning& tuning) {
  TilesPlan plan;
  plan.anywhere = !has_vectors(problem, layout);
  plan.wide_self = problem.wide_self;
  const int values = kAccessBytes / static_cast<int>(size_of(problem.dtype));
  const AtomicPlan atomic = plan_atomic(problem, layout, device, tuning, values);
  plan.args = atomic.args;
  // The tiles of a row are equally wide.
  const int64_t units = atomic.args.units.divisor;
  const int64_t tile_units = ceil_div(units, ceil_div<int64_t>(units, kTileUnits));
  plan.args.units = divide_by(tile_units);
  TileArgs& tile = plan.tile;
  tile.rows = atomic.block_units / static_cast<uint32_t>(tile_units);
  tile.slot_bits = static_cast<uint32_t>(tile_slot_bits(tile.rows));
  tile.row_units = static_cast<uint32_t>(units);
  tile.row_values = static_cast<uint32_t>(layout.inner.size);
  int64_t last = (problem.entries - 1) * problem.entry_stride + layout.inner.size;
  for (int d = 0; d < layout.num_outer; ++d) {
    last += (layout.outer[d].size - 1) * layout.outer[d].source_stride;
  }
  tile.source_end = reinterpret_cast<uint64_t>(problem.source) +
                    static_cast<uint64_t>(last) * size_of(problem.dtype);
  tile.columns = divide_by(ceil_div(units, tile_units));
  tile.per_outer = FastDiv(ceil_div(plan.args.entries, tile.rows));
  const bool few_rows =
      atomic.block_units == kAtomicUnroll * kAtomicThreads && tile.rows <= kFewRowsThreads;
  plan.shape.threads = few_rows ? kFewRowsThreads : kAtomicThreads;
  plan.shape.blocks =
      tile.columns.divisor * tile.per_outer.divisor * static_cast<unsigned>(layout.outer_size);
  plan.shape.shared_bytes = static_cast<size_t>(tile_shared_bytes(tile.rows));
  plan.shape.use_pdl = true;
  return plan;
}

inline HotPlan plan_hot(const Problem& problem, const Layout& layout, const Device& device) {
  HotPlan plan;
  plan.values = values_per_access(problem, layout);
  plan.args = make_atomic_args(problem, layout, plan.values);
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  plan.hot_bins = static_cast<uint32_t>(
      std::min<int64_t>(kMaxHotBins, kHotSharedBytes / (bytes * width * kHotCopies)));
  plan.find.threads = kHotSamples;
  plan.find.use_pdl = true;
  const uint64_t units = plan.args.total_units;
  const auto most_blocks = static_cast<uint64_t>(kHotBlocksPerSm * device.sms);
  plan.block_units = static_cast<uint32_t>(ceil_div(units, most_blocks));
  plan.add.threads = kAtomicThreads;
  plan.add.blocks = static_cast<unsigned>(ceil_div<uint64_t>(units, plan.block_units));
  plan.add.shared_bytes =
      plan.hot_bins * static_cast<size_t>(width) * kHotCopies * sum_bytes(problem.dtype);
  plan.add.use_pdl = true;
  return plan;
}

template <typename F>
void describe(const AtomicPlan& plan, F&& f) {
  f("path", "atomic");
  f("values", plan.values);
  f("block_sums", plan.block_sums);
  f("units", plan.args.units.divisor);
  f("thread_units", plan.block_units / kAtomicThreads);
  f("blocks", plan.shape.blocks);
}

template <typename F>
void describe(const TilesPlan& plan, F&& f) {
  f("path", "tiles");
  f("wide_self", plan.wide_self);
  f("anywhere", plan.anywhere);
  f("units", plan.tile.row_units);
  f("tile_units", plan.args.units.divisor);
  f("tile_rows", plan.tile.rows);
  f("threads", plan.shape.threads);
  f("blocks", plan.shape.blocks);
}

template <typename F>
void describe(const HotPlan& plan, F&& f) {
  f("path", "hot");
  f("values", plan.values);
  f("units", plan.args.units.divisor);
  f("hot_bins", plan.hot_bins);
  f("blocks", plan.add.blocks);
}

}  // namespace gpuopt::index_add
