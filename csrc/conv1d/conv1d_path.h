// Which kernel takes a convolution and how it is cut into blocks, and what plans and kernels know
// of each other. Plain host C++.
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
// What memory writes at once. Rows of outputs that begin within one cost more in the fan (1 to 512
// channels of 15999 bf16 in pieces of 64 bytes: 164 us; 90 where each begins a sector; 76 with rows
// of 16000).
constexpr int kSectorBytes = 32;

enum class Path : uint8_t {
  kLibrary,       // dense problems, which have no kernel here
  kChunks,        // contiguous rows, a part of one to a warp; half types of step 1 on tensor cores
  kRows,          // contiguous rows of step 1, by packs
  kFan,           // few values into many channels, of contiguous rows
  kGemm,          // half types of many products, of contiguous rows
  kColumns,       // channels-last, depthwise, by packs
  kValues,        // any strides and steps, value by value
  kFanGradients,  // gradients of few values from many channels, of contiguous rows
};

struct Plan {
  Path path = Path::kLibrary;
  int channels = 1;             // output channels of a lane
  bool wide = false;            // kRows: twice as many outputs a lane
  bool slides = false;          // kRows: by more than a step of taps
  bool packed = false;          // weight gradients, kColumns: by packs of channels
  bool dilated = false;         // kRows: with a window for every tap
  bool strided = false;         // kChunks: of another step than 1; gradients gather
  bool few_taps = false;        // kChunks of half types: in registers,
  bool direct = false;          // as here, with inputs that lanes load by themselves
  bool polyphase = false;       // kChunks: cut into phases, for many taps
  bool matrices = false;        // kFanGradients: on tensor cores
  bool few_values = false;      // kValues: all inputs and taps under way at once
  bool channels_first = false;  // kValues: neighbouring lanes take neighbouring channels
  int64_t places = 4;           // kValues: of a lane; kGemm: of a tile
  int64_t row_width = 1;        // so many take neighbouring places; packed: packs; gathered: taps;
                                // few_values: outputs of a warp
  int64_t cycle = 1;            // kRows, kFan: rows so many channels apart are aligned alike
  int64_t tiles = 1;            // of output channels of a group; kColumns: of all channels
  int64_t row_tiles = 1;        // of a row; not of kRows, where
  int64_t row_lanes = 1;        // lanes of a row are numbered behind those of the row before,
  int64_t rows = 1;             // of `channels` channels each in forward,
  int64_t block_rows = 1;       // at most of which a block takes a part,
  int64_t halo_packs = 0;       // with so many packs of each behind those under its lanes,
  int64_t taps_pitch = 0;       // and taps in rows of so many
  int64_t warp_tiles = 1;       // kChunks, kFan of half types: of outputs, of a warp
  // polyphase: see PolyphaseArgs.
  int64_t phases = 1, phase_segments = 0, phase_pitch = 0, stages = 1;
  int64_t made_packs = 0;  // kGemm: of a row of outputs in shared memory
  int64_t warp_packs =
      0;  // kChunks, kFan, kGemm: of an input row in shared memory, of a warp or a block
  // That the kernel is compiled for. kFan: products, of half types steps of 16; kGemm: channels, by
  // 16; direct: of 16 places; polyphase: segments of a lane; weight gradients, kChunks: taps, of
  // half types matrices.
  int products = 0;
  int aligned = 1;             // kFan: values of a row that a block's outputs are aligned to
  int64_t block_channels = 1;  // kFan
  int taps = 8;                // weight gradients: of a block
  int64_t tap_parts = 1, splits = 1;
  int64_t lanes = 1;  // kRows, kValues; kChunks: warps
  int64_t blocks = 1;
  int threads = kThreads;
  size_t shared_bytes = 0;
  size_t most_shared_bytes = 0;  // gradients: what their kernels ask for on this device
  // kFanGradients, of the input: `channels` input channels and `products` of a block, of which
  // there are tap_parts; `splits` warps share places, with block_channels whose taps are in shared
  // memory; blocks have warp_tiles places of the input, and `rows` of them share `lanes` tiles. Of
  // the weight: `channels` output channels and `products` of a block; `lanes` quads or places.
  // kGemm: `rows` blocks share `lanes` tiles.
};

// What lanes are made of, here for plans; kernels have the same by dtype.
constexpr int64_t row_outputs(int64_t item, bool wide, bool slides) {
  return (!wide ? 16 : slides && item == 4 ? 64 : 32) / item;
}
constexpr int64_t row_taps(int64_t item) { return item == 8 ? 4 : 8; }  // of a step
constexpr int64_t weight_outputs(int64_t item) { return 32 / item; }
// Of a multiprocessor, of weight gradients in chunks; f64 has no registers for more.
constexpr int64_t weight_warps(int64_t item) { return item == 8 ? 16 : 24; }
// Blocks of a multiprocessor, of weight gradients by packs of channels: as registers allow.
constexpr int weight_pack_blocks(int64_t item, int taps) { return item == 2 && taps == 8 ? 3 : 4; }
// Of each of several channels.
constexpr int64_t channel_outputs(int64_t item) { return item == 8 ? 4 : 8; }
// Products of a channel in shared memory and its bias, whole packs of them.
constexpr int64_t fan_pitch(int products, int64_t item) {
  return item == 8 ? (products + 2) / 2 * 2 : (products + 4) / 4 * 4;
}
// Blocks of a multiprocessor: as many as there are registers for the inputs under a pack of
// outputs, the taps and some more.
constexpr int resident_fan_blocks(int products, int64_t item) {
  const int words = 4 * products + static_cast<int>(item / 4) * (products + 3) + 20;
  return std::min(8, 512 / words);
}
// Neighbours of a phase that a lane makes side by side, in one segment or in two.
constexpr int kSegmentOutputs = 8;
// Of a block of direct tiles, so many to a warp.
constexpr int direct_threads(int tiles) { return tiles == 1 ? 256 : 128; }
template <typename T, int kProducts>
constexpr int kFanPitch = fan_pitch(kProducts, sizeof(T));
// Of 32 places each, that a warp makes at once on tensor cores.
constexpr int kFanMmaParts = 2;
// Blocks of a multiprocessor, of `rows` times 16 channels, as registers allow.
constexpr int gemm_blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : 2; }
// Of input gradients from many channels: places of the gradient that a warp has.
constexpr int kFanLanePlaces = 64;
constexpr int fan_matrix_places(int rows) { return rows > 2 ? 32 : 64; }
// Blocks of a multiprocessor, as registers allow: of input gradients with so many products, and of
// weight gradients.
constexpr int fan_input_blocks(int products) { return products > 16 ? 2 : 3; }
constexpr int fan_weight_blocks(bool matrices) { return matrices ? 2 : 3; }
// Products of 16 places that a warp of weight gradients has under way, with `rows` times 16
// channels.
constexpr int fan_weight_steps(int rows) { return rows == 1 ? 4 : 1; }
template <int kRows>
constexpr int kFanWeightSteps = fan_weight_steps(kRows);

namespace detail {

constexpr int64_t kSharedBytes = 48 << 10;       // that a launch has without asking
constexpr int64_t kMostSharedBytes = 100 << 10;  // with asking, for two blocks a multiprocessor
constexpr int64_t kFanSharedBytes = 112 << 10;   // the same, of input gradients on sm_90
constexpr int64_t kFanStatic = 2 * 4 * kFanMostStep;  // that input gradients declare
constexpr int64_t kStaticBytes = 64;                  // at most, that kernels of chunks declare
constexpr int64_t kSumBytes = 4 << 10;                // at most, for sums over a block
// Weight gradients' of a block, but for their sums over it.
inline int64_t weight_shared_bytes(const Device& device) {
  return std::min<int64_t>(kMostSharedBytes, device.shared_bytes) - kSumBytes;
}
// Places that 32 bits count, with room for sums of a few.
constexpr int64_t kFar = int64_t{1} << 29;

inline int64_t item_of(const Problem& problem) {
  return static_cast<int64_t>(size_of(problem.dtype));
}
inline int64_t outputs_of(const Problem& p) {
  return p.batch * p.groups * p.to.channels * p.to.size;
}
inline int64_t compute_bytes(const Problem& problem) {
  return std::max<int64_t>(item_of(problem), 4);
}

// Whether `count` strides are places that 32 bits count.
inline bool in_32_bits(int64_t count, int64_t stride) {
  return count < kFar && std::abs(stride) < kFar && count * std::abs(stride) < kFar;
}

inline bool places_in_32_bits(const Problem& p) {
  return p.step < kFar && p.from.size < 2 * kFar && p.to.size < 2 * kFar &&
         p.to.size * p.step < 3 * kFar && std::abs(p.padding) < kFar && p.taps < kFar &&
         std::abs(p.weight.tap_stride) < kFar && p.dilation < kFar && p.taps * p.dilation < kFar;
}

inline bool has_contiguous_rows(const Problem& p) {
  return (p.from.stride == 1 || p.from.size == 1) && (p.to.stride == 1 || p.to.size == 1);
}

// Sums of places with room for a padding and all taps before and behind them, in input gradients by
// steps.
inline bool steps_in_32_bits(const Problem& p) {
  return places_in_32_bits(p) && std::abs(p.padding) + p.taps * p.dilation + p.step < kFar / 2;
}

// Taps k and k + tap_cycle are a whole number of steps apart.
inline int64_t tap_cycle_of(const Problem& p) { return p.step / std::gcd(p.step, p.dilation); }

// The step is of no account where there is one output.
inline bool has_unit_step(const Problem& p) { return p.step == 1 || p.to.size == 1; }

// Whether neighbours in memory are of neighbouring channels.
inline bool has_channels_last(const Signal& signal) {
  return signal.channel_stride == 1 && signal.stride != 1;
}

inline bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kAccessBytes == 0;
}

// Whether every row of a signal starts at a pack of `values`.
inline bool has_aligned_rows(const Problem& p, const Signal& signal, int64_t values) {
  return reinterpret_cast<uintptr_t>(signal.data) % (values * item_of(p)) == 0 &&
         (signal.channels * p.groups == 1 || signal.channel_stride % values == 0) &&
         (p.batch == 1 || signal.batch_stride % values == 0);
}

// Whether rows of the input are whole quads of values at aligned addresses, which direct tiles
// read.
inline bool has_whole_quads(const Problem& p) {
  return p.from.size % kDirectQuad == 0 && has_aligned_rows(p, p.from, kDirectQuad);
}

// Outputs of a row and, where not all rows begin at `aligned` bytes, what may lie before them.
inline int64_t aligned_size(const Problem& p, int aligned) {
  const int64_t values = aligned / item_of(p);
  return p.to.size + (has_aligned_rows(p, p.to, values) ? 0 : values - 1);
}

inline int64_t lanes_of_row(const Problem& p, int64_t outputs, int aligned = kAccessBytes) {
  return ceil_div(aligned_size(p, aligned), outputs);
}

// Rows that the neighbouring lanes of a block may be of.
inline int64_t most_rows(const Plan& plan, int64_t rows) {
  return std::min(std::min<int64_t>(plan.threads, (plan.threads - 2) / plan.row_lanes + 2), rows);
}

inline int64_t cycle_of(const Signal& signal, int64_t values) {
  return signal.channels == 1 ? 1 : values / std::gcd(values, signal.channel_stride);
}

// Depthwise, and neighbouring channels in aligned packs.
inline bool has_packs_of_channels(const Problem& p) {
  const int64_t values = kAccessBytes / item_of(p);
  const auto fits = [&](const Signal& signal) {
    return signal.channel_stride == 1 && is_aligned(signal.data) && signal.stride % values == 0 &&
           (p.batch == 1 || signal.batch_stride % values == 0);
  };
  return p.from.channels == 1 && p.to.channels == 1 && p.groups % values == 0 && fits(p.from) &&
         fits(p.to);
}

}  // namespace detail
}  // namespace gpuopt::conv1d
