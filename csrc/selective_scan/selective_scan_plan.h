// Plans selective scans: chooses, from sizes and dtypes, how channels and states lie in threads,
// and whether the length is split into segments. Plain host code, tested without a GPU.
#pragma once

#include <algorithm>
#include <type_traits>

#include "common/describe.h"
#include "common/index.h"
#include "common/tuning.h"
#include "selective_scan/selective_scan_args.h"

namespace gpuopt::selective {

// Chosen from times on an H100 (torch 2.11, 2026-11-26, bf16, 16 states, L2 warm), in us, for
// (batch, channels, length). A wave is as many blocks as run at once.
//                         forward, backward   whole    1 wave     1.5 waves   2 waves
//   (1, 1536, 4096)                     499, 1715   131, 340    155, 385    135, 349
//   (8, 1536, 1000), 0.7 waves           175, 672   -           -           250, 707
//   (8, 2048, 2048), 1 wave             374, 1371   -           -           569, 1650 (4 waves)
struct Tuning {
  // A wave is counted for an H100, whatever the device is: segments depend on the problem alone,
  // and so does the order of additions in a forward pass.
  int64_t wave_sms = 132;
  // The length is split into segments if there would be fewer threads than this.
  int64_t unsplit_threads = 32768;
  // The fewest positions of a segment if segments fill more than one wave.
  int64_t segment = 256;
  // A bound of memory: blocks of the backward kernel take turns with several sets of channels while
  // the gradients of B and C take more bytes than this. Segments make up for blocks that are gone.
  int64_t part_bytes = 256 << 20;

  GPUOPT_DESCRIBE(wave_sms, unsplit_threads, segment, part_bytes)
};

constexpr int kSegmentUnit = 32;  // a segment has a multiple of this, which tiles divide

namespace plan_detail {

inline bool is_wide(const Problem& problem) { return problem.dtype == DType::kFloat64; }
inline size_t compute_bytes(const Problem& problem) { return is_wide(problem) ? 8 : 4; }

inline void count_blocks(const Problem& problem, Tiling& tiling) {
  const int64_t own = problem.channels / std::max<int64_t>(problem.groups, 1);
  tiling.parts = ceil_div<int64_t>(own, tiling.channels() * tiling.sets);
  tiling.blocks = problem.batch * problem.groups * tiling.parts;
}

// A tiling of one segment, with one of the layouts of with_layout().
inline Tiling tile_channels(const Problem& problem, bool backward) {
  const int64_t states = problem.states;
  Tiling tiling;
  tiling.per_lane = states > 128 ? 8 : 4;
  if (states > 128) {
    tiling.lanes = 32;
  } else if (is_wide(problem) || has_constant(problem)) {
    tiling.lanes = states <= 16 ? 4 : 32;
  } else if (states == 1) {
    tiling.per_lane = tiling.lanes = 1;
  } else {
    tiling.lanes = static_cast<int>(pow2_ceil(ceil_div<int64_t>(states, 4)));
  }
  tiling.tile = tile_positions(tiling.per_lane, tiling.lanes, backward);
  tiling.segment = std::max<int64_t>(problem.length, 1);
  count_blocks(problem, tiling);
  return tiling;
}

inline void split_length(const Problem& problem, bool backward, Tiling& tiling,
                         const Tuning& tuning) {
  const int64_t threads = problem.batch * problem.channels * tiling.lanes / tiling.sets;
  if (threads >= tuning.unsplit_threads || problem.length <= kSegmentUnit) return;
  const int64_t wave = tuning.wave_sms * blocks_per_sm(tiling.per_lane, tiling.lanes, backward,
                                                       is_wide(problem), has_constant(problem));
  const int64_t blocks = std::max<int64_t>(tiling.blocks, 1);
  const int64_t waves = std::max<int64_t>(blocks * (problem.length / tuning.segment) / wave, 1);
  const int64_t wanted = std::max<int64_t>(waves * wave / blocks, 1);
  const int64_t units = ceil_div<int64_t>(problem.length, kSegmentUnit);
  const int64_t of_segment = ceil_div<int64_t>(units, wanted);
  // A pass over the states takes two thirds of the time of one over the output. A forward pass of
  // segments has two more launches, which take as long as three units: (5,552,56) with 16 states
  // takes 12.0 us unsplit, and 16.5 in two segments (H200). A backward pass gains nonetheless.
  const int64_t launch_units = backward ? 0 : 3;
  if (3 * (units - launch_units) <= 5 * of_segment) return;
  tiling.segment = of_segment * kSegmentUnit;
  tiling.segments = ceil_div<int64_t>(units, of_segment);
}

inline Tiling tile_backward(const Problem& problem, const Tuning& tuning) {
  Tiling tiling = tile_channels(problem, true);
  const int64_t of_block = 8 * problem.length * problem.states;  // bytes of gradients of B and C
  while (tiling.parts >= 2 && tiling.blocks * of_block > tuning.part_bytes) {
    tiling.sets *= 2;
    count_blocks(problem, tiling);
  }
  split_length(problem, true, tiling, tuning);
  return tiling;
}

// A launch over some segments of the length.
template <bool kBackward, typename Args>
Launch<Args> over_segments(const Args& args, int64_t segments) {
  const auto shared_bytes = [&]<typename C>(C) {
    return with_layout<C, false, kBackward>(args.tiling, [](auto layout) {
      using Layout = decltype(layout);
      return std::conditional_t<kBackward, BackwardShared<C, Layout>,
                                ForwardShared<C, Layout>>::kBytes;
    });
  };
  const auto blocks = static_cast<unsigned>(args.tiling.blocks * segments);
  const size_t bytes = is_wide(args.problem) ? shared_bytes(double{}) : shared_bytes(float{});
  return {args, {blocks, kThreads, bytes, true}};
}

inline Launch<CombineArgs> combine(const Problem& problem, int64_t segments) {
  const int64_t blocks =
      ceil_div<int64_t>(problem.batch * problem.channels * problem.states, kThreads);
  return {{problem, segments}, {static_cast<unsigned>(blocks), kThreads, 0, true}};
}

}  // namespace plan_detail

// A problem must be supported, and have a length of at least 1.
inline ForwardPlan plan_forward(const Problem& problem, const Tuning& tuning = limits<Tuning>()) {
  using namespace plan_detail;
  ForwardArgs args{problem, tile_channels(problem, false)};
  split_length(problem, false, args.tiling, tuning);
  const int64_t segments = args.tiling.segments;
  ForwardPlan plan{{}, over_segments<false>(args, segments)};
  if (segments > 1) {
    const size_t row_bytes = compute_bytes(problem) * problem.batch * segments * problem.channels;
    plan.segments = {over_segments<false>(args, segments - 1), combine(problem, segments),
                     row_bytes * problem.states, row_bytes};
  }
  return plan;
}

// The parts in `gradients` may be null: the plan says how many there are.
inline BackwardPlan plan_backward(const Problem& problem, const Gradients& gradients,
                                  const Tuning& tuning = limits<Tuning>()) {
  using namespace plan_detail;
  const Tiling tiling = tile_backward(problem, tuning);
  const int64_t segments = tiling.segments;
  ForwardArgs pass{problem, tile_channels(problem, false)};
  pass.tiling.segments = segments;
  pass.tiling.segment = tiling.segment;
  pass.spacing = tiling.tile;

  BackwardPlan plan;
  plan.checkpoints = over_segments<false>(pass, segments);
  plan.backward = over_segments<true>(BackwardArgs{problem, gradients, tiling}, segments);
  const size_t channel_bytes = compute_bytes(problem) * problem.batch * problem.channels;
  const size_t tile_bytes = channel_bytes * ceil_div<int64_t>(problem.length, tiling.tile);
  const size_t row_bytes = channel_bytes * segments;
  plan.checkpoints_bytes = tile_bytes * problem.states;
  if (tiling.sets > 1) plan.carry_bytes = row_bytes * problem.states;
  if (segments > 1) {
    pass.problem.u = gradients.out;
    pass.first_segment = 1;  // nothing precedes segment 0
    plan.segments = {combine(problem, segments), over_segments<false>(pass, segments - 1),
                     combine(problem, segments), tile_bytes,
                     row_bytes * problem.states, row_bytes};
    CombineArgs& reversed = plan.segments->combine_gradients.args;
    reversed.reverse = true;
    reversed.initial = gradients.last_state;
  }
  return plan;
}

inline UpdatePlan plan_update(const Update& update) {
  const int lanes = static_cast<int>(
      std::min<int64_t>(32, pow2_ceil(ceil_div<int64_t>(update.states, kUpdateStates))));
  const int64_t blocks =
      ceil_div<int64_t>(update.batch * update.heads * update.channels, kThreads / lanes);
  return {update, lanes, {static_cast<unsigned>(blocks), kThreads, 0, true}};
}

// What to_json() prints. The arguments of a launch are left out, except its tiling.
template <typename F>
void describe(const Tiling& tiling, F&& f) {
  f("per_lane", tiling.per_lane);
  f("lanes", tiling.lanes);
  f("states", tiling.states());
  f("channels", tiling.channels());
  f("tile", tiling.tile);
  f("blocks", tiling.blocks);
  f("parts", tiling.parts);
  f("sets", tiling.sets);
  f("segments", tiling.segments);
  f("segment", tiling.segment);
}
template <typename Args, typename F>
void describe(const Launch<Args>& launch, F&& f) {
  if constexpr (!std::is_same_v<Args, CombineArgs>) f("tiling", launch.args.tiling);
  f("shape", launch.shape);
}
template <typename F>
void describe(const ForwardPlan& plan, F&& f) {
  if (plan.segments) {
    f("states", plan.segments->states);
    f("combine", plan.segments->combine);
  }
  f("output", plan.output);
}
template <typename F>
void describe(const BackwardPlan& plan, F&& f) {
  f("checkpoints", plan.checkpoints);
  if (plan.segments) {
    f("combine", plan.segments->combine);
    f("gradients", plan.segments->gradients);
    f("combine_gradients", plan.segments->combine_gradients);
  }
  f("backward", plan.backward);
}

}  // namespace gpuopt::selective
