// Depthwise weight gradients of channels-last signals with many taps, in the tiles of the forward
// path channel_tiles.
#pragma once

#include "conv1d/forward/channel_tiles.h"
#include "conv1d/weight_gradient/chunks.h"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

// Taps that weight_channels_last sums at once. With more it would read the signals again.
constexpr int64_t kMostSlidingWeights = 8;
// fp16 and bf16: octets of positions under a matrix of 16 taps, and most such matrices per tile.
constexpr int64_t kMatrixOctets = kMmaOutputs / 8, kMostMatrixTiles = 4;
constexpr int kMatrixTileBlocks = 2;  // per SM, limited by registers and shared memory

struct WeightChannelTilesArgs : WeightArgs {
  uint32_t channels, width_shift;  // 2^width_shift channels per tile
  uint32_t tiles;                  // of all sequences, over which blocks loop
  uint32_t octets;                 // of 8 positions per tile
  uint32_t tap_count;              // taps per block
  uint32_t tap_shift;  // f32: 2^tap_shift warps have 16 taps each, for the same positions
  FastDiv sequence_tiles, phases, dilation_div;
  bool has_vectors;
};

struct WeightChannelTilesPlan : PathPlan<WeightChannelTilesArgs> {
  static constexpr const char* kName = "weight_channel_tiles";
  static constexpr const Costs& kCosts = costs::kWeightChannelTiles;
  int matrices;  // fp16 and bf16: of 16 taps

  static std::optional<WeightChannelTilesPlan> make(const Problem& p, const Device& device) {
    if (!has_channel_tiles(p) || p.taps <= kMostSlidingWeights) return {};
    const bool half = is_half(p);
    const int64_t phases = phases_of(p), size = ceil_div(p.to.size, p.dilation);
    // Matrices hold 16 * matrices - 7 taps. In f32, each of 8 warps has 16 taps.
    const int64_t tap_parts = ceil_div<int64_t>(p.taps, half ? 16 * 8 - 7 : 16 * 8);
    const int64_t taps = ceil_div(p.taps, tap_parts);
    const int matrices = taps <= 16 * 2 - 7 ? 2 : taps <= 16 * 4 - 7 ? 4 : 8;
    const int64_t warps_of_taps = pow2_ceil(ceil_div<int64_t>(taps, 16));
    const int64_t shared = weight_shared_bytes(device);
    int64_t width = kSlideChannels, octets = kSlidePositions / 8;
    int64_t bytes = (2 * kSlidePositions + 16 * warps_of_taps) * kSlideChannels * 4;
    if (half) {
      const auto bytes_of = [&] {
        return (row_vecs(width, octets + 2 * matrices - 1) + row_vecs(width, octets + 1)) *
                   kAccessBytes +
               (kThreads / 32 * 16 * matrices * kScratchPitch + width * taps) * 4;
      };
      // Tiles of about the same size. Long ones sum fewer matrices along their diagonals.
      const int64_t needed = ceil_div<int64_t>(size, 8 * kMatrixOctets);
      const int64_t most = ceil_div<int64_t>(needed, kMostMatrixTiles);
      octets = ceil_div(needed, most) * kMatrixOctets;
      width = std::clamp<int64_t>(pow2_ceil(p.groups), 8, kSlideChannels);
      while (bytes_of() > shared && octets > kMatrixOctets) octets -= kMatrixOctets;
      while (bytes_of() > shared && width > 8) width /= 2;
      bytes = bytes_of();
    }
    const int64_t sequence_tiles = ceil_div<int64_t>(size, 8 * octets);
    const int64_t tiles = p.batch * phases * sequence_tiles;
    const int64_t parts = ceil_div(p.groups, width), all = device.sms * kMatrixTileBlocks;
    const int64_t splits = splits_of(all, parts * tap_parts, tiles);
    if (bytes > shared || tiles >= kFar || !fits_grid(parts * tap_parts * splits)) {
      return {};
    }
    WeightChannelTilesPlan plan;
    plan.matrices = matrices;
    WeightChannelTilesArgs& args = plan.args;
    plan.launch = launch_shape(parts * tap_parts * splits, kThreads, bytes);
    args = {weight_args(p, splits, tap_parts, parts)};
    args.channels = static_cast<uint32_t>(p.groups);
    args.width_shift = shift_of(width);
    args.tiles = static_cast<uint32_t>(tiles);
    args.octets = static_cast<uint32_t>(octets);
    args.tap_count = static_cast<uint32_t>(taps);
    args.tap_shift = shift_of(warps_of_taps);
    args.sequence_tiles = divide_by(sequence_tiles);
    args.phases = divide_by(phases);
    args.dilation_div = divide_by(p.dilation);
    args.has_vectors = has_vectors_of_channels(p, 8);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = blocks_per_sm(launch, device) / kMatrixTileBlocks;
    const double tiles = std::ceil(static_cast<double>(args.tiles) / args.splits.divisor);
    const double width = 1 << args.width_shift;
    const double read = tiles * width * (16 * args.octets + args.tap_count) / kThreads;
    // Of a warp or thread: matrices of 128 positions, or multiply-adds by fours.
    const double products =
        is_half(p) ? tiles * width / 8 * args.octets / 16 * (args.tap_count / 16 + 2)
                   : tiles * args.octets * static_cast<double>(1 << args.tap_shift) * 4;
    // Terms: second launch, values per SM, products per SM, values that are no vectors, products.
    return {args.partial ? 1.0 : 0.0, read * fill, products * fill,
            args.has_vectors ? 0 : read * fill, products};
  }
};

}  // namespace gpuopt::conv1d
