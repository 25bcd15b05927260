// Stride 1 along short rows: neighbouring threads may have different rows.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

enum class Taps : uint8_t {
  kOneStep,  // at most row_taps()
  kSliding,
  kDilated,
};

struct RowsArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_vec, *last_vec;  // bounds of whole vectors, see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, bias_stride;
  int32_t weight_tap, from_size, to_size, padding, dilation, taps;
  uint32_t in_channels, out_channels;  // per group
  uint32_t rows;                       // in the launch
  uint32_t block_rows;                 // per block, at most
  uint32_t halo_vecs;                  // halo vectors behind a segment
  uint32_t taps_pitch;                 // values between rows of taps in shared memory
  uint32_t in_taps;
  FastDiv row_lanes;  // threads per row
  FastDiv taps_div;
  FastDiv parts, groups;  // output channels per group, groups
  Activation activation;
};

// The most rows that the threads of a block can span.
inline int64_t most_rows(int64_t threads, int64_t row_lanes, int64_t rows) {
  return std::min(std::min(threads, (threads - 2) / row_lanes + 2), rows);
}

struct RowsPlan : PathPlan<RowsArgs> {
  static constexpr const char* kName = "rows";
  static constexpr const Costs& kCosts = costs::kRows;
  Taps taps;

  // A block has as many threads as shared memory allows, up to kChunkThreads.
  static std::optional<RowsPlan> make(const Problem& p, const Device&) {
    const int64_t item = item_of(p), values = kAccessBytes / item;
    if (item == 8 || !has_plain_rows(p) || !has_unit_stride(p)) return {};
    const int64_t row_lanes = tiles_of_row(p, values), rows = out_rows(p);
    const int64_t halo_vecs = ceil_div(values - 1 + span_of(p), values), taps_pitch = whole_taps(p);
    const int64_t row_bytes =
        p.from.channels * (taps_pitch * compute_bytes(p) + halo_vecs * kAccessBytes);
    const int64_t lane_bytes = p.from.channels * kAccessBytes;
    // Bytes behind a tile that threads read without using the values.
    const int64_t margin = (taps_pitch / values + 4) * kAccessBytes;
    if (rows * row_lanes > kMaxIndex32 - kThreads) return {};
    const auto block_rows_of = [&](int threads) { return most_rows(threads, row_lanes, rows); };
    const auto bytes_of = [&](int threads) {
      return block_rows_of(threads) * row_bytes + threads * lane_bytes + margin;
    };
    int threads = kChunkThreads;
    while (threads > 32 && bytes_of(threads) > kSharedBytes) threads /= 2;
    if (bytes_of(threads) > kSharedBytes) return {};

    RowsPlan plan;
    plan.launch =
        launch_shape(ceil_div<int64_t>(rows * row_lanes, threads), threads, bytes_of(threads));
    plan.taps = has_dilation(p)           ? Taps::kDilated
                : p.taps > row_taps(item) ? Taps::kSliding
                                          : Taps::kOneStep;
    RowsArgs& args = plan.args;
    set_operands(args, p);
    set_strides(args, p);
    set_channels(args, p);
    set_rows(args, p);
    args.groups = divide_by(p.groups);
    args.dilation = static_cast<int32_t>(p.dilation);
    args.rows = static_cast<uint32_t>(rows);
    args.block_rows = static_cast<uint32_t>(block_rows_of(threads));
    args.halo_vecs = static_cast<uint32_t>(halo_vecs);
    args.taps_pitch = static_cast<uint32_t>(taps_pitch);
    args.in_taps = static_cast<uint32_t>(macs_per_output(p));
    args.taps_div = divide_by(p.taps);
    args.row_lanes = divide_by(row_lanes);
    args.parts = divide_by(p.to.channels);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const auto in = static_cast<double>(p.from.channels),
               own = 16.0 / static_cast<double>(item_of(p));
    const double per_sm = blocks_per_sm(launch, device), macs = in * static_cast<double>(p.taps);
    const double dilated = taps == Taps::kDilated ? macs * own : 0;
    // Terms: multiply-adds per thread, taps per SM, shared memory, dilated taps per SM and thread.
    return {in * static_cast<double>(ceil_div<int64_t>(p.taps, 8) * 8) * own, macs * per_sm,
            static_cast<double>(launch.shared_bytes) * per_sm / 1e5,
            dilated * fill_of(launch, device), dilated};
  }
};

}  // namespace gpuopt::conv1d
