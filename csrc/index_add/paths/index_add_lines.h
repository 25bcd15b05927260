// The lines path, for small numbers of entries and bins. The index is sorted once. Then blocks sum
// rows of entries, called lines, in shared memory. This file says what the path supports, and plans
// it. Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

constexpr int kOrderThreads = 1024;
constexpr int kOrderItems = 16;  // entries per thread, in registers
constexpr int kOrderDigitBits = 5;
constexpr int kOrderStaticBytes = 5 << 10;  // most static shared memory, which plans do not count
// Threads of a block. (4096,1024) += (4096,8192) along dim 1 takes, in f32, 84.5 with three blocks
// per SM and 91.3 with two. In bf16 it takes 70.7 with R = 4 and either number of blocks, 73.6 with
// R = 2, 76.1 with 384 threads.
constexpr int kLineThreads = 512;
// Blocks per SM, with R outer indices per block. The sums of R = 4 do not fit into the registers of
// three blocks.
template <int R>
constexpr int kLineBlocksPerSm = R == 4 ? 2 : 3;
// Pairs of entries that a thread has in flight.
template <int R>
constexpr int kLinePairs = R == 2 ? 2 : 4;
// Most outer indices of a block, and most bytes of the values that an entry has in them.
constexpr int kMaxLineValues = 4;
constexpr int kMaxLineBytes = 8;
constexpr int kLineSharedBytes = 96 << 10;  // of a block, if the device has that much
// Least outer indices for the lines path, where other paths are supported. 512 outer indices take
// 24.2 by lines and 25.5 in bins. 64 take 19.0 and 8.9.
constexpr int kMinLines = 512;

// A block has `outer_group` outer indices. Each of its threads sums `thread_entries` sorted
// entries.
struct LinesPlan {
  int outer_group = 1;
  int64_t thread_entries = 0;
  int values = 1;  // neighbouring entries that are read at once
};

// Most outer indices of a block, for values of `bytes` each.
constexpr int line_values(size_t bytes) {
  return std::min(kMaxLineValues, kMaxLineBytes / static_cast<int>(bytes));
}

// Shared memory of a block with `group` outer indices.
inline int64_t line_shared_bytes(const Problem& problem, int group) {
  const auto sum_bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t sums =
      ceil_div<int64_t>(problem.bins * group * sum_bytes, kAccessBytes) * kAccessBytes;
  const int64_t slots = ceil_div<int64_t>(problem.entries, 16) * 16;
  return sums + slots * group * static_cast<int64_t>(size_of(problem.dtype));
}

// Shared memory of the block that sorts the index.
inline int64_t order_shared_bytes(const Problem& problem) {
  return problem.entries * static_cast<int64_t>(sizeof(uint32_t));
}

inline bool takes_lines(const Problem& problem, const Layout& layout, const Device& device) {
  if (layout.inner.size != 1 || problem.bins < 1 || problem.bins > UINT16_MAX ||
      problem.entries > kOrderThreads * kOrderItems ||
      line_shared_bytes(problem, line_values(size_of(problem.dtype))) > kLineSharedBytes ||
      std::max(line_shared_bytes(problem, 1), order_shared_bytes(problem)) >
          device.shared_bytes - kOrderStaticBytes ||
      problem.entries * layout.outer_size < kMinBinValues) {
    return false;
  }
  if (is_ordered(problem)) return true;
  return problem.entries >= 4 * problem.bins && layout.outer_size >= kMinLines;
}

inline LinesPlan plan_lines(const Problem& problem, const Layout& layout, const Device& device) {
  LinesPlan plan;
  const int most = line_values(size_of(problem.dtype));
  if (layout.outer_size >= int64_t{most} * device.sms &&
      line_shared_bytes(problem, most) <= device.shared_bytes - kOrderStaticBytes) {
    plan.outer_group = most;
  }
  plan.thread_entries = ceil_div<int64_t>(problem.entries, kLineThreads * 4) * 4;
  plan.values = takes_neighbours(problem, layout, 2) ? 2 : 1;
  return plan;
}

}  // namespace gpuopt::index_add
