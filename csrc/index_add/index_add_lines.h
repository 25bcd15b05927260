// The lines path: few entries and few bins. The index is sorted once, then blocks sum rows of
// entries, their lines, in shared memory. What it supports, and its plan. Times are in us on an
// H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

constexpr int kOrderThreads = 1024;
constexpr int kOrderItems = 16;  // of a thread, in registers
constexpr int kOrderDigitBits = 5;
constexpr int kOrderStaticBytes = 5 << 10;  // of shared memory, at most, beside what plans count
// (4096,1024) += (4096,8192) along dim 1: f32, three blocks 84.5, two 91.3; bf16, R = 4 70.7 in
// either, R = 2 73.6, 384 threads 76.1.
constexpr int kLineThreads = 512;
// Of R outer indices: what R = 4 sums does not fit into the registers of three blocks.
template <int R>
constexpr int kLineBlocksPerSm = R == 4 ? 2 : 3;
// Pairs of entries that a thread has in flight.
template <int R>
constexpr int kLinePairs = R == 2 ? 2 : 4;
// Outer indices of a block, each with a value of an entry, and the bytes of these values.
constexpr int kMaxLineValues = 4;
constexpr int kMaxLineBytes = 8;
constexpr int kLineSharedBytes = 96 << 10;  // of a block, where the device has as much
// Outer indices from which on lines are chosen where other paths may be: 512 took 24.2 by lines and
// 25.5 in bins, 64 took 19.0 and 8.9.
constexpr int kMinLines = 512;

// A block takes `outer_group` outer indices, and each of its threads `thread_entries` of the sorted
// entries.
struct LinesPlan {
  int outer_group = 1;
  int64_t thread_entries = 0;
  int values = 1;  // of neighbouring entries, that are read at once
};

// Values of an entry, of `bytes` each.
constexpr int line_values(size_t bytes) {
  return std::min(kMaxLineValues, kMaxLineBytes / static_cast<int>(bytes));
}

// Of a block that takes `group` outer indices.
inline int64_t line_shared_bytes(const Problem& problem, int group) {
  const auto sum_bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t sums =
      ceil_div<int64_t>(problem.bins * group * sum_bytes, kAccessBytes) * kAccessBytes;
  const int64_t slots = ceil_div<int64_t>(problem.entries, 16) * 16;
  return sums + slots * group * static_cast<int64_t>(size_of(problem.dtype));
}

// While the index is sorted.
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
