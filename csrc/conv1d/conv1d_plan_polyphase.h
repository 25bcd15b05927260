// Plans for problems of many taps, which are cut into phases.
#pragma once

#include "conv1d/conv1d_path.h"

namespace gpuopt::conv1d::detail {

// Packs from one phase to the next, at least `packs`. Neighbouring lanes read packs of one phase
// after another, if the phases are the outputs', and then the next ones of each: eight of these, of
// 16 bytes, are best in different banks.
inline int64_t phase_pitch(int64_t packs, int64_t phases) {
  if (phases == 1) return packs;
  // Of an even number of phases, lanes in the same one have 8 / phases packs between them. Of an
  // odd number, phases times the pitch is one pack more than all banks, so that the next pack of
  // the first phase follows the last phase's. (Of 6, the fewest share a bank.)
  int64_t rest = phases == 6 ? 5 : phases % 2 ? 1 : std::max<int64_t>(8 / phases, 1);
  while (phases % 2 && rest * phases % 8 != 1) ++rest;
  while (packs % 8 != rest) ++packs;
  return packs;
}

// The step and the dilation without what they have in common: values of a row that no tap meets.
struct Cuts {
  int64_t gap, step, dilation;
  explicit Cuts(const Problem& p)
      : gap(std::gcd(p.step, p.dilation)), step(p.step / gap), dilation(p.dilation / gap) {}
};

// How a warp is laid out whose lanes have so many segments.
inline Plan shape_polyphase(const Problem& p, const Cuts& cuts, int64_t segments) {
  Plan plan;
  const int64_t step = cuts.step, dilation = cuts.dilation;
  plan.products = static_cast<int>(segments);
  plan.phases = std::max(step, dilation);
  // Segments of each phase of the outputs, if these have several.
  plan.phase_segments = 32 * segments / dilation;
  const int64_t taps = ceil_div<int64_t>(ceil_div(p.taps, step), 4);  // packs of them, of a phase
  const int64_t outputs = plan.phase_segments * kSegmentOutputs;      // of a phase
  // Every pack of taps takes one more pack of inputs, behind the three of the last segment.
  plan.phase_pitch = phase_pitch(ceil_div<int64_t>(outputs / 4 + 1 + taps, 2), dilation);
  plan.taps_pitch = 4 * taps;
  plan.warp_packs = plan.phases * 2 * plan.phase_pitch + step * taps;
  plan.warp_tiles = outputs * dilation;
  plan.row_lanes = lanes_of_row(p, plan.warp_tiles, kSectorBytes);
  return plan;
}

// Whether taps are many enough to make up for cutting rows into phases; conv1d_tuning.h has the
// measurements.
inline bool has_many_taps(const Problem& p, const Cuts& cuts, const Tuning& tuning) {
  const bool half = item_of(p) == 2;
  const int64_t in = p.from.channels, out = p.to.channels, taps = p.taps;
  if (in > tuning.polyphase_channels || out > (in * taps > 64 ? 8 : 4)) return false;
  if (cuts.step > 1) {
    if (half) {
      const bool soon = in == 1 && (outputs_of(p) >= kHalfPhaseOutputs || cuts.step >= 8);
      return soon ? cuts.step <= 8 && taps >= 3 * cuts.step + 6
                  : cuts.step <= 5 && taps >= 6 * cuts.step + 12;
    }
    if (p.to.size < tuning.polyphase_outputs && taps < 4 * cuts.step) return false;
    // Lanes that pick values a step apart (strided_kernel) share banks of shared memory where the
    // step is even.
    const int64_t sharing = std::min<int64_t>(std::gcd<int64_t>(cuts.step, 32), 4);
    return cuts.step <= 16 && taps * sharing >= (sharing > 1 ? 10 : 8) * cuts.step;
  }
  if (half) return false;  // tensor cores take dilated taps as well
  if (cuts.dilation > 1) return taps >= (cuts.dilation > 16 ? 24 : in > 1 ? 7 : 9);
  if (p.to.size < tuning.chunk_outputs) return taps >= (in > 1 ? 7 : 3);
  // Up to 64 products are rows_kernel's otherwise, which makes four channels at once and takes 8
  // taps at a time; beyond, a library's.
  if (out > 2) return (taps >= 10 && taps <= 24) || in * taps > 64;
  if (out > 1) return taps >= (in > 1 ? 3 : 9);
  return taps >= (in == 1 ? tuning.polyphase_taps : in < 6 ? 9 : 3);
}

inline Plan plan_polyphase(const Problem& p, const Device& device, const Tuning& tuning) {
  const Cuts cuts(p);
  if (item_of(p) == 8 || std::min(cuts.step, cuts.dilation) > 1 || cuts.dilation > 32 ||
      cuts.gap > 1024 || p.to.size < tuning.polyphase_outputs / (cuts.step > 1 ? 2 : 1) ||
      !has_many_taps(p, cuts, tuning)) {
    return {};
  }
  const int64_t rows = p.batch * p.groups * p.to.channels;
  Plan plan = shape_polyphase(p, cuts, 1);
  // Where a multiprocessor has few warps, each waits for its own instructions, of which cutting
  // takes most; strided_kernel has fewer.
  if (cuts.step > 1 && p.from.channels == 1 && p.taps < tuning.polyphase_few_taps &&
      rows * plan.row_lanes < device.multiprocessors * tuning.polyphase_few_warps) {
    return {};
  }
  if (cuts.step == 1) {
    const Plan wide = shape_polyphase(p, cuts, 2);
    const bool fills =
        wide.row_lanes * wide.warp_tiles * 20 <= plan.row_lanes * plan.warp_tiles * 21;
    if (cuts.dilation >= tuning.polyphase_far ||
        (fills && rows * plan.row_lanes >= device.multiprocessors * tuning.polyphase_warps)) {
      plan = wide;
    }
  }
  plan.lanes = rows * plan.row_lanes;
  // All input channels at once where that is little enough for all warps of a multiprocessor, so
  // that memory is waited for once.
  const int64_t channel_bytes = plan.warp_packs * kAccessBytes;
  const int64_t resident = ceil_div<int64_t>(plan.lanes, device.multiprocessors);
  plan.stages = std::min<int64_t>(p.from.channels, 2);
  if (p.from.channels * channel_bytes * resident <= kMostSharedBytes &&
      p.from.channels * channel_bytes <= kSharedBytes) {
    plan.stages = p.from.channels;
  }
  const int64_t warp_bytes = plan.stages * channel_bytes;
  if (warp_bytes > kSharedBytes) return {};
  plan.threads = kChunkThreads;
  while (plan.threads > 32 && plan.threads / 32 * warp_bytes > kSharedBytes / 2) plan.threads /= 2;
  plan.shared_bytes = static_cast<size_t>(plan.threads / 32 * warp_bytes);
  plan.blocks = ceil_div<int64_t>(plan.lanes, plan.threads / 32);
  plan.polyphase = true;
  plan.path = Path::kChunks;
  return plan;
}

}  // namespace gpuopt::conv1d::detail
