// Depthwise convolutions of channels-last signals with many taps: a block copies some channels of
// some positions to shared memory. fp16 and bf16 run on tensor cores.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

// Filters of up to this many taps slide along channels in registers. Tiles take 1.15 to 1.44 times
// as long with 11 to 16 taps of fp16 and bf16, and 0.86 to 0.94 times with 9 to 16 taps of f32
// (H200, 7 random problems).
constexpr int64_t most_sliding_taps(bool is_half) { return is_half ? 16 : 8; }
constexpr int kTileBlocks = 4;  // per SM, limited by registers
// Shared memory of a block, for three blocks per SM. A block of the fewest channels may have more.
constexpr int64_t kTileBytes = 72 << 10;
// f32: channels, positions per tile, and most taps in shared memory at once.
constexpr int64_t kSlideChannels = 32, kSlidePositions = 128, kSlideTaps = 128, kSlideStep = 4;

struct ChannelTilesArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_stride, to_batch, to_stride;
  int64_t weight_channel, weight_tap, bias_stride;
  int32_t from_size, to_size, padding, taps;
  uint32_t channels, width_shift;  // 2^width_shift channels per tile
  // fp16 and bf16: 16 * matrices taps with zeros, and the distance in values between the taps of
  // two channels in shared memory.
  uint32_t matrices, taps_pitch;
  FastDiv channel_parts, tiles, phases, dilation, taps_of;  // tiles: per sequence
  Activation activation;
  bool has_vectors;
};

// Whether a problem is depthwise with channels innermost, without a stride.
inline bool has_channel_tiles(const Problem& p) {
  return p.from.channels == 1 && p.to.channels == 1 && p.from.channel_stride == 1 &&
         p.to.channel_stride == 1 && has_unit_stride(p) && item_of(p) < 8 && strides_in_32_bits(p);
}

// The number of sequences of an example, see Sequence.
inline int64_t phases_of(const Problem& p) { return std::min(p.dilation, p.to.size); }

// Vectors of `width` rows in shared memory, see TileRows.
inline int64_t row_vecs(int64_t width, int64_t pitch) { return width * pitch + width / 8; }

struct ChannelTilesPlan : PathPlan<ChannelTilesArgs> {
  static constexpr const char* kName = "channel_tiles";
  static constexpr const Costs& kCosts = costs::kChannelTiles;
  int vecs;  // fp16 and bf16: 1, 3 or 5 vectors of outputs per chunk. A tile has 16 chunks.

  static std::optional<ChannelTilesPlan> make(const Problem& p, const Device& device) {
    if (!has_channel_tiles(p) || p.taps <= most_sliding_taps(is_half(p))) return {};
    const int64_t phases = phases_of(p), sequences = p.batch * phases;
    ChannelTilesPlan plan;
    ChannelTilesArgs& args = plan.args;
    set_operands(args, p);
    set_signal(args, p);
    args.weight_channel = p.weight.group_stride;
    args.channels = static_cast<uint32_t>(p.groups);
    args.phases = divide_by(phases);
    args.dilation = divide_by(p.dilation);
    args.taps_of = divide_by(p.taps);
    args.has_vectors = has_vectors_of_channels(p, 8);
    if (!plan.choose_tile(p, device, sequences, ceil_div(p.to.size, p.dilation))) return {};
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const double fill = fill_of(launch, device);
    const double width = 1 << args.width_shift, positions = vecs ? 128 * vecs : kSlidePositions;
    const double read = width * (positions + static_cast<double>(p.taps)) / kThreads;
    // Of a warp or thread: matrices of 256 outputs, or multiply-adds by fours.
    const double products = vecs ? width / 8 * args.matrices * vecs / 2
                                 : 4 * static_cast<double>(ceil_div<int64_t>(p.taps, 4) * 4);
    // Terms: values per SM and thread, products per SM and warp, values that are no vectors.
    return {read * fill, read, products * fill, products, args.has_vectors ? 0 : read * fill};
  }

 private:
  bool choose_tile(const Problem& p, const Device& device, int64_t sequences, int64_t size) {
    const auto set = [&](int64_t width, int64_t positions, int64_t bytes) {
      const int64_t tiles = ceil_div(size, positions), parts = ceil_div(p.groups, width);
      args.width_shift = shift_of(width);
      args.channel_parts = divide_by(parts);
      args.tiles = divide_by(tiles);
      launch = launch_shape(sequences * tiles * parts, kThreads, bytes);
    };
    if (!is_half(p)) {
      const int64_t taps = std::min(p.taps, kSlideTaps);
      const int64_t inputs = kSlidePositions + ceil_div(taps, kSlideStep) * kSlideStep;
      vecs = 0;
      args.matrices = args.taps_pitch = 0;
      set(kSlideChannels, kSlidePositions,
          (inputs * kSlideChannels + taps * (kSlideChannels + 1)) * 4);
      return true;
    }
    // The first tap of row j and column n of B lies j - n positions behind the first input.
    const int64_t matrices = (p.taps + 6) / 16 + 1,
                  taps_pitch = ceil_div<int64_t>(p.taps + 37, 8) * 8;
    args.matrices = static_cast<uint32_t>(matrices);
    args.taps_pitch = static_cast<uint32_t>(taps_pitch);
    const int64_t shared = std::min<int64_t>(device.shared_bytes, kMostSharedBytes);
    // Longer chunks read fewer inputs twice and load fewer fragments. Shorter ones fill the GPU.
    double least = 0;
    bool fits = false;
    for (const int tile_vecs : {1, 3, 5}) {
      const int64_t pitch = 16 * tile_vecs + 2 * matrices - 1;
      const auto bytes_of = [&](int64_t width) {
        return row_vecs(width, pitch) * kAccessBytes + width * taps_pitch * 2;
      };
      int64_t width = std::clamp<int64_t>(pow2_ceil(p.groups), 8, 64);
      while (width > 8 && bytes_of(width) > std::min(shared, kTileBytes)) width /= 2;
      if (bytes_of(width) > shared) continue;
      // Cycles per tile: transposes, matrices and fragments. Tiles run at once up to kTileBlocks.
      const auto tiles = static_cast<double>(sequences * ceil_div(p.groups, width) *
                                             ceil_div<int64_t>(size, 128 * tile_vecs));
      const auto work =
          static_cast<double>(width * (pitch + 16 * tile_vecs + matrices * (2 * tile_vecs + 4)));
      const double cost = work * std::max(tiles / (device.sms * kTileBlocks), 1.0);
      if (fits && cost >= least) continue;
      set(width, 128 * tile_vecs, bytes_of(width));
      least = cost;
      vecs = tile_vecs;
      fits = true;
    }
    return fits;
  }
};

}  // namespace gpuopt::conv1d
