// Sizes, strides and dtypes -> which kernel takes a convolution and how it is cut into blocks.
// Plain host C++: tests run it without a GPU.
#pragma once

#include "conv1d/conv1d_pays.h"
#include "conv1d/conv1d_plan_fan.h"
#include "conv1d/conv1d_plan_fan_gradients.h"
#include "conv1d/conv1d_plan_gemm.h"
#include "conv1d/conv1d_plan_polyphase.h"
#include "conv1d/conv1d_plan_weight.h"

namespace gpuopt::conv1d {
namespace detail {

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

// Up to `most` of a row's `tiles` for a warp: fewer where there would not be many warps for each
// multiprocessor, or where they don't fit. packs_of(tiles) is what they need of an input row;
// outputs that wait in shared memory take made_bytes a tile.
template <typename PacksOf>
void fit_chunks(Plan& plan, const Problem& p, const Device& device, const Tuning& tuning,
                int64_t tiles, int64_t most, int64_t tap_bytes, const PacksOf& packs_of,
                int64_t made_bytes = 0) {
  const int64_t warps = kChunkThreads / 32, rows = p.batch * p.groups * p.to.channels;
  const int64_t enough = int64_t{device.multiprocessors} * tuning.chunk_warps;
  most = std::clamp<int64_t>(rows * tiles / enough, 1, most);
  for (;; most = ceil_div<int64_t>(most, 2)) {
    plan.warp_tiles = ceil_div(tiles, ceil_div(tiles, most));
    plan.warp_packs = packs_of(plan.warp_tiles);
    const int64_t bytes = warps * (p.from.channels * (plan.warp_packs * kAccessBytes + tap_bytes) +
                                   plan.warp_tiles * made_bytes);
    plan.shared_bytes = static_cast<size_t>(bytes);
    if (bytes <= (most > 1 ? kSharedBytes / 2 : kSharedBytes - kStaticBytes)) break;
    if (most == 1) return;
  }
  plan.row_lanes = ceil_div(tiles, plan.warp_tiles);
  plan.lanes = rows * plan.row_lanes;
  plan.threads = kChunkThreads;
  plan.blocks = ceil_div(plan.lanes, warps);
  plan.path = Path::kChunks;
}

inline Plan plan_chunks(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  const bool half = item == 2;
  plan.dilated = p.dilation > 1 && p.taps > 1;
  if (p.to.size < tuning.chunk_outputs ||
      (half && plan.dilated && p.dilation > tuning.mma_dilation)) {
    return plan;
  }
  const int64_t outputs = tile_outputs(item), span = (p.taps - 1) * p.dilation;
  const int64_t tiles = lanes_of_row(p, outputs, kSectorBytes);
  plan.few_taps = half && p.from.channels == 1 && !plan.dilated && p.taps <= kFewTaps;
  if (plan.few_taps) {  // which are in registers, and reach two packs behind the outputs
    fit_chunks(plan, p, device, tuning, tiles, tuning.few_tiles, /*tap_bytes=*/0,
               [&](int64_t own) { return own * outputs / values + 2; });
    return plan;
  }
  // Tensor cores take 16 places at a time, with taps of 0 before and behind; lanes take whole steps
  // of taps.
  plan.taps_pitch = half ? ceil_div<int64_t>(span + 38, values) * values
                         : ceil_div(p.taps, row_taps(item)) * row_taps(item);
  const int64_t halo = half           ? (span + 14) / 16 * 2 + 1
                       : plan.dilated ? (span + values - 1) / values + 1
                                      : plan.taps_pitch / values + row_taps(item) / values;
  const int64_t most = half ? tuning.mma_tiles : tuning.chunk_tiles;
  const int64_t tap_bytes = plan.taps_pitch * (half ? item : compute_bytes(p));
  fit_chunks(plan, p, device, tuning, tiles, most, tap_bytes,
             [&](int64_t own) { return own * outputs / values + halo; });
  return plan;
}

// Tiles with inputs from memory to registers: one a warp, where a row has one or where there are
// few of them, else two and the rest of the row. Rows that would leave many of these outputs empty
// are chunks instead.
inline Plan plan_direct(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  if (item_of(p) != 2 || p.from.channels > 1 || (p.dilation > 1 && p.taps > 1) ||
      p.taps > kDirectTaps || !has_whole_quads(p)) {
    return plan;
  }
  const bool short_row =
      p.to.size < tuning.direct_row - (p.taps >= tuning.direct_taps ? tuning.direct_row_less : 0);
  if (short_row && p.taps < tuning.direct_from) return plan;
  // Where all rows of outputs begin quads, the first tap has the same place in one everywhere.
  const int64_t last = kDirectQuad - 1;
  const int64_t ahead = has_aligned_rows(p, p.to, kDirectQuad) ? -p.padding & last : last;
  const bool far = p.taps + ahead > kDirectNear;
  const int64_t rows = p.batch * p.groups * p.to.channels, tile = tile_outputs(item_of(p));
  const int64_t size = aligned_size(p, kSectorBytes), tiles = ceil_div(size, tile);
  const bool few = rows * tiles <= device.multiprocessors * tuning.direct_warps;
  const int64_t pairs = ceil_div(std::max<int64_t>(size - kDirectRest, 1), 2 * tile);
  // Outputs that could be made in the time of a row: its rest, with many taps, takes that of a
  // tile.
  const int64_t time = 2 * pairs * tile + (far && size > 2 * pairs * tile ? tile : 0);
  const int64_t limit = far ? tuning.direct_far_filled : tuning.direct_filled;
  const bool filled = pairs == 1 || p.to.size * 100 >= time * limit;
  if (!few && (short_row || (tiles > 1 && !filled))) return plan;
  plan.direct = true;
  plan.warp_tiles = tiles > 1 && filled ? 2 : 1;
  plan.row_lanes = plan.warp_tiles > 1 ? pairs : tiles;
  plan.lanes = rows * plan.row_lanes;
  plan.products = far ? 2 : 1;
  plan.threads = direct_threads(static_cast<int>(plan.warp_tiles));
  plan.blocks = ceil_div<int64_t>(plan.lanes, plan.threads / 32);
  plan.path = Path::kChunks;
  return plan;
}

// Other steps than 1.
inline Plan plan_strided(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item;
  if (p.to.size < tuning.chunk_outputs / 2) return plan;
  plan.strided = true;
  plan.taps_pitch = ceil_div(p.taps, row_taps(item)) * row_taps(item);
  const int64_t tiles = lanes_of_row(p, kStridedOutputs, kSectorBytes);
  const int64_t span = (p.taps - 1) * p.dilation + values - 1;
  fit_chunks(
      plan, p, device, tuning, tiles, tuning.strided_tiles, plan.taps_pitch * compute_bytes(p),
      [&](int64_t own) { return ((own * kStridedOutputs - 1) * p.step + span) / values + 1; });
  return plan;
}

// Input gradients of other steps than 1; `p` has its signals exchanged.
inline Plan plan_gather(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t item = item_of(p), values = kAccessBytes / item, outputs = 32 * values;
  if (p.to.size < tuning.chunk_outputs / 2 || p.step > tuning.gather_step ||
      p.from.channels > tuning.gather_channels) {
    return plan;
  }
  plan.strided = true;
  plan.taps_pitch = ceil_div(p.taps, row_taps(item)) * row_taps(item);
  const int64_t tiles = lanes_of_row(p, outputs, kSectorBytes), span = (p.taps - 1) * p.dilation;
  fit_chunks(
      plan, p, device, tuning, tiles, tuning.gather_tiles, plan.taps_pitch * compute_bytes(p),
      [&](int64_t own) { return ((own * outputs - 1 + span) / p.step + values - 1) / values + 1; },
      outputs * item);
  // Taps side by side in a warp, so that few lanes are idle; neighbours of them write neighbouring
  // places.
  const int64_t first_taps = std::min(p.taps, tap_cycle_of(p));
  const int64_t places = ceil_div(plan.warp_tiles * outputs, p.step);
  const auto turns_of = [&](int64_t width) {
    // It costs half as much as kGatherPlaces of a lane to find a tap's first place.
    const int64_t turns = ceil_div(places, 32 / width * kGatherPlaces);
    return ceil_div(first_taps, width) * (2 * turns + 1);
  };
  for (int64_t width = 2; width <= std::min<int64_t>(first_taps, 32); ++width) {
    if (turns_of(width) <= turns_of(plan.row_width)) plan.row_width = width;
  }
  return plan;
}

inline bool fits_columns(const Problem& p) {
  return has_packs_of_channels(p) &&
         p.taps * 8 * (kAccessBytes / item_of(p)) * compute_bytes(p) <= kSharedBytes;
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

// few_places: of a multiprocessor, up to which a lane has one.
inline Plan plan_values(const Problem& p, const Device& device, int64_t few_places) {
  Plan plan;
  plan.path = Path::kValues;
  plan.channels = p.to.channels >= 4 && item_of(p) < 8 ? 4 : 1;  // f64 has no registers for more
  plan.tiles = ceil_div<int64_t>(p.to.channels, plan.channels);
  // One group of one image can't be cut into launches that count these lanes with 31 bits.
  const bool few_lanes = p.to.channels * p.to.size < kMaxIndex32;
  plan.channels_first =
      has_channels_last(p.to) && p.to.size > 1 && p.groups * p.to.channels >= 8 && few_lanes;
  if (plan.channels_first) {
    plan.row_tiles = ceil_div<int64_t>(p.to.size, 4);
    plan.lanes = p.batch * p.groups * plan.tiles * plan.row_tiles;
  } else {
    // Few places are one to a lane, so that none waits for another's.
    const int64_t few = int64_t{device.multiprocessors} * few_places;
    if (plan.channels == 1 && p.batch * p.groups * plan.tiles * p.to.size <= few) plan.places = 1;
    // Lanes side by side, of short rows no more than have their places each.
    while (plan.row_width < 32 && plan.row_width * plan.places < p.to.size) plan.row_width *= 2;
    plan.row_tiles = ceil_div<int64_t>(p.to.size, plan.row_width * plan.places);
    plan.lanes = p.batch * p.groups * plan.tiles * plan.row_tiles * plan.row_width;
  }
  plan.blocks = ceil_div<int64_t>(plan.lanes, kThreads);
  return plan;
}

// Whether 32 bits hold how far a signal reaches, with `places` in each row.
inline bool reaches_in_32_bits(const Problem& p, const Signal& signal, int64_t places) {
  return in_32_bits(p.batch, signal.batch_stride) &&
         in_32_bits(p.groups * signal.channels, signal.channel_stride) &&
         in_32_bits(places, signal.stride);
}

inline bool fits_few_values(const Problem& p) {
  const int64_t places = p.from.size + std::abs(p.padding) + p.taps * p.dilation;
  return places_in_32_bits(p) && reaches_in_32_bits(p, p.from, places) &&
         reaches_in_32_bits(p, p.to, p.to.size) && in_32_bits(p.groups, p.weight.group_stride) &&
         in_32_bits(p.to.channels, p.weight.out_stride) &&
         in_32_bits(p.from.channels, p.weight.in_stride) &&
         in_32_bits(p.taps, p.weight.tap_stride) &&
         in_32_bits(p.groups * p.to.channels, p.bias_stride) &&
         p.from.channels * p.taps <= 32 * kFewProducts;
}

// A lane for each output, or as many as have kFewProducts at most.
inline Plan plan_few_values(const Problem& p, const Device& device, const Tuning& tuning) {
  Plan plan;
  const int64_t products = p.from.channels * p.taps;
  int64_t parts = 1;
  while (parts * kFewProducts < products) parts *= 2;
  plan.products = static_cast<int>(ceil_div(products, parts));
  plan.row_width = 32 / parts;
  plan.channels_first = has_channels_last(p.to);
  plan.lanes = ceil_div(outputs_of(p), plan.row_width) * 32;
  const bool many = plan.lanes > device.multiprocessors * tuning.few_blocks * kFewThreads;
  plan.threads = many ? kMostFewThreads : kFewThreads;
  plan.blocks = ceil_div<int64_t>(plan.lanes, plan.threads);
  plan.few_values = true;
  plan.path = Path::kValues;
  return plan;
}

// Products of a multiprocessor up to which that takes a problem before `plan` would, or a library
// if not `pays`.
inline int64_t most_few_products(const Problem& p, const Plan& plan, bool pays,
                                 const Tuning& tuning) {
  if (plan.path == Path::kGemm) return tuning.few_gemm_products;
  if (!pays) {
    const bool last = p.from.channels == 1 && has_channels_last(p.to);
    return last ? tuning.few_last_products : tuning.few_products;
  }
  switch (plan.path) {
    case Path::kChunks:
      if (plan.strided) return tuning.few_products;
      if (plan.phases > 1) return tuning.few_phases_products;
      return plan.direct     ? tuning.few_direct_products
             : plan.few_taps ? tuning.few_taps_products
                             : p.from.channels * tuning.few_tile_products * (plan.dilated ? 2 : 1);
    case Path::kFan:
    case Path::kColumns:
      return p.from.channels * tuning.few_tile_products;
    default:
      return tuning.few_products;
  }
}

inline bool takes_few_values(const Problem& p, const Plan& plan, bool pays, const Device& device,
                             const Tuning& tuning) {
  if (plan.path == Path::kLibrary || !fits_few_values(p)) return false;
  const int64_t outputs = outputs_of(p), products = p.from.channels * p.taps;
  return outputs <= device.multiprocessors * tuning.few_outputs &&
         outputs * products <= device.multiprocessors * most_few_products(p, plan, pays, tuning);
}

// The problem of an input gradient, from the gradient to the input.
inline Problem exchanged(const Problem& p) {
  Problem result = p;
  std::swap(result.from, result.to);
  std::swap(result.weight.out_stride, result.weight.in_stride);
  return result;
}

// The same as a forward one, where the step is 1.
inline Problem transposed(const Problem& p) {
  Problem result = exchanged(p);
  result.step = 1;
  result.padding = (p.taps - 1) * p.dilation - p.padding;
  const auto item = item_of(p);
  result.weight.data =
      static_cast<char*>(p.weight.data) + (p.taps - 1) * p.weight.tap_stride * item;
  result.weight.tap_stride = -p.weight.tap_stride;
  return result;
}

inline Plan or_else(const Plan& plan, const Plan& other) {
  return plan.path != Path::kLibrary ? plan : other;
}

}  // namespace detail

inline Plan plan_forward(const Problem& p, const Device& device, const Tuning& tuning = {}) {
  using namespace detail;
  if (p.from.channels > tuning.most_channels) return {};
  if (has_contiguous_rows(p) && places_in_32_bits(p)) {
    Plan plan;
    if (p.to.size >= tuning.chunk_outputs || !has_unit_step(p)) plan = plan_fan(p, device, tuning);
    if (plan.path == Path::kLibrary) plan = plan_polyphase(p, device, tuning);
    if (plan.path == Path::kLibrary && !has_unit_step(p) && p.to.channels < 4) {
      plan = plan_strided(p, device, tuning);
    }
    if (plan.path == Path::kLibrary && has_unit_step(p)) {
      const bool half = item_of(p) == 2;
      plan = plan_direct(p, device, tuning);
      if (plan.path == Path::kLibrary && (half || p.to.channels == 1)) {
        plan = plan_chunks(p, device, tuning);
      }
      if (plan.path == Path::kLibrary) plan = plan_rows(p, device, tuning);
    }
    if (plan.path != Path::kLibrary) return plan;
  }
  return fits_columns(p) ? plan_columns(p) : plan_values(p, device, /*few_places=*/0);
}

inline Plan plan_backward_input(const Problem& p, const Device& device, const Tuning& tuning = {}) {
  using namespace detail;
  if (p.from.channels > tuning.most_channels) return {};
  if (!has_unit_step(p)) {  // gathered
    const Problem gathered = exchanged(p);
    Plan plan;
    if (has_contiguous_rows(p) && steps_in_32_bits(p)) plan = plan_gather(gathered, device, tuning);
    return plan.path == Path::kLibrary ? plan_values(gathered, device, tuning.few_places) : plan;
  }
  const Problem forward = transposed(p);
  Tuning any = tuning;
  any.most_channels = p.to.channels;
  return plan_forward(forward, device, any);
}

inline Plan make_plan(const Problem& problem, Pass pass, const Device& device,
                      const Tuning& tuning = {}) {
  if (pass == Pass::kBackwardWeight) {
    const Plan plan = plan_backward_weight(problem, device, tuning);
    if (!detail::prefers_fan_weight(problem, plan, pays(problem, pass, plan), tuning)) return plan;
    return detail::or_else(detail::plan_fan_weight(problem, device, tuning), plan);
  }
  const bool forward = pass == Pass::kForward;
  Plan plan = forward ? plan_forward(problem, device, tuning)
                      : plan_backward_input(problem, device, tuning);
  bool ours = plan.path != Path::kLibrary && pays(problem, pass, plan);
  if (forward || detail::has_unit_step(problem)) {
    const Problem laid = forward ? problem : detail::transposed(problem);
    if (ours ? detail::prefers_gemm(laid, plan) : detail::pays_gemm(laid)) {
      plan = detail::or_else(detail::plan_gemm(laid, device, tuning), plan);
      ours = ours || plan.path == Path::kGemm;
    }
    if (detail::takes_few_values(laid, plan, ours, device, tuning)) {
      plan = detail::plan_few_values(laid, device, tuning);
    }
  }
  // Products of matrices that gather were not measured beside gradients that go through the
  // channels.
  ours = ours && plan.path != Path::kGemm;
  if (forward || !detail::prefers_fan_input(problem, plan, ours, tuning)) return plan;
  return detail::or_else(detail::plan_fan_input(problem, device, tuning), plan);
}

// Whether a kernel here takes the problem; the rest is a library's.
inline bool serves(const Problem& problem, Pass pass, const Device& device,
                   const Tuning& tuning = {}) {
  const Plan plan = make_plan(problem, pass, device, tuning);
  return plan.path != Path::kLibrary && pays(problem, pass, plan);
}

}  // namespace gpuopt::conv1d
