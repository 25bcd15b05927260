// Reductions of bags of rows, as nn.EmbeddingBag has them: problem and plan. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include "common/device.h"
#include "common/export.h"
#include "rows/rows_plan.h"

namespace gpuopt::spmm {

using namespace rows;

constexpr int kBagThreads = 128;
constexpr int kBagRows = 4;  // of a thread whose loads are in flight together
// Threads per SM that keep memory busy. With fewer, several groups share a bag. Not swept.
constexpr int64_t kBusyThreads = 1024;

enum class Bag : uint8_t { kSum, kMean, kMax };  // ATen's numbers

// out[b] = reduce over the entries e of bag b: value[e] * table[index[e]]. Bag b has the entries
// offset[b] to offset[b + 1]. The first bag begins at 0, and the last one ends with the entries.
// Entries whose index is `padding` do not count. A bag without any gives 0.
struct BagProblem {
  Bag bag = Bag::kSum;
  DType dtype = DType::kFloat32;  // of table, value and out: float16 to float64
  bool is_long = false;           // offset, index and all numbers are int64, else int32
  int64_t bags = 0;
  int64_t entries = 0;
  int64_t table_rows = 0;
  int64_t features = 0;
  int64_t padding = -1;
  const void* offset = nullptr;  // [bags]
  const void* index = nullptr;   // [entries]
  const void* value = nullptr;   // [entries], of a sum. Null stands for 1
  Rows table;                    // [table_rows][features]
  void* out = nullptr;           // [bags][features]
  void* bag_of = nullptr;        // [entries]: the bag of each entry
  void* size = nullptr;          // [bags]: the number of entries that count
  void* winner = nullptr;        // [bags][features]: the index of each maximum, or -1
};

struct BagArgs {
  BagProblem problem;
  uint32_t lanes = 1;  // threads of a group, side by side along the features: a power of two
  uint32_t team = 1;   // groups of a warp that share a bag: a power of two
  uint32_t tiles = 1;  // of features
};

struct BagPlan {
  Access access = Access::kVector;
  BagArgs args;
  LaunchShape shape;
};

inline int64_t blocks_of(const BagArgs& args) {
  return ceil_div<int64_t>(args.problem.bags, kBagThreads / (args.lanes * args.team)) * args.tiles;
}

// Whether a launch has enough blocks, and 32 bits hold the numbers of rows.
inline bool is_supported(const BagProblem& problem) {
  return problem.table_rows > 0 && problem.table_rows < kMostColumns &&
         problem.features <= kMaxIndex32 && problem.bags * problem.features < int64_t{1} << 36;
}

inline BagPlan plan(const BagProblem& problem, const Device& device) {
  BagPlan plan;
  BagArgs& args = plan.args;
  args.problem = problem;
  const Rows out{problem.out, problem.features, 0};
  const bool has_vectors = is_aligned({problem.table, out}, problem.features, problem.dtype);
  plan.access = has_vectors ? Access::kVector : Access::kSpread;
  const int64_t units =
      ceil_div<int64_t>(problem.features, elements_of(plan.access, problem.dtype));
  args.lanes = static_cast<uint32_t>(std::min<int64_t>(kWarp, pow2_ceil(units)));
  args.tiles = static_cast<uint32_t>(ceil_div<int64_t>(units, args.lanes));
  // A maximum depends on the order of the entries: ATen keeps a NaN that is the first.
  if (problem.bag != Bag::kMax) {
    const int64_t threads = problem.bags * args.tiles * args.lanes;
    const int64_t mean = problem.entries / std::max<int64_t>(problem.bags, 1);
    while (args.team * args.lanes < kWarp && threads * args.team < kBusyThreads * device.sms &&
           mean >= 2 * kBagRows * args.team) {
      args.team *= 2;
    }
  }
  plan.shape.threads = kBagThreads;
  plan.shape.blocks = static_cast<unsigned>(blocks_of(args));
  plan.shape.use_pdl = true;
  return plan;
}

GPUOPT_EXPORT cudaError_t launch(const BagPlan& plan, cudaStream_t stream);

}  // namespace gpuopt::spmm
