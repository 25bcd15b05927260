// Sizes, strides and dtypes -> which kernel takes a convolution and how it is cut into blocks. Plain host
// C++: tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/index.h"
#include "conv1d/conv1d_problem.h"
#include "conv1d/conv1d_tuning.h"

namespace gpuopt::conv1d {

enum class Pass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

constexpr int kAccessBytes = 16;
// What memory writes at once: parts of one cost as much as all of it, and in writes of 64 bytes to rows that aren't aligned
// to it more than that (512 channels of 15999 bf16: 165 us, and 76 where rows are aligned).
constexpr int kSectorBytes = 32;

enum class Path : uint8_t {
  kLibrary,  // dense problems, which have no kernel here
  kChunks,   // contiguous rows of step 1, a part of one to a warp; half types on tensor cores
  kRows,     // contiguous rows of step 1, by packs
  kFan,      // few values into many channels, of contiguous rows
  kColumns,  // channels-last, depthwise, by packs
  kValues,   // any strides and steps, value by value
};

struct Plan {
  Path path = Path::kLibrary;
  int channels = 1;             // output channels of a lane
  bool wide = false;            // kRows: twice as many outputs a lane
  bool slides = false;          // kRows: by more than a step of taps
  bool dilated = false;         // kRows: with a window for every tap
  bool channels_first = false;  // kValues: neighbouring lanes take neighbouring channels
  int64_t row_width = 1;        // kValues: or so many take neighbouring places
  int64_t cycle = 1;            // kRows, kFan: rows so many channels apart are aligned alike
  int64_t tiles = 1;            // of output channels of a group; kColumns: of all channels
  int64_t row_tiles = 1;        // of a row; not of kRows, where
  int64_t row_lanes = 1;        // lanes of a row are numbered behind those of the row before,
  int64_t rows = 1;             // of `channels` channels each in forward,
  int64_t block_rows = 1;       // at most of which a block takes a part,
  int64_t halo_packs = 0;       // with so many packs of each behind those under its lanes,
  int64_t taps_pitch = 0;       // and taps in rows of so many
  int64_t warp_tiles = 1;       // kChunks, kFan of half types: of outputs, of a warp
  int64_t warp_packs = 0;       // kChunks, kFan: of an input row in shared memory, of a warp or a block
  int products = 0;             // kFan: that the kernel is compiled for
  int aligned = 1;              // kFan: values of a row that a block's outputs are aligned to
  int64_t block_channels = 1;   // kFan
  int taps = 8;                 // weight gradients: of a block
  int64_t tap_parts = 1, splits = 1;
  int64_t lanes = 1;  // kRows, kValues; kChunks: warps
  int64_t blocks = 1;
  int threads = kThreads;
  size_t shared_bytes = 0;
};

// What lanes are made of, here for plans; kernels have the same by dtype.
constexpr int64_t row_outputs(int64_t item, bool wide, bool slides) {
  return (!wide ? 16 : slides && item == 4 ? 64 : 32) / item;
}
constexpr int64_t row_taps(int64_t item) { return item == 8 ? 4 : 8; }  // of a step
constexpr int64_t weight_outputs(int64_t item) { return 32 / item; }
// Of a multiprocessor, of weight gradients in chunks; f64 has no registers for more.
constexpr int64_t weight_warps(int64_t item) { return item == 8 ? 16 : 24; }
// Of each of several channels.
constexpr int64_t channel_outputs(int64_t item) { return item == 8 ? 4 : 8; }
// Products of a channel in shared memory and its bias, whole packs of them.
constexpr int64_t fan_pitch(int products, int64_t item) {
  return item == 8 ? (products + 2) / 2 * 2 : (products + 4) / 4 * 4;
}
template <typename T, int kProducts>
constexpr int kFanPitch = fan_pitch(kProducts, sizeof(T));
// Of 32 places each, that a warp makes at once on tensor cores of `steps` times 16 products.
constexpr int fan_mma_parts(int steps) { return steps > 2 ? 1 : 2; }
template <int kSteps>
constexpr int kFanMmaParts = fan_mma_parts(kSteps);

namespace detail {

constexpr int64_t kSharedBytes = 48 << 10;       // that a launch has without asking
constexpr int64_t kMostSharedBytes = 100 << 10;  // with asking, for two blocks a multiprocessor
constexpr int64_t kSumBytes = 4 << 10;           // at most, for sums over a block
constexpr int64_t kFar = int64_t{1}
                         << 29;  // places that 32 bits count, with room for sums of a few

inline int64_t item_of(const Problem& problem) {
  return static_cast<int64_t>(size_of(problem.dtype));
}
inline int64_t compute_bytes(const Problem& problem) {
  return std::max<int64_t>(item_of(problem), 4);
}

inline bool places_in_32_bits(const Problem& p) {
  return p.step < kFar && p.from.size < 2 * kFar && p.to.size < 2 * kFar &&
         std::abs(p.padding) < kFar && p.taps < kFar && std::abs(p.weight.tap_stride) < kFar &&
         p.dilation < kFar && p.taps * p.dilation < kFar;
}

inline bool has_contiguous_rows(const Problem& p) {
  return (p.from.stride == 1 || p.from.size == 1) && (p.to.stride == 1 || p.to.size == 1);
}

// The step is of no account where there is one output.
inline bool has_unit_step(const Problem& p) { return p.step == 1 || p.to.size == 1; }

inline bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kAccessBytes == 0;
}

// Whether every row of a signal starts at a pack of `values`.
inline bool has_aligned_rows(const Problem& p, const Signal& signal, int64_t values) {
  return reinterpret_cast<uintptr_t>(signal.data) % (values * item_of(p)) == 0 &&
         (signal.channels * p.groups == 1 || signal.channel_stride % values == 0) &&
         (p.batch == 1 || signal.batch_stride % values == 0);
}

inline int64_t lanes_of_row(const Problem& p, int64_t outputs, int aligned = kAccessBytes) {
  const int64_t values = aligned / item_of(p);
  return ceil_div(p.to.size + (has_aligned_rows(p, p.to, values) ? 0 : values - 1), outputs);
}

// Rows that the neighbouring lanes of a block may be of.
inline int64_t most_rows(const Plan& plan, int64_t rows) {
  return std::min(std::min<int64_t>(plan.threads, (plan.threads - 2) / plan.row_lanes + 2), rows);
}

inline int64_t cycle_of(const Signal& signal, int64_t values) {
  return signal.channels == 1 ? 1 : values / std::gcd(values, signal.channel_stride);
}

// Threads of a block, as many as there is shared memory for.
inline bool shape_tile(Plan& plan, const Problem& p, const Tuning& tuning) {
  const int64_t item = item_of(p), values = kAccessBytes / item, step = row_taps(item);
  const int64_t outputs =
      plan.channels > 1 ? channel_outputs(item) : row_outputs(item, plan.wide, plan.slides);
  plan.row_lanes = lanes_of_row(p, outputs);
  plan.halo_packs = ceil_div(values - 1 + (p.taps - 1) * p.dilation, values);
  plan.taps_pitch = ceil_div(p.taps, step) * step;
  const int64_t row_bytes = p.from.channels * (plan.channels * plan.taps_pitch * compute_bytes(p) +
                                               plan.halo_packs * kAccessBytes);
  const int64_t lane_bytes = p.from.channels * outputs * item;
  // What lanes read behind a tile, and don't use.
  const int64_t margin = (plan.taps_pitch / values + 4) * kAccessBytes;
  for (plan.threads = tuning.row_threads; plan.threads >= 32; plan.threads /= 2) {
    plan.block_rows = most_rows(plan, plan.rows);
    const int64_t bytes = plan.block_rows * row_bytes + plan.threads * lane_bytes + margin;
    if (bytes > kSharedBytes) continue;
    plan.shared_bytes = static_cast<size_t>(bytes);
    plan.lanes = plan.rows * plan.row_lanes;
    plan.blocks = ceil_div<int64_t>(plan.lanes, plan.threads);
    return true;
  }
  return false;
}

inline Plan plan_rows(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t values = kAccessBytes / item_of(p);
  plan.dilated = p.dilation > 1 && p.taps > 1;
  plan.slides = !plan.dilated && p.taps > row_taps(item_of(p));
  // Several output channels a lane where few of them would be missing.
  const int64_t cycle = cycle_of(p.to, values), set = 4 * cycle;
  const int64_t sets = ceil_div(p.to.channels, set);
  if (4 * p.to.channels >= 3 * sets * set) {
    plan.channels = 4;
    plan.cycle = cycle;
    plan.tiles = sets * cycle;
    plan.rows = p.batch * p.groups * plan.tiles;
    if (shape_tile(plan, p, tuning)) {
      plan.path = Path::kRows;
      return plan;
    }
  }
  plan.channels = 1;
  plan.cycle = 1;
  plan.tiles = p.to.channels;
  plan.rows = p.batch * p.groups * plan.tiles;
  plan.wide = plan.rows * p.to.size >= int64_t{device.multiprocessors} * tuning.wide_outputs;
  if (shape_tile(plan, p, tuning)) plan.path = Path::kRows;
  return plan;
}

// Outputs of a tile of a warp.
inline int64_t tile_outputs(int64_t item) {
  return item == 2 ? kMmaParts * kMmaOutputs : 2 * 32 * (kAccessBytes / item);
}

inline Plan plan_chunks(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item, warps = kChunkThreads / 32;
  const bool half = item == 2;
  plan.dilated = p.dilation > 1 && p.taps > 1;
  if (p.to.size < tuning.chunk_outputs || (half && plan.dilated && p.dilation > tuning.mma_dilation)) {
    return plan;
  }
  const int64_t outputs = tile_outputs(item), span = (p.taps - 1) * p.dilation;
  const int64_t tiles = lanes_of_row(p, outputs, kSectorBytes), rows = p.batch * p.groups * p.to.channels;
  // Tensor cores take 16 places at a time, with taps of 0 before and behind; lanes take whole steps of taps.
  plan.taps_pitch = half ? ceil_div<int64_t>(span + 38, values) * values
                         : ceil_div(p.taps, row_taps(item)) * row_taps(item);
  const int64_t halo = half           ? (span + 14) / 16 * 2 + 1
                       : plan.dilated ? (span + values - 1) / values + 1
                                      : plan.taps_pitch / values + row_taps(item) / values;
  // Fewer tiles of a warp where there would not be many warps for each multiprocessor, or where they don't fit.
  int64_t most = std::clamp<int64_t>(rows * tiles / (int64_t{device.multiprocessors} * tuning.chunk_warps), 1, half ? tuning.mma_tiles : tuning.chunk_tiles);
  for (;; most = ceil_div<int64_t>(most, 2)) {
    plan.warp_tiles = ceil_div(tiles, ceil_div(tiles, most));
    plan.warp_packs = plan.warp_tiles * outputs / values + halo;
    const int64_t bytes = warps * p.from.channels *
                          (plan.warp_packs * kAccessBytes +
                           plan.taps_pitch * (half ? item : compute_bytes(p)));
    plan.shared_bytes = static_cast<size_t>(bytes);
    if (bytes <= (most > 1 ? kSharedBytes / 2 : kSharedBytes)) break;
    if (most == 1) return plan;
  }
  plan.row_lanes = ceil_div(tiles, plan.warp_tiles);
  plan.lanes = rows * plan.row_lanes;
  plan.threads = kChunkThreads;
  plan.blocks = ceil_div(plan.lanes, warps);
  plan.path = Path::kChunks;
  return plan;
}

// Blocks of few channels where there would not be two for each multiprocessor.
inline void share_channels(Plan& plan, const Device& device, int64_t others, int64_t in_class,
                           int64_t least) {
  while (plan.block_channels >= 2 * least &&
         others * ceil_div(in_class, plan.block_channels) < 2 * device.multiprocessors) {
    plan.block_channels = ceil_div(plan.block_channels, 2 * least) * least;
  }
  plan.tiles = ceil_div(in_class, plan.block_channels);
  plan.blocks = others * plan.tiles;
}

// How many values of an output row a block's outputs are aligned to: a sector where enough channels are aligned alike.
inline int64_t align_fan(Plan& plan, const Problem& p, const Tuning& tuning) {
  int64_t values = kSectorBytes / item_of(p);
  if (ceil_div(p.to.channels, cycle_of(p.to, values)) < tuning.fan_channels) values /= 2;
  plan.cycle = cycle_of(p.to, values);
  plan.aligned = static_cast<int>(values);
  return ceil_div(p.to.channels, plan.cycle);
}

inline Plan plan_fan_mma(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t products = p.from.channels * p.taps, span = (p.taps - 1) * p.dilation;
  const int64_t in_class = align_fan(plan, p, tuning);
  if (products > 64 || in_class < tuning.fan_channels) return plan;
  plan.products = products <= 16 ? 1 : products <= 32 ? 2 : 4;  // steps of 16
  plan.threads = kChunkThreads;
  const int64_t turn_places = kChunkThreads * fan_mma_parts(plan.products);
  const int64_t slack = has_aligned_rows(p, p.to, plan.aligned) ? 0 : plan.aligned - 1;
  plan.block_channels = std::min<int64_t>(ceil_div<int64_t>(in_class, 16) * 16, plan.products > 2 ? 128 : 256);
  const auto shape = [&](int64_t turns) {
    plan.warp_tiles = turns;
    plan.row_tiles = ceil_div(p.to.size + slack, turns * turn_places);
    plan.warp_packs = ceil_div<int64_t>((turns * turn_places - 1) * p.step + span + 8, 8);
    return plan.block_channels * ((16 * plan.products + 8) * 2 + 4) +
           p.from.channels * plan.warp_packs * kAccessBytes;
  };
  const int64_t others = p.batch * p.groups * plan.cycle;
  // As many turns as make up for reading taps, where there are blocks enough.
  int64_t turns = 1, bytes = shape(1);
  while (turns * plan.block_channels < 256 && shape(2 * turns) <= kSharedBytes / 2 &&
         others * plan.row_tiles >= 8 * device.multiprocessors) {
    turns *= 2;
  }
  bytes = shape(turns);
  if (bytes > kSharedBytes) return plan;
  plan.shared_bytes = static_cast<size_t>(bytes);
  share_channels(plan, device, others * plan.row_tiles, in_class, 16);
  plan.path = Path::kFan;
  return plan;
}

inline Plan plan_fan(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  if (item == 2) return plan_fan_mma(p, device, tuning);
  const int64_t products = p.from.channels * p.taps;
  const int64_t in_class = align_fan(plan, p, tuning);
  if (products > 16 || in_class < tuning.fan_channels) return plan;
  const int64_t unit = products > 12 ? 4 : products > 8 ? 2 : 1;
  plan.products = std::max(3, static_cast<int>(ceil_div(products, unit) * unit));
  const int64_t slack = has_aligned_rows(p, p.to, plan.aligned) ? 0 : plan.aligned - 1;
  const int64_t tile_outputs = 2 * kChunkThreads * values;
  plan.threads = kChunkThreads;
  plan.row_tiles = ceil_div(p.to.size + slack, tile_outputs);
  plan.block_channels = std::min<int64_t>(in_class, 128);
  plan.warp_packs =
      ceil_div((tile_outputs - 1) * p.step + (p.taps - 1) * p.dilation + values, values);
  plan.shared_bytes = static_cast<size_t>(plan.block_channels * fan_pitch(plan.products, item) * item +
                                          p.from.channels * plan.warp_packs * kAccessBytes);
  if (plan.shared_bytes > kSharedBytes) return plan;
  share_channels(plan, device, p.batch * p.groups * plan.cycle * plan.row_tiles, in_class, 4);
  plan.path = Path::kFan;
  return plan;
}

inline bool fits_columns(const Problem& p) {
  const int64_t values = kAccessBytes / item_of(p);
  const auto fits = [&](const Signal& signal) {
    return signal.channel_stride == 1 && is_aligned(signal.data) && signal.stride % values == 0 &&
           (p.batch == 1 || signal.batch_stride % values == 0);
  };
  return p.from.channels == 1 && p.to.channels == 1 && p.groups % values == 0 && fits(p.from) &&
         fits(p.to) && p.taps * 8 * values * compute_bytes(p) <= kSharedBytes;
}

inline Plan plan_columns(const Problem& p) {
  Plan plan;
  plan.path = Path::kColumns;
  const int64_t values = kAccessBytes / item_of(p);
  plan.row_tiles = ceil_div<int64_t>(p.to.size, kThreads / 8 * 4);
  plan.tiles = ceil_div(p.groups, 8 * values);
  plan.shared_bytes = static_cast<size_t>(p.taps * 8 * values * compute_bytes(p));
  plan.blocks = p.batch * plan.tiles * plan.row_tiles;
  return plan;
}

inline Plan plan_values(const Problem& p) {
  Plan plan;
  plan.path = Path::kValues;
  plan.channels = p.to.channels >= 4 && item_of(p) < 8 ? 4 : 1;  // f64 has no registers for more
  plan.tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
  // One group of one image can't be cut into launches that count these lanes with 31 bits.
  const bool few_lanes = p.to.channels * p.to.size < kMaxIndex32;
  plan.channels_first = p.to.channel_stride == 1 && p.to.stride != 1 && p.to.size > 1 &&
                        p.groups * p.to.channels >= 8 && few_lanes;
  if (plan.channels_first) {
    plan.row_tiles = ceil_div<int64_t>(p.to.size, 4);
    plan.lanes = p.batch * p.groups * plan.tiles * plan.row_tiles;
  } else {
    // Lanes side by side, of short rows no more than have four places each.
    while (plan.row_width < 32 && plan.row_width * 4 < p.to.size) plan.row_width *= 2;
    plan.row_tiles = ceil_div<int64_t>(p.to.size, plan.row_width * 4);
    plan.lanes = p.batch * p.groups * plan.tiles * plan.row_tiles * plan.row_width;
  }
  plan.blocks = ceil_div<int64_t>(plan.lanes, kThreads);
  return plan;
}

// Whether there is shared memory for two tiles of weight_rows_kernel.
inline bool shape_weight_tile(Plan& plan, const Problem& p) {
  const int64_t item = item_of(p), values = kAccessBytes / item, outputs = weight_outputs(item);
  plan.row_lanes = lanes_of_row(p, outputs);
  const int64_t own_taps = std::min<int64_t>(p.taps, plan.taps);
  plan.halo_packs = ceil_div(values - 1 + (own_taps - 1) * p.dilation, values);
  plan.block_rows = most_rows(plan, p.batch);
  const int64_t margin = (8 / values + 4) * kAccessBytes;  // read behind a tile, not used
  const int64_t tile_packs = 2 * kThreads * outputs / values + plan.block_rows * plan.halo_packs;
  const int64_t bytes = 2 * tile_packs * kAccessBytes + margin;
  plan.shared_bytes = static_cast<size_t>(bytes);
  return bytes + kSumBytes <= kMostSharedBytes && p.batch * plan.row_lanes < kFar;
}

// Matrices of 16 rows hold taps up to 16 * matrices - 15 places apart, see MatrixSums; lanes have sums for each tap.
inline Plan plan_weight_chunks(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  const int64_t dilation = p.taps > 1 ? p.dilation : 1;
  const bool half = item == 2;
  if (p.to.size < tuning.chunk_outputs || dilation > (half ? tuning.mma_dilation : 1)) return plan;
  const auto taps_of = [&](int64_t products) {
    return half ? (16 * products - 15) / dilation + 1 : products;
  };
  plan.products = half ? 2 : 4;
  const int most = half ? 8 : item == 8 ? 16 : 32;
  while (plan.products < most && taps_of(plan.products) < p.taps) plan.products *= 2;
  plan.taps = static_cast<int>(std::min(taps_of(plan.products), p.taps));
  plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
  const int64_t outputs = half ? kMmaOutputs : 2 * 32 * values;
  const int64_t tiles = lanes_of_row(p, outputs);
  plan.warp_tiles = ceil_div(tiles, ceil_div<int64_t>(tiles, tuning.weight_bytes / (outputs * item)));
  plan.row_lanes = ceil_div(tiles, plan.warp_tiles);
  plan.lanes = p.batch * plan.row_lanes;
  const int64_t grad_packs = plan.warp_tiles * outputs / values;
  plan.warp_packs = grad_packs + (half ? 2 * plan.products - 1 : ceil_div<int64_t>(plan.products, values) + 1);
  const int64_t warp_bytes = 2 * (grad_packs + plan.warp_packs) * kAccessBytes +
                             plan.products * (half ? 16 * 8 * 4 : item);
  // Warps of a block so that a block for each pair of channels fills the device; splits are for fewer pairs.
  const int64_t blocks = p.groups * p.to.channels * p.from.channels * plan.tap_parts;
  const int64_t warps = std::clamp<int64_t>(
      device.multiprocessors * weight_warps(item) / blocks, 4,
      std::min<int64_t>(kWeightWarps, (kMostSharedBytes - kSumBytes) / warp_bytes));
  plan.threads = static_cast<int>(32 * warps);
  plan.shared_bytes = static_cast<size_t>(warps * warp_bytes);
  if (plan.lanes < kFar) plan.path = Path::kChunks;
  return plan;
}

// The problem of an input gradient as a forward one, where the step is 1.
inline Problem transposed(const Problem& p) {
  Problem result = p;
  result.from = p.to;
  result.to = p.from;
  result.step = 1;
  result.padding = (p.taps - 1) * p.dilation - p.padding;
  const auto item = item_of(p);
  result.weight.data =
      static_cast<char*>(p.weight.data) + (p.taps - 1) * p.weight.tap_stride * item;
  result.weight.tap_stride = -p.weight.tap_stride;
  std::swap(result.weight.out_stride, result.weight.in_stride);
  return result;
}

// `blocks` into `all`, each of which has one of `most` parts at least.
inline void split(Plan& plan, int64_t all, int64_t blocks, int64_t most) {
  plan.splits = std::clamp<int64_t>(std::min(all / blocks, most), 1, kThreads * 16);
  plan.blocks = blocks * plan.splits;
}

}  // namespace detail

inline Plan plan_forward(const Problem& p, const Device& device, const Tuning& tuning = {}) {
  using namespace detail;
  if (p.from.channels > tuning.most_channels) return {};
  if (has_contiguous_rows(p) && places_in_32_bits(p)) {
    Plan plan;
    if (p.to.size >= tuning.chunk_outputs || !has_unit_step(p)) plan = plan_fan(p, device, tuning);
    if (plan.path == Path::kLibrary && has_unit_step(p)) {
      const bool half = item_of(p) == 2;
      if (half || p.to.channels == 1) plan = plan_chunks(p, device, tuning);
      if (plan.path == Path::kLibrary) plan = plan_rows(p, device, tuning);
    }
    if (plan.path != Path::kLibrary) return plan;
  }
  return fits_columns(p) ? plan_columns(p) : plan_values(p);
}

inline Plan plan_backward_input(const Problem& p, const Device& device, const Tuning& tuning = {}) {
  using namespace detail;
  if (p.from.channels > tuning.most_channels) return {};
  const Problem forward = transposed(p);
  if (!has_unit_step(p)) return plan_values(forward);  // gathered
  Tuning any = tuning;
  any.most_channels = p.to.channels;
  return plan_forward(forward, device, any);
}

inline Plan plan_backward_weight(const Problem& p, const Device& device,
                                 const Tuning& tuning = {}) {
  using namespace detail;
  Plan plan;
  if (p.from.channels > tuning.most_channels) return plan;
  const int64_t out_channels = p.groups * p.to.channels;
  const int64_t all = int64_t{device.multiprocessors} * tuning.weight_blocks;
  if (has_contiguous_rows(p) && places_in_32_bits(p) && has_unit_step(p) &&
      p.batch * p.to.size < kFar) {
    plan = plan_weight_chunks(p, device, tuning);
    if (plan.path == Path::kChunks) {
      const int64_t warps = plan.threads / 32;
      split(plan, device.multiprocessors * weight_warps(item_of(p)) / warps,
            out_channels * p.from.channels * plan.tap_parts, ceil_div(plan.lanes, warps));
      return plan;
    }
    plan = Plan();
    plan.path = Path::kRows;
    plan.dilated = p.dilation > 1 && p.taps > 1;
    if (plan.dilated) {
      plan.taps = kDilatedTaps;
    } else {
      const int most = item_of(p) == 8 ? 16 : 32;
      plan.taps = 4;
      while (plan.taps < p.taps && plan.taps < most) plan.taps *= 2;
    }
    plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
    if (shape_weight_tile(plan, p)) {
      const int64_t tiles = ceil_div<int64_t>(p.batch * plan.row_lanes, kThreads);
      split(plan, all, out_channels * p.from.channels * plan.tap_parts, tiles / tuning.weight_units);
      return plan;
    }
    plan = Plan();
  }
  plan.tap_parts = ceil_div<int64_t>(p.taps, plan.taps);
  plan.channels_first = p.to.channel_stride == 1 && p.to.stride != 1 && p.to.size > 1 &&
                        p.from.channel_stride == 1 && out_channels >= 8;
  if (plan.channels_first) {
    plan.path = Path::kColumns;
    plan.tiles = ceil_div<int64_t>(out_channels, 32);
    split(plan, all, plan.tiles * p.from.channels * plan.tap_parts,
          ceil_div<int64_t>(p.batch * p.to.size, kThreads / 32) / tuning.weight_units);
    return plan;
  }
  plan.path = Path::kValues;
  plan.channels = p.to.channels >= 4 && item_of(p) < 8 ? 4 : 1;  // f64 has no registers for more
  plan.tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
  split(plan, all, p.groups * plan.tiles * p.from.channels * plan.tap_parts,
        ceil_div<int64_t>(p.batch * p.to.size, kThreads) / tuning.weight_units);
  return plan;
}

inline Plan make_plan(const Problem& problem, Pass pass, const Device& device,
                      const Tuning& tuning = {}) {
  switch (pass) {
    case Pass::kForward:
      return plan_forward(problem, device, tuning);
    case Pass::kBackwardInput:
      return plan_backward_input(problem, device, tuning);
    default:
      return plan_backward_weight(problem, device, tuning);
  }
}

// Whether the kernels here are no slower than cuDNN with its tensor cores, which gain with every product that an output has:
// 520 random problems of up to 8 input channels a group, forward and both gradients, f32 (TF32 in cuDNN) and bf16, beside
// ATen with cudnn.benchmark on an H200.
inline bool pays(const Problem& p, Pass pass, const Plan& plan) {
  if (p.dtype == DType::kFloat64) return true;
  const int64_t in = p.from.channels, out = p.to.channels;
  const bool half = detail::item_of(p) == 2;
  const bool chunks = plan.path == Path::kChunks, rows = plan.path == Path::kRows;
  const bool depthwise = in == 1 && out <= 4;
  if (pass == Pass::kForward) {
    if (depthwise) return plan.path != Path::kValues || p.taps <= 16;
    const int64_t products = in * p.taps;
    if (plan.path == Path::kFan) {
      return half ? p.to.size >= 128 : products <= 14 && p.to.size >= 256;
    }
    if (chunks && half) return products <= 512;
    if (chunks || rows) return products <= (half || (p.groups == 1 && out > 8) ? 16 : 64);
    return plan.path == Path::kValues && products <= 15 && p.to.size >= 128;
  }
  if (pass == Pass::kBackwardInput) {
    const int64_t products = out * p.taps;
    if (depthwise) return true;
    if (!detail::has_unit_step(p)) return products <= 20;
    return (chunks || rows) && out <= 32 && products <= (in == 1 ? 256 : 64);
  }
  if (depthwise || chunks) return in * out <= 512;
  if (plan.path == Path::kColumns) return in * out <= 8 && p.taps <= 4;
  return in * out <= 16 || (in == 1 && out <= 64);
}

// Whether a kernel here takes the problem; the rest is a library's.
inline bool serves(const Problem& problem, Pass pass, const Device& device) {
  const Plan plan = make_plan(problem, pass, device);
  return plan.path != Path::kLibrary && pays(problem, pass, plan);
}

}  // namespace gpuopt::conv1d
