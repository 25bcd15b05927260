// C entry points to the emulated kernel of few entries, for test_scatter.py.
#include "scatter/scatter.h"

namespace gpuopt::scatter {
// The shared memory of a launch, and bytes after it that must not change.
constexpr size_t kSharedBytes = size_t{kThreads} * kStateBytes, kGuard = 1 << 10;
alignas(16) uint4 scatter_memory[(kSharedBytes + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::scatter

using namespace gpuopt;
using namespace gpuopt::scatter;

namespace {

constexpr char kPoison = char(0xcd);

}  // namespace

struct Given {
  int64_t src, index, out, arg, long_index, index_stride, bins, reduce, dtype;
  int64_t batches, entries, features, entry_stride, batch_stride, in_order;
};

struct Planned {
  int64_t values, rows, lanes, shares, tiles, blocks;
};

static Problem make_problem(const Given& given) {
  Problem problem;
  problem.src = reinterpret_cast<const void*>(given.src);
  problem.index = {reinterpret_cast<const void*>(given.index), given.long_index != 0,
                   given.index_stride, given.bins};
  problem.out = reinterpret_cast<void*>(given.out);
  problem.arg = reinterpret_cast<int64_t*>(given.arg);
  problem.reduce = static_cast<Reduce>(given.reduce);
  problem.dtype = static_cast<DType>(given.dtype);
  problem.batches = given.batches;
  problem.entries = given.entries;
  problem.features = given.features;
  problem.entry_stride = given.entry_stride;
  problem.batch_stride = given.batch_stride;
  problem.in_order = given.in_order != 0;
  return problem;
}

// Whether a problem is reduced in one launch.
extern "C" int takes_one_launch(const Given* given, int may_add, int sms) {
  return is_small(make_problem(*given), may_add != 0, Device{sms});
}

// Reduces. Blocks run their threads from the last to the first, beginning with the first block or
// the second one. Returns 0, 1 for an error of the launch, or 2 for a wrong write to shared memory.
extern "C" int run(const Given* given, int sms, int descending, Planned* planned) {
  const Plan plan = scatter::plan(make_problem(*given), Device{sms});
  const Args& args = plan.args;
  *planned = {plan.values,           args.rows,          1 << args.lanes_log2,
              1 << args.shares_log2, args.tiles.divisor, plan.shape.blocks};
  auto* shared = reinterpret_cast<char*>(scatter_memory);
  if (plan.shape.shared_bytes > kSharedBytes) return 1;
  std::fill_n(shared, sizeof(scatter_memory), kPoison);
  emulator::before_block = [&] { std::fill_n(shared, plan.shape.shared_bytes, kPoison); };
  emulator::descending = descending != 0;
  const cudaError_t error = launch(plan, nullptr);
  emulator::before_block = nullptr;
  if (error != cudaSuccess) return 1;
  const size_t behind = sizeof(scatter_memory) - plan.shape.shared_bytes;
  return emulator::is_filled(shared + plan.shape.shared_bytes, behind, 0xcd) ? 0 : 2;
}
