// Products of the rows that entries join (SDDMM): problem and plan. Plain host C++.
#pragma once

#include "common/tuning.h"
#include "rows/rows_plan.h"

namespace gpuopt::spmm {

using namespace rows;

// out[entry[e]][h] = the product of a[r] and b[index[e]] over the features of head h.
struct ProductProblem {
  static constexpr const char* kPlanner = "spmm.product";
  Matrix matrix;
  DType dtype = DType::kFloat32;  // of a, b and out: float16 to float64
  int64_t features = 1;           // all heads together
  int64_t heads = 1;
  Rows a;               // [rows][features]
  Rows b;               // [columns][features]
  void* out = nullptr;  // [entries][heads]

  GPUOPT_DESCRIBE(matrix, dtype, features, heads, a, b, out)
};

// The same as a map, where each head has one feature and rows are narrow.
inline std::optional<MapProblem> as_map(const ProductProblem& problem,
                                        const Tuning& tuning = limits<Tuning>()) {
  MapProblem map;
  map.matrix = problem.matrix;
  map.map = Map::kProduct;
  map.dtype = problem.dtype;
  map.features = problem.features;
  map.x = problem.b.data;
  map.row = problem.a;
  map.out = problem.out;
  const bool is_map = problem.heads == problem.features && problem.matrix.entry == nullptr &&
                      problem.b.row == problem.features && is_tiled(map, tuning.tiles);
  return is_map ? std::optional(map) : std::nullopt;
}

struct ProductArgs {
  Walk walk;
  ProductProblem problem;
  uint32_t tile_features = 0;  // of one head, or of several
  uint32_t head_lanes = 0;     // threads that share a head, a power of two
};

struct ProductPlan {
  Access access = Access::kSingle;
  ProductArgs args;
  LaunchShape shape;
};

template <typename F>
void describe(const ProductPlan& plan, F&& f) {
  f("access", plan.access);
  describe(plan.args.walk, f);
  f("shape", plan.shape);
}

inline ProductPlan plan(const ProductProblem& problem, const Tuning& tuning = limits<Tuning>()) {
  ProductPlan plan;
  const int64_t features = problem.features / problem.heads;  // of a head
  plan.access = is_aligned({problem.a, problem.b}, features, problem.dtype) ? Access::kVector
                                                                            : Access::kSingle;
  const int elements = elements_of(plan.access, problem.dtype);
  const int64_t lanes = ceil_div<int64_t>(features, elements);  // that a head fills
  // Several heads share a group if each fills its threads.
  const bool shares = plan.access == Access::kVector && problem.heads > 1 &&
                      std::has_single_bit(static_cast<uint64_t>(lanes)) && lanes < kWarp;
  const int64_t heads = shares ? std::min<int64_t>(problem.heads, kWarp / lanes) : 1;  // of a tile
  plan.args.problem = problem;
  const int64_t tiles = ceil_div(problem.heads, heads);
  plan.args.walk = walk(problem.matrix, heads * features, elements, tiles, tuning);
  plan.args.walk.tiles = static_cast<uint32_t>(tiles);
  plan.args.tile_features = static_cast<uint32_t>(heads * features);
  plan.args.head_lanes = shares ? static_cast<uint32_t>(lanes) : plan.args.walk.lanes;
  plan.shape = shape_of(plan.args.walk, 1);
  return plan;
}

}  // namespace gpuopt::spmm
