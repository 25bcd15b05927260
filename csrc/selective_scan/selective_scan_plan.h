// The launches of a selective scan. Plain host code, tested without a GPU.
#pragma once

#include <algorithm>

#include "common/index.h"
#include "selective_scan/selective_scan.h"

namespace gpuopt::selective {

constexpr int kThreads = 128;  // of a block
constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 8;  // positions whose sums over the states are added up at once

// Chosen from times on an H100 (torch 2.11, 2026-11-26, bf16, 16 states, L2 warm), in us, for
// (batch, channels, length). A wave is as many blocks as run at once.
//                         forward, backward   whole    1 wave     1.5 waves   2 waves
//   (1, 1536, 4096)                     499, 1715   131, 340    155, 385    135, 349
//   (8, 1536, 1000), 0.7 waves           175, 672   -           -           250, 707
//   (8, 2048, 2048), 1 wave             374, 1371   -           -           569, 1650 (4 waves)
// Segments depend on the problem alone, so that the order of additions does, too.
struct Tuning {
  int64_t sms = 132;  // a wave is counted for an H100
  // The length is split into segments if there would be fewer threads than this.
  int64_t unsplit_threads = 32768;
  // The fewest positions of a segment if segments fill more than one wave.
  int64_t segment = 256;
  // Segments fill at most this many waves.
  int64_t max_waves = 4;
  int64_t launch_units = 3;  // 32 positions this many times take as long as two more launches
  // Blocks of backward() take turns with several sets of channels as long as this many blocks per
  // SM remain. If the length is split, they do while the gradients of B and C take more bytes.
  int64_t set_blocks = 3;
  int64_t part_bytes = 64 << 20;
  int64_t max_sets = 32;
};

constexpr int kSegmentUnit = 32;  // a segment has a multiple of this, which tiles divide

// Neighbouring values of a tile that a thread moves.
constexpr int run_values(int lanes) { return lanes == 1 ? 16 : lanes < 8 ? 8 : 4; }

// Positions of a tile. Each thread moves at most one run. In backward, the tiles are shorter if
// there are many states: each warp has a tile of the gradients of B and C in shared memory.
constexpr int tile_positions(int per_lane, int lanes, bool backward) {
  const int states = per_lane * lanes, runs = run_values(lanes) * lanes;
  const int most = !backward || states <= 16 ? 32 : states <= 64 ? 16 : 8;
  return runs < most ? runs : most;
}

constexpr int log2_of(int x) { return x <= 1 ? 0 : 1 + log2_of(x / 2); }

// Blocks that an SM holds. The kernels are compiled for it.
constexpr int blocks_per_sm(int per_lane, int lanes, bool backward, bool wide, bool constant) {
  if (wide) return 2;
  if (backward) return per_lane == 8 || constant ? 2 : lanes >= 8 ? 3 : 4;
  return per_lane == 8 || lanes == 1 || lanes == 16 || constant ? 3 : 4;
}

// How the states of a channel lie in a warp: `lanes` neighbouring lanes hold `per_lane` each.
struct Plan {
  int per_lane = 4;    // 1, 4 or 8
  int lanes = 4;       // 1 to 32, a power of 2
  int tile = 32;       // positions between two barriers, a multiple of kGroup
  int64_t blocks = 0;  // of a segment
  int64_t parts = 0;   // blocks of a group of channels
  int64_t sets = 1;    // sets of channels that a block goes through; more than 1 in backward only
  int64_t segments = 1, segment = 0;  // of the length, and the positions of one

  int channels() const { return kThreads / lanes; }  // of a set
  int states() const { return lanes * per_lane; }    // with padding
};

// The same for kernels, which are compiled for it.
template <int kPerLane, int kLanesPerChannel, bool kBackward>
struct Layout {
  static constexpr int kStates = kPerLane;         // of a lane
  static constexpr int kLanes = kLanesPerChannel;  // of a channel
  static constexpr int kChannels = kThreads / kLanes;
  static constexpr int kPadded = kLanes * kStates;  // states of a channel, with padding
  static constexpr int kTile = tile_positions(kPerLane, kLanes, kBackward);
  static constexpr int kRun = run_values(kLanes);
};

// There are few layouts for f64 and for constant B and C, because they are rare.
inline bool has_constant(const Problem& problem) {
  return problem.B.constant || problem.C.constant;
}
inline bool is_rare(const Problem& problem) {
  return problem.dtype == DType::kFloat64 || has_constant(problem);
}

namespace plan_detail {

inline Plan with_lanes(int per_lane, int64_t lanes) {
  Plan plan;
  plan.per_lane = per_lane;
  plan.lanes = static_cast<int>(lanes);
  return plan;
}

inline Plan plan_lanes(const Problem& problem) {
  const int64_t states = problem.states;
  if (states > 128) return with_lanes(8, 32);
  if (is_rare(problem)) return with_lanes(4, states <= 16 ? 4 : 32);
  if (states == 1) return with_lanes(1, 1);
  return with_lanes(4, pow2_ceil(ceil_div<int64_t>(states, 4)));
}

inline void count_blocks(const Problem& problem, Plan& plan) {
  const int64_t own = problem.channels / std::max<int64_t>(problem.groups, 1);
  plan.parts = ceil_div<int64_t>(own, plan.channels() * plan.sets);
  plan.blocks = problem.batch * problem.groups * plan.parts;
}

inline bool is_split(const Problem& problem, const Plan& plan, const Tuning& tuning) {
  return problem.batch * problem.channels * plan.lanes < tuning.unsplit_threads &&
         problem.length > kSegmentUnit;
}

inline void split_length(const Problem& problem, bool backward, Plan& plan, const Tuning& tuning) {
  plan.segment = std::max<int64_t>(problem.length, 1);
  if (!is_split(problem, plan, tuning)) return;
  const int64_t wave =
      tuning.sms * blocks_per_sm(plan.per_lane, plan.lanes, backward,
                                 problem.dtype == DType::kFloat64, has_constant(problem));
  const int64_t blocks = std::max<int64_t>(plan.blocks, 1);
  const int64_t waves =
      std::clamp<int64_t>(blocks * (problem.length / tuning.segment) / wave, 1, tuning.max_waves);
  const int64_t wanted = std::max<int64_t>(waves * wave / blocks, 1);
  const int64_t units = ceil_div<int64_t>(problem.length, kSegmentUnit);
  const int64_t of_segment = ceil_div<int64_t>(units, wanted);
  // A pass over the states takes two thirds of the time of one over the output.
  if (3 * (units - tuning.launch_units) <= 5 * of_segment) return;
  plan.segment = of_segment * kSegmentUnit;
  plan.segments = ceil_div<int64_t>(units, of_segment);
}

}  // namespace plan_detail

inline Plan plan_forward(const Problem& problem, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem);
  plan.tile = tile_positions(plan.per_lane, plan.lanes, false);
  plan_detail::count_blocks(problem, plan);
  plan_detail::split_length(problem, false, plan, tuning);
  return plan;
}

inline Plan plan_backward(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem);
  plan.tile = tile_positions(plan.per_lane, plan.lanes, true);
  plan_detail::count_blocks(problem, plan);
  const bool is_split = plan_detail::is_split(problem, plan, tuning);
  const int64_t filled = std::max<int64_t>(tuning.set_blocks * device.sms, 1);
  const int64_t of_block = 8 * problem.length * problem.states;  // bytes of gradients of B and C
  while (plan.sets < tuning.max_sets && plan.parts >= 2 &&
         (is_split ? plan.blocks * of_block > tuning.part_bytes : plan.blocks >= 2 * filled)) {
    plan.sets *= 2;
    plan_detail::count_blocks(problem, plan);
  }
  plan_detail::split_length(problem, true, plan, tuning);
  return plan;
}

}  // namespace gpuopt::selective
