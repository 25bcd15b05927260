// The lines path, for small numbers of entries and bins. The index is sorted once. Then blocks sum
// rows of entries, called lines, in shared memory. This file says what the path supports, and plans
// it. Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

struct uint4;

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

struct OrderArgs {
  Index index;
  uint32_t entries = 0;
  uint32_t passes = 1;
  uint32_t thread_entries = 0;  // per thread of add_lines(), a multiple of 4
  uint32_t* order = nullptr;
};

struct LineArgs {
  void* self = nullptr;          // [outer][bin], strided
  const void* source = nullptr;  // [outer][entry], strided
  const uint4* order = nullptr;  // 4 sorted entries each, as write_order() leaves them
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  uint32_t entries = 0;
  uint32_t bins = 0;
  uint32_t thread_entries = 0;
  bool pairs = false;  // pairs of neighbouring values are aligned
  OuterDims outer;
  uint32_t outer_size = 0;
  ScalarValue alpha;
};

// A block has `outer_group` outer indices. Each of its threads sums some sorted entries.
struct LinesPlan {
  int outer_group = 1;
  OrderArgs order;
  LineArgs args;
  size_t order_bytes = 0;
  LaunchShape sort, add;
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

inline bool takes_lines(const Problem& problem, const Layout& layout, const Device& device,
                        const Tuning& tuning) {
  if (layout.inner.size != 1 || problem.bins < 1 || problem.bins > UINT16_MAX ||
      problem.entries > kOrderThreads * kOrderItems ||
      line_shared_bytes(problem, line_values(size_of(problem.dtype))) > kLineSharedBytes ||
      std::max(line_shared_bytes(problem, 1), order_shared_bytes(problem)) >
          device.shared_bytes - kOrderStaticBytes ||
      problem.entries * layout.outer_size < tuning.min_bin_values) {
    return false;
  }
  if (is_ordered(problem)) return true;
  // Other problems have bins unless each SM can have a block of the most outer indices. With 512
  // outer indices, lines take 24.2 and bins 25.5. With 64 they take 19.0 and 8.9.
  return problem.entries >= 4 * problem.bins &&
         layout.outer_size >= int64_t{kMaxLineValues} * device.sms;
}

inline LinesPlan plan_lines(const Problem& problem, const Layout& layout, const Device& device) {
  LinesPlan plan;
  const int most = line_values(size_of(problem.dtype));
  if (layout.outer_size >= int64_t{most} * device.sms &&
      line_shared_bytes(problem, most) <= device.shared_bytes - kOrderStaticBytes) {
    plan.outer_group = most;
  }
  OrderArgs& order = plan.order;
  order.index = make_index(problem);
  order.entries = static_cast<uint32_t>(problem.entries);
  order.passes =
      static_cast<uint32_t>(std::max(ceil_div(bits_for(problem.bins), kOrderDigitBits), 1));
  order.thread_entries = ceil_div<uint32_t>(order.entries, kLineThreads * 4) * 4;
  plan.order_bytes = size_t{order.thread_entries} * kLineThreads * sizeof(uint32_t);
  plan.sort.threads = kOrderThreads;
  plan.sort.shared_bytes = static_cast<size_t>(order_shared_bytes(problem));
  plan.sort.use_pdl = true;
  LineArgs& args = plan.args;
  set_operands(args, problem, layout);
  args.entries = order.entries;
  args.bins = static_cast<uint32_t>(problem.bins);
  args.thread_entries = order.thread_entries;
  args.pairs = takes_neighbours(problem, layout, 2);
  args.outer_size = static_cast<uint32_t>(layout.outer_size);
  plan.add.threads = kLineThreads;
  plan.add.blocks = ceil_div(args.outer_size, static_cast<uint32_t>(plan.outer_group));
  plan.add.shared_bytes = static_cast<size_t>(line_shared_bytes(problem, plan.outer_group));
  plan.add.use_pdl = true;
  return plan;
}

template <typename F>
void describe(const LinesPlan& plan, F&& f) {
  f("path", "lines");
  f("values", plan.args.pairs ? 2 : 1);  // neighbouring entries that are read at once
  f("outer_group", plan.outer_group);
  f("thread_entries", plan.args.thread_entries);
  f("shared_bytes", plan.add.shared_bytes);
  f("blocks", plan.add.blocks);
}

}  // namespace gpuopt::index_add
