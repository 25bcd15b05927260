// What this room has kernels for beside the kernels of sparse products: the contract between
// bindings and kernels, and the plans. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/tuning.h"
#include "common/workspace.h"
#include "index_sort/index_sort.h"

namespace gpuopt::segment {

constexpr int kThreads = 256;

// The index is sorted by the room index_sort, whose words of 64 bits hold a bin and a position.
struct Grouping {
  Index index;  // of the bins
  int64_t entries = 0;
  void* ptr = nullptr;      // [bins + 1]
  void* perm = nullptr;     // [entries]
  bool long_result = true;  // ptr and perm are int64, else int32
};

constexpr int kGroupItems = 4;  // entries or bins of a thread

struct GroupArgs {
  void* ptr = nullptr;
  void* perm = nullptr;
  uint32_t entries = 0;
  int64_t bins = 0;
  int position_bits = 0;
  uint32_t perm_blocks = 0;  // blocks that write perm; the others write ptr
};

struct GroupPlan {
  bool long_result = true;
  index_sort::SortPlan sort;
  GroupArgs args;
  LaunchShape shape;
};

// Whether a bin and a position fit into 64 bits.
inline bool is_supported(const Grouping& grouping,
                         const index_sort::SortTuning& tuning = limits<index_sort::SortTuning>()) {
  return grouping.entries > 0 && grouping.entries <= int64_t{1} << index_sort::position_bits_for(
                                                         grouping.index.bins, tuning);
}

inline GroupPlan plan(const Grouping& grouping, const Device& device,
                      const index_sort::SortTuning& tuning = limits<index_sort::SortTuning>()) {
  constexpr int64_t kBlock = kThreads * kGroupItems;
  GroupPlan plan;
  plan.long_result = grouping.long_result;
  plan.sort = index_sort::plan_sort(grouping.index, grouping.entries, 0, device, tuning);
  plan.args.ptr = grouping.ptr;
  plan.args.perm = grouping.perm;
  plan.args.entries = static_cast<uint32_t>(grouping.entries);
  plan.args.bins = grouping.index.bins;
  plan.args.position_bits = plan.sort.args.source.position_bits;
  plan.args.perm_blocks = static_cast<uint32_t>(ceil_div(grouping.entries, kBlock));
  plan.shape.threads = kThreads;
  plan.shape.blocks =
      static_cast<unsigned>(plan.args.perm_blocks + ceil_div(grouping.index.bins + 1, kBlock));
  plan.shape.use_pdl = true;
  return plan;
}

// An entry of the index out of range fails a device-side assertion.
GPUOPT_EXPORT cudaError_t launch(const GroupPlan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::segment
