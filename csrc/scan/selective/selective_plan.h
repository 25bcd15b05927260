// The launches of a selective scan. Plain host code, tested without a GPU.
#pragma once

#include <algorithm>

#include "common/index.h"
#include "scan/selective/selective.h"

namespace gpuopt::selective {

constexpr int kThreads = 128;  // of a block
constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 8;  // positions whose sums over the states are added up at once

// Chosen by reasoning, not yet measured.
struct Tuning {
  // A lane holds one state in place of four if there would be fewer threads than this per SM.
  int64_t few_threads = 192;
  // Blocks of backward() take turns with several sets of channels as long as this many blocks per
  // SM remain.
  int64_t set_blocks = 3;
  int64_t max_sets = 32;
};

// Neighbouring values of a tile that a thread moves. With one state per lane, tiles have few
// channels.
constexpr int run_values(int per_lane) { return per_lane == 1 ? 4 : 8; }

// Positions of a tile. Each thread moves at most one run. In backward, the tiles are shorter if
// there are many states: each warp has a tile of the gradients of B and C in shared memory.
constexpr int tile_positions(int per_lane, int lanes, bool backward) {
  const int states = per_lane * lanes, runs = run_values(per_lane) * lanes;
  const int most = !backward || states <= 16 ? 32 : states <= 64 ? 16 : 8;
  return runs < most ? runs : most;
}

// How the states of a channel lie in a warp: `lanes` neighbouring lanes hold `per_lane` each.
struct Plan {
  int per_lane = 4;  // 1, 4 or 8
  int lanes = 4;     // 2 to 32, a power of 2
  int tile = 32;     // positions between two barriers, a multiple of kGroup
  int64_t blocks = 0;
  int64_t parts = 0;  // blocks of a group of channels
  int64_t sets = 1;   // sets of channels that a block goes through; more than 1 in backward only

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
  static constexpr int kRun = run_values(kPerLane);
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

inline void count_blocks(const Problem& problem, Plan& plan) {
  const int64_t own = problem.channels / std::max<int64_t>(problem.groups, 1);
  plan.parts = ceil_div<int64_t>(own, plan.channels() * plan.sets);
  plan.blocks = problem.batch * problem.groups * plan.parts;
}

inline Plan plan_lanes(const Problem& problem, const Device& device, const Tuning& tuning) {
  const int64_t states = problem.states;
  if (states > 128) return with_lanes(8, 32);
  if (is_rare(problem)) return with_lanes(4, states <= 16 ? 4 : 32);
  if (states <= 2) return with_lanes(1, 2);
  const Plan four = with_lanes(4, std::max<int64_t>(2, pow2_ceil(ceil_div<int64_t>(states, 4))));
  const int64_t threads = problem.batch * problem.channels * four.lanes;
  if (threads >= tuning.few_threads * device.sms || states > 32) return four;
  return with_lanes(1, std::max<int64_t>(8, pow2_ceil(states)));
}

}  // namespace plan_detail

inline Plan plan_forward(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem, device, tuning);
  plan.tile = tile_positions(plan.per_lane, plan.lanes, false);
  plan_detail::count_blocks(problem, plan);
  return plan;
}

inline Plan plan_backward(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem, device, tuning);
  plan.tile = tile_positions(plan.per_lane, plan.lanes, true);
  plan_detail::count_blocks(problem, plan);
  const int64_t filled = std::max<int64_t>(tuning.set_blocks * device.sms, 1);
  while (plan.sets < tuning.max_sets && plan.blocks >= 2 * filled && plan.parts >= 2) {
    plan.sets *= 2;
    plan_detail::count_blocks(problem, plan);
  }
  return plan;
}

}  // namespace gpuopt::selective
