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
constexpr int kMaxBinRow = 4, kMaxQueuedBinRow = 8;  // values
constexpr double kQueuedAddition = 2.4e-3;           // the time of one of the additions to a line
constexpr int kBinSumsX = 32, kBinSumsY = 8;         // threads that add up the sums of splits

struct BinArgs {
  void* self = nullptr;          // [outer][bin][row], strided
  const void* source = nullptr;  // [outer][entry][row], strided
  Index index;
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  FastDiv width;              // values of a row
  uint32_t bins = 0;          // bins of the problem, times width
  uint32_t values = 0;        // entries, times width
  uint32_t split_values = 0;  // values of a block
  FastDiv splits;
  uint32_t copy_bits = 0;  // log2 of the copies
  OuterDims outer;
  uint32_t outer_size = 0;
  ScalarValue alpha;
  void* split_sums = nullptr;  // [outer][split][bin], where there are several splits
};

// Each group of `outer_group` outer indices has several splits, a block each, with copies of the
// bins.
struct BinsPlan {
  int outer_group = 1;
  int values = 1;  // neighbouring entries that are read at once
  BinArgs args;
  size_t split_bytes = 0;  // of the sums of splits, if there are several
  LaunchShape add, add_up;
};

inline bool takes_few_bins(const Problem& problem, const Layout& layout, const Tuning& tuning) {
  if (is_ordered(problem)) return false;
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t values = problem.entries * width * layout.outer_size;
  const int64_t self_bytes =
      problem.bins * width * layout.outer_size * static_cast<int64_t>(size_of(problem.dtype));
  const auto additions = static_cast<double>(values / values_per_access(problem, layout));
  const auto lines = static_cast<double>(ceil_div<int64_t>(self_bytes, 128));
  // Booleans are stored instead of added.
  const bool queues =
      problem.dtype != DType::kBool && additions * kQueuedAddition > tuning.least_queue * lines;
  // Fewer entries per bin take less time by additions: (5032) += (45167) in f32 5.8 and 3.2, (7255)
  // += (261070) 8.4 and 10.0. A half type in mode accurate has no such additions.
  const bool may_add = problem.mode == Mode::kFast || !is_half(problem.dtype);
  const int64_t repeats = queues || !may_add ? 4 : 32;
  return width <= (queues ? kMaxQueuedBinRow : kMaxBinRow) && problem.bins > 0 &&
         problem.bins <= kMaxBinBytes / (bytes * width) &&
         problem.entries >= repeats * problem.bins && (queues || values >= tuning.min_bin_values) &&
         problem.entries <= kMaxIndex32 / kMaxQueuedBinRow;
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
  const int64_t splits =
      std::clamp<int64_t>(device.sms / layout.outer_size, 1, std::max<int64_t>(work, 1));
  const int64_t split_values = ceil_div<int64_t>(ceil_div(values, splits), kBinVec) * kBinVec;
  // Clearing and summing the copies must not cost more than adding the values.
  const int64_t one = bytes * plan.outer_group;
  const int most_copies = plan.outer_group == 1 ? kMaxBinCopies : kWarp;
  int copies = 1;
  while (copies < most_copies && one * copies * 2 <= most &&
         problem.bins * width * copies * 2 <= split_values) {
    copies *= 2;
  }
  if (plan.outer_group == 1 && problem.index_stride == 1 &&
      reinterpret_cast<uintptr_t>(problem.index) % kAccessBytes == 0 &&
      takes_neighbours(problem, layout, kBinVec)) {
    plan.values = kBinVec;
  }
  BinArgs& args = plan.args;
  set_operands(args, problem, layout);
  args.index = make_index(problem);
  args.width = divide_by(width);
  args.bins = static_cast<uint32_t>(problem.bins * width);
  args.values = static_cast<uint32_t>(values);
  args.split_values = static_cast<uint32_t>(split_values);
  args.splits = divide_by(splits);
  args.copy_bits = static_cast<uint32_t>(bits_for(copies));
  args.outer_size = static_cast<uint32_t>(layout.outer_size);
  const size_t row_bytes = args.bins * sum_bytes(problem.dtype);
  plan.add.threads = kBinThreads;
  plan.add.blocks =
      ceil_div(args.outer_size, static_cast<uint32_t>(plan.outer_group)) * args.splits.divisor;
  plan.add.shared_bytes = row_bytes * static_cast<size_t>(copies * plan.outer_group);
  plan.add.use_pdl = true;
  if (splits > 1) {
    plan.split_bytes = size_t{args.outer_size} * args.splits.divisor * row_bytes;
    plan.add_up.threads = kBinSumsX * kBinSumsY;
    plan.add_up.blocks = args.outer_size * ceil_div<uint32_t>(args.bins, kBinSumsX);
    plan.add_up.use_pdl = true;
  }
  return plan;
}

template <typename F>
void describe(const BinsPlan& plan, F&& f) {
  f("path", "bins");
  f("values", plan.values);
  f("outer_group", plan.outer_group);
  f("copies", 1 << plan.args.copy_bits);
  f("splits", plan.args.splits.divisor);
  f("split_values", plan.args.split_values);
  f("shared_bytes", plan.add.shared_bytes);
  f("blocks", plan.add.blocks);
}

}  // namespace gpuopt::index_add
