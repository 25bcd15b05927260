// Problems to launches of attention over a sparse matrix. Plain host C++.
//
// A group of threads covers whole heads: `tile_heads` neighbouring heads, each of `head_lanes`
// threads of 16 bytes. Groups walk windows as in rows_plan.h.
#pragma once

#include <algorithm>

#include "common/tuning.h"
#include "graph_attention/graph_attention_problem.h"
#include "rows/rows_plan.h"

namespace gpuopt::graph_attention {

struct AttentionArgs {
  Walk walk;
  AttentionProblem problem;
  uint32_t tile_heads = 1;  // a power of two, as head_lanes
  uint32_t head_lanes = 1;
  uint32_t finish_blocks = 0;  // as in ReduceArgs
  uint32_t finish_tiles = 0;
};

struct AttentionPlan {
  AttentionArgs args;
  LaunchShape shape;
  size_t part_bytes = 0;  // [blocks][2][features]
  LaunchShape finish;
};

template <typename F>
void describe(const AttentionPlan& plan, F&& f) {
  describe(plan.args.walk, f);
  f("tile_heads", plan.args.tile_heads);
  f("head_lanes", plan.args.head_lanes);
  f("shape", plan.shape);
  f("part_bytes", plan.part_bytes);
  f("finish_blocks", plan.args.finish_blocks);
  f("finish_tiles", plan.args.finish_tiles);
  f("finish", plan.finish);
}

// The pass over rows of the gradient.
struct AttentionGradientPlan {
  AttentionArgs args;
  LaunchShape shape;
  ReducePlan sums;  // adds the parts of left_grad
};

template <typename F>
void describe(const AttentionGradientPlan& plan, F&& f) {
  describe(plan.args.walk, f);
  f("shape", plan.shape);
  f("sums", plan.sums);
}

// Whether a thread can read 16 bytes of a head everywhere, and a warp a whole head. The numbers of
// features belong to one head, and key_features is 0 in the additive form.
inline bool heads_are_vectors(int64_t key_features, int64_t features, DType dtype) {
  const int64_t vector = elements_of(Access::kVector, dtype);
  const int64_t most = kWarp * vector;
  return features > 0 && features % vector == 0 && features <= most && key_features % vector == 0 &&
         key_features <= most;
}

// The bytes of the state of a feature: maximum, sum and value.
inline size_t attention_state_bytes(DType dtype) { return dtype == DType::kFloat64 ? 32 : 16; }

inline AttentionArgs attention_args(const AttentionProblem& problem, const Tuning& tuning) {
  AttentionArgs args;
  args.problem = problem;
  const int vector = elements_of(Access::kVector, problem.dtype);
  const int64_t widest = std::max(problem.features, problem.key_features) / problem.heads;
  const int64_t head_lanes = pow2_ceil(ceil_div<int64_t>(widest, vector));
  const int64_t heads = std::min(pow2_ceil(problem.heads), kWarp / head_lanes);
  const int64_t tiles = ceil_div(problem.heads, heads);
  args.walk = walk(problem.matrix, heads * head_lanes * vector, vector, tiles, tuning);
  args.walk.tiles = static_cast<uint32_t>(tiles);
  args.tile_heads = static_cast<uint32_t>(heads);
  args.head_lanes = static_cast<uint32_t>(head_lanes);
  return args;
}

inline AttentionPlan plan(const AttentionProblem& problem,
                          const Tuning& tuning = limits<Tuning>()) {
  AttentionPlan plan;
  plan.args = attention_args(problem, tuning);
  plan.shape = shape_of(plan.args.walk, 1);
  plan_parts(plan, problem.features, 1, attention_state_bytes(problem.dtype));
  return plan;
}

inline AttentionGradientPlan plan_gradient(const AttentionProblem& problem,
                                           const Tuning& tuning = limits<Tuning>()) {
  AttentionGradientPlan plan;
  plan.args = attention_args(problem, tuning);
  plan.shape = shape_of(plan.args.walk, 1);
  ReduceProblem& sums = plan.sums.args.problem;
  sums.matrix = problem.matrix;
  sums.dtype = problem.dtype;
  sums.features = problem.is_product() ? problem.key_features : problem.heads;
  sums.out = problem.left_grad;
  plan.sums.args.walk = plan.args.walk;
  plan_parts(plan.sums, sums.features, 1, state_bytes(sums.reduce, sums.dtype));
  return plan;
}

}  // namespace gpuopt::graph_attention
