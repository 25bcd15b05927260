// The bins path: each block keeps copies of a small number of bins in shared memory. This file says
// what it supports, and plans it. Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

// A histogram of 2^24 values in f32 takes 64.5 with one block of 1024 threads per SM, 68.5 with two
// of 512, 71.5 with three. Eight entries per iteration instead of four take 65.0 for uniform
// indices and 69.8 for Zipf 1.1.
constexpr int kBinThreads = 1024;
constexpr int kBinValues = 4;  // values that a thread has in flight
constexpr int kBinVec = 4;     // entries per iteration, where they are neighbours in memory
constexpr int kMaxBinCopies = 128;
constexpr uint32_t kMaxBitsOfOneThread = 5;  // log2 of copies that one thread adds up
// Not swept: kMaxBinBytes.
constexpr int kMaxBinBytes = 48 << 10;      // one copy of the bins
constexpr int kBinSharedBytes = 160 << 10;  // all copies of a block
constexpr int kBinOuterGroup = 4;           // outer indices of a block, where there are many
constexpr int kBinGroupCopies = 4;          // least copies of their bins
constexpr int kMaxBinRow = 4;

// Each group of `outer_group` outer indices has `splits` blocks, with `copies` copies of the bins
// each.
struct BinsPlan {
  int outer_group = 1;
  int copies = 1;
  int64_t splits = 1;
  int64_t split_values = 0;
  int values = 1;  // neighbouring entries that are read at once
};

inline bool takes_few_bins(const Problem& problem, const Layout& layout) {
  if (is_ordered(problem)) return false;
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  return width <= kMaxBinRow && problem.bins > 0 &&
         problem.bins <= kMaxBinBytes / (bytes * width) && problem.entries >= 4 * problem.bins &&
         problem.entries * width * layout.outer_size >= kMinBinValues &&
         problem.entries <= kMaxIndex32 / kMaxBinRow;
}

inline BinsPlan plan_bins(const Problem& problem, const Layout& layout, const Device& device) {
  BinsPlan plan;
  const int64_t width = layout.inner.size;
  const int64_t bytes =
      problem.bins * width * static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t most = std::min(kBinSharedBytes, device.shared_bytes);
  if (layout.outer_size >= int64_t{kBinOuterGroup} * device.sms &&
      bytes * kBinOuterGroup * kBinGroupCopies <= most) {
    plan.outer_group = kBinOuterGroup;
  }
  const int64_t values = problem.entries * width;
  const int64_t work = ceil_div<int64_t>(values, int64_t{2} * kBinThreads * kBinValues);
  plan.splits = std::clamp<int64_t>(device.sms / layout.outer_size, 1, std::max<int64_t>(work, 1));
  plan.split_values = ceil_div<int64_t>(ceil_div(values, plan.splits), kBinVec) * kBinVec;
  // Clearing and summing the copies must not cost more than adding the values.
  const int64_t one = bytes * plan.outer_group;
  const int copies = plan.outer_group == 1 ? kMaxBinCopies : kWarp;
  while (plan.copies < copies && one * plan.copies * 2 <= most &&
         problem.bins * width * plan.copies * 2 <= plan.split_values) {
    plan.copies *= 2;
  }
  if (plan.outer_group == 1 && problem.index_stride == 1 &&
      reinterpret_cast<uintptr_t>(problem.index) % kAccessBytes == 0 &&
      takes_neighbours(problem, layout, kBinVec)) {
    plan.values = kBinVec;
  }
  return plan;
}

}  // namespace gpuopt::index_add
