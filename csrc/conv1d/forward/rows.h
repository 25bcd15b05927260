// Stride 1 along short rows: neighbouring threads may be of different rows.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

enum class Taps : uint8_t {
  kOneStep,  // no more than row_taps()
  kSliding,
  kDilated,
};

struct RowsArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_pack, *last_pack;  // see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, bias_stride;
  int32_t weight_tap, from_size, to_size, padding, dilation, taps;
  uint32_t in_channels, out_channels;  // of a group
  uint32_t rows;                       // of the launch
  uint32_t block_rows;                 // of a block, at most
  uint32_t halo_packs;                 // behind those under a segment's lanes
  uint32_t taps_pitch;                 // from one row of taps to the next in shared memory
  uint32_t in_taps;                    // in_channels * taps
  FastDiv row_lanes;                   // lanes of a row
  FastDiv taps_div, in_div;            // taps, in_channels
  FastDiv parts, groups;               // of kChannels output channels of a group; groups
  uint32_t cycle_shift;                // rows 2^cycle_shift channels apart are aligned alike
  Activation activation;
};

// Outputs of a thread, with one channel and with several.
constexpr int64_t row_outputs(int64_t item, bool wide, bool slides) {
  return (!wide ? 16 : slides && item == 4 ? 64 : 32) / item;
}
constexpr int64_t channel_outputs(int64_t item) { return item == 8 ? 4 : 8; }

// Rows that the neighbouring threads of a block may be of.
inline int64_t most_rows(int64_t threads, int64_t row_lanes, int64_t rows) {
  return std::min(std::min(threads, (threads - 2) / row_lanes + 2), rows);
}

struct RowsPlan {
  static constexpr const char* kName = "rows";
  static constexpr const Costs& kCosts = costs::kRows;
  LaunchShape launch;
  RowsArgs args;
  Taps taps;
  int channels;  // output channels of a thread: 1 or 4
  bool wide;     // twice as many outputs a thread

  Terms terms(const Problem& p, const Device& device) const;
  static std::optional<RowsPlan> make(const Problem& p, const Device& device);

 private:
  std::optional<RowsPlan> fit(const Problem& p, int64_t cycle, int64_t parts) const;
};

inline std::optional<RowsPlan> RowsPlan::make(const Problem& p, const Device& device) {
  if (!has_plain_rows(p) || !has_unit_stride(p)) return {};
  RowsPlan plan;
  plan.taps = has_dilation(p)                 ? Taps::kDilated
              : p.taps > row_taps(item_of(p)) ? Taps::kSliding
                                              : Taps::kOneStep;
  // Several output channels a thread where few of them would be missing.
  const int64_t cycle = cycle_of(p.to, kAccessBytes / item_of(p)), set = 4 * cycle;
  const int64_t sets = ceil_div(p.to.channels, set);
  if (4 * p.to.channels >= 3 * sets * set) {
    plan.channels = 4;
    plan.wide = false;
    if (const auto fitting = plan.fit(p, cycle, sets * cycle)) return fitting;
  }
  plan.channels = 1;
  plan.wide = out_rows(p) * p.to.size >= int64_t{device.multiprocessors} * (32 << 10);
  return plan.fit(p, /*cycle=*/1, /*parts=*/p.to.channels);
}

// Threads of a block, as many as there is shared memory for.
inline std::optional<RowsPlan> RowsPlan::fit(const Problem& p, int64_t cycle, int64_t parts) const {
  const int64_t item = item_of(p), values = kAccessBytes / item;
  const int64_t outputs =
      channels > 1 ? channel_outputs(item) : row_outputs(item, wide, taps == Taps::kSliding);
  const int64_t row_lanes = tiles_of_row(p, outputs), rows = p.batch * p.groups * parts;
  const int64_t halo_packs = ceil_div(values - 1 + span_of(p), values), taps_pitch = whole_taps(p);
  const int64_t row_bytes =
      p.from.channels * (channels * taps_pitch * compute_bytes(p) + halo_packs * kAccessBytes);
  const int64_t lane_bytes = p.from.channels * outputs * item;
  // Threads read so far behind a tile, and don't use it.
  const int64_t margin = (taps_pitch / values + 4) * kAccessBytes;
  if (rows * row_lanes > kMaxIndex32 - kThreads) return {};
  for (int threads = kChunkThreads; threads >= 32; threads /= 2) {
    const int64_t block_rows = most_rows(threads, row_lanes, rows);
    const int64_t bytes = block_rows * row_bytes + threads * lane_bytes + margin;
    if (bytes > kSharedBytes) continue;
    RowsPlan plan = *this;
    plan.launch = launch_shape(ceil_div<int64_t>(rows * row_lanes, threads), threads, bytes);
    RowsArgs& args = plan.args;
    set_operands(args, p);
    set_strides(args, p);
    set_channels(args, p);
    set_rows(args, p);
    args.groups = div_by(p.groups);
    args.dilation = static_cast<int32_t>(p.dilation);
    args.rows = static_cast<uint32_t>(rows);
    args.block_rows = static_cast<uint32_t>(block_rows);
    args.halo_packs = static_cast<uint32_t>(halo_packs);
    args.taps_pitch = static_cast<uint32_t>(taps_pitch);
    args.in_taps = static_cast<uint32_t>(macs_per_output(p));
    args.taps_div = div_by(p.taps);
    args.in_div = div_by(p.from.channels);
    args.row_lanes = div_by(row_lanes);
    args.parts = div_by(parts);
    args.cycle_shift = shift_of(cycle);
    return plan;
  }
  return {};
}

inline Terms RowsPlan::terms(const Problem& p, const Device& device) const {
  const int64_t item = item_of(p), taps_of = ceil_div<int64_t>(p.taps, 8) * 8;
  const int64_t outputs =
      channels > 1 ? channel_outputs(item) : row_outputs(item, wide, taps == Taps::kSliding);
  const auto in = static_cast<double>(p.from.channels);
  const double own = static_cast<double>(outputs * channels),
               per_sm = blocks_per_sm(launch, device);
  const double dilated = taps == Taps::kDilated ? in * static_cast<double>(p.taps) : 0;
  // Multiply-adds of a thread, taps of an SM, shared memory; dilated taps of an SM, and of a
  // thread.
  return {in * static_cast<double>(taps_of) * own,
          in * static_cast<double>(p.taps) * channels * per_sm,
          static_cast<double>(launch.shared_bytes) * per_sm / 1e5,
          dilated * own * fill_of(launch, device), dilated * static_cast<double>(outputs)};
}

}  // namespace gpuopt::conv1d
