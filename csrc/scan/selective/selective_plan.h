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

// How the states of a channel lie in a warp: `lanes` neighbouring lanes hold `per_lane` each.
struct Plan {
  int per_lane = 4;  // 1, 4 or 8
  int lanes = 4;     // 2 to 32, a power of 2
  int tile = 32;     // positions between two barriers, a multiple of kGroup
  int64_t blocks = 0;
  int64_t parts = 0;  // blocks of a group of channels
  int64_t sets = 1;   // sets of channels that a block goes through; more than 1 in backward only

  int run() const { return run_values(per_lane); }
  GPUOPT_HOST_DEVICE int channels() const { return kThreads / lanes; }  // of a set
  GPUOPT_HOST_DEVICE int states() const { return lanes * per_lane; }    // with padding
};

namespace plan_detail {

inline Plan with_states(int64_t states, int per_lane) {
  Plan plan;
  plan.per_lane = per_lane;
  plan.lanes =
      static_cast<int>(std::max<int64_t>(2, pow2_ceil(ceil_div<int64_t>(states, per_lane))));
  return plan;
}

// Each thread moves at most one run of a tile.
inline int most_positions(const Plan& plan) {
  return std::min(32, kThreads * plan.run() / plan.channels());
}

inline void count_blocks(const Problem& problem, Plan& plan) {
  const int64_t own = problem.channels / std::max<int64_t>(problem.groups, 1);
  plan.parts = ceil_div<int64_t>(own, plan.channels() * plan.sets);
  plan.blocks = problem.batch * problem.groups * plan.parts;
}

inline Plan plan_lanes(const Problem& problem, const Device& device, const Tuning& tuning) {
  if (problem.states > 128) return with_states(problem.states, 8);
  const Plan four = with_states(problem.states, 4), one = with_states(problem.states, 1);
  const int64_t threads = problem.batch * problem.channels * four.lanes;
  const bool few = threads < tuning.few_threads * device.sms;
  return problem.states <= 2 || (few && problem.states <= 32) ? one : four;
}

}  // namespace plan_detail

inline Plan plan_forward(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem, device, tuning);
  plan.tile = plan_detail::most_positions(plan);
  plan_detail::count_blocks(problem, plan);
  return plan;
}

// The tiles are shorter if there are many states, because a tile of the gradients of B and C lies
// in shared memory for each warp.
inline Plan plan_backward(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan = plan_detail::plan_lanes(problem, device, tuning);
  const int most = plan.states() > 64 ? 8 : plan.states() > 16 ? 16 : 32;
  plan.tile = std::min(most, plan_detail::most_positions(plan));
  plan_detail::count_blocks(problem, plan);
  const int64_t filled = std::max<int64_t>(tuning.set_blocks * device.sms, 1);
  while (plan.sets < tuning.max_sets && plan.blocks >= 2 * filled && plan.parts >= 2) {
    plan.sets *= 2;
    plan_detail::count_blocks(problem, plan);
  }
  return plan;
}

}  // namespace gpuopt::selective
