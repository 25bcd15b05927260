// Polyphase decomposition for many taps: a phase of a row is a convolution of stride 1 and dilation
// 1.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/cost.h"

namespace gpuopt::conv1d {

// A segment: neighbouring outputs of one phase that a thread computes. A thread has one or two.
constexpr int kSegmentOutputs = 8;

enum class Cut : uint8_t {
  kOne,      // stride and dilation are 1
  kInputs,   // the stride decomposes the input into phases
  kOutputs,  // the dilation decomposes outputs and input into phases
};

// warp_tiles is the number of outputs per warp, and warp_vecs the number of vectors of an input
// channel and its taps.
struct PolyphaseArgs : ChunkArgs {
  uint32_t phase_taps_pitch;  // distance in values between the taps of two phases
  int32_t gap;                // distance between the values of a row that are read
  FastDiv phases;
  // Vectors per phase with even indices, which is also the number with odd indices.
  uint32_t phase_pitch;
  // Segments per warp, or per phase if the outputs have phases.
  uint32_t phase_segments;
  int32_t values;   // values read per row
  uint32_t stages;  // input channels in shared memory at once: two, or all
};

// Stride and dilation, divided by their greatest common divisor `gap`. Only every `gap`th value of
// a row is read.
struct Cuts {
  int64_t gap, step, dilation;
  explicit Cuts(const Problem& p)
      : gap(std::gcd(p.stride, p.dilation)), step(p.stride / gap), dilation(p.dilation / gap) {}
};

// Distance in vectors between phases in shared memory, at least `vecs`. If the outputs have phases,
// neighbouring threads read the same vector of neighbouring phases. Eight such vectors should lie
// in different banks.
inline int64_t phase_pitch(int64_t vecs, int64_t phases) {
  if (phases == 1) return vecs;
  // `rest` is the pitch modulo 8. With an even number of phases it is 8 / phases. With an odd
  // number, phases times the pitch is 1 modulo 8: modulo the banks, the next vector of phase 0 lies
  // where one more phase would. With 6 phases, 5 has the fewest conflicts.
  int64_t rest = phases == 6 ? 5 : phases % 2 ? 1 : std::max<int64_t>(8 / phases, 1);
  while (phases % 2 && rest * phases % 8 != 1) ++rest;
  while (vecs % 8 != rest) ++vecs;
  return vecs;
}

// The layout of a warp whose threads have `segments` segments each.
struct PolyphaseShape {
  int64_t segments, phases, phase_segments, phase_pitch, taps_pitch, warp_vecs, outputs, row_warps;

  PolyphaseShape(const Problem& p, const Cuts& cuts, int64_t segments)
      : segments(segments), phases(std::max(cuts.step, cuts.dilation)) {
    // Segments per phase of the outputs.
    phase_segments = 32 * segments / cuts.dilation;
    const int64_t taps = ceil_div<int64_t>(ceil_div(p.taps, cuts.step), 4);  // vectors per phase
    const int64_t phase_outputs = phase_segments * kSegmentOutputs;
    // Each vector of taps needs one more vector of inputs behind the three under the last segment.
    phase_pitch =
        conv1d::phase_pitch(ceil_div<int64_t>(phase_outputs / 4 + 1 + taps, 2), cuts.dilation);
    taps_pitch = 4 * taps;
    warp_vecs = phases * 2 * phase_pitch + cuts.step * taps;
    outputs = phase_outputs * cuts.dilation;
    row_warps = tiles_of_row(p, outputs, kSectorBytes);
  }
};

struct PolyphasePlan : PathPlan<PolyphaseArgs> {
  static constexpr const char* kName = "polyphase";
  static constexpr const Costs& kCosts = costs::kPolyphase;
  Cut cut;
  bool wide;  // two segments per thread

  static std::optional<PolyphasePlan> make(const Problem& p, const Device& device) {
    const Cuts cuts(p);
    // fp16 and bf16 run with Cut::kInputs only. Without a stride, the Toeplitz product computes
    // them on tensor cores.
    if (item_of(p) == 8 || !has_plain_rows(p) || std::min(cuts.step, cuts.dilation) > 1 ||
        cuts.dilation > 32 || cuts.gap > 1024 || (is_half(p) && cuts.step == 1)) {
      return {};
    }
    const int64_t rows = out_rows(p);
    PolyphaseShape shape(p, cuts, 1);
    if (cuts.step == 1) {
      const PolyphaseShape wide(p, cuts, 2);
      const bool fills = wide.row_warps * wide.outputs * 20 <= shape.row_warps * shape.outputs * 21;
      if (cuts.dilation >= 6 || (fills && rows * shape.row_warps >= int64_t{device.sms} * 64)) {
        shape = wide;
      }
    }
    const int64_t warps = rows * shape.row_warps;
    // If shared memory holds all input channels of all warps of an SM, a warp waits for memory only
    // once.
    const int64_t channel_bytes = shape.warp_vecs * kAccessBytes;
    const int64_t resident = ceil_div<int64_t>(warps, device.sms);
    int64_t stages = std::min<int64_t>(p.from.channels, 2);
    if (p.from.channels * channel_bytes * resident <= kMostSharedBytes &&
        p.from.channels * channel_bytes <= kSharedBytes) {
      stages = p.from.channels;
    }
    const int64_t warp_bytes = stages * channel_bytes;
    if (warp_bytes > kSharedBytes) return {};
    int threads = kChunkThreads;
    while (threads > 32 && threads / 32 * warp_bytes > kSharedBytes / 2) threads /= 2;

    PolyphasePlan plan;
    plan.launch =
        launch_shape(ceil_div<int64_t>(warps, threads / 32), threads, threads / 32 * warp_bytes);
    plan.cut = cuts.step > 1 ? Cut::kInputs : cuts.dilation > 1 ? Cut::kOutputs : Cut::kOne;
    plan.wide = shape.segments > 1;
    ChunkShape chunk;
    chunk.warp_tiles = shape.outputs;
    chunk.warp_vecs = shape.warp_vecs;
    chunk.row_warps = shape.row_warps;
    chunk.warps = warps;
    PolyphaseArgs& args = plan.args;
    args = {chunk_args(p, chunk)};
    args.step = static_cast<int32_t>(p.stride);
    args.gap = static_cast<int32_t>(cuts.gap);
    args.phases = divide_by(shape.phases);
    args.phase_pitch = static_cast<uint32_t>(shape.phase_pitch);
    args.stages = static_cast<uint32_t>(stages);
    args.phase_segments = static_cast<uint32_t>(shape.phase_segments);
    args.values =
        static_cast<int32_t>((shape.outputs - 1) * cuts.step + (p.taps - 1) * cuts.dilation + 1);
    args.phase_taps_pitch = static_cast<uint32_t>(shape.taps_pitch);
    return plan;
  }

  Terms terms(const Problem& p, const Device& device) const {
    const Cuts cuts(p);
    const double fill = fill_of(args, device);
    const auto channels = static_cast<double>(p.from.channels);
    const double macs = channels * (wide ? 2 : 1) * kSegmentOutputs *
                        static_cast<double>(ceil_div(p.taps, cuts.step) * cuts.step) / 4;
    const double read = channels * static_cast<double>(args.values) / 32;
    // Terms: values per SM and thread, multiply-adds per SM, values in output phases and with gaps.
    return {read * fill, read, macs * fill, cuts.dilation > 1 ? read * fill : 0,
            cuts.gap > 1 ? read * fill * static_cast<double>(std::min<int64_t>(cuts.gap, 8)) : 0};
  }
};

}  // namespace gpuopt::conv1d
