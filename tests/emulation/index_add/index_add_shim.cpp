// C entry points to the emulated index_add launchers, for index_add_model.py.
#include "../../plan/index_add/index_add_problem.h"
#include "../limits.h"
#include "../poisoned_workspace.h"
#include "common/describe.h"
#include "index_add/index_add.h"

namespace gpuopt::index_sort {
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t) + 8];
}  // namespace gpuopt::index_sort

namespace gpuopt::index_add {
// Shared memory: the most per block on sm_90, which is more than any kernel gets here.
alignas(16) uint4 staged[(48 << 10) / sizeof(uint4)];
alignas(16) uint4 hot_sums[kHotSharedBytes / sizeof(uint4) + 64];  // the last 64 must not change
alignas(16) uint4 tile_memory[(48 << 10) / sizeof(uint4)];
alignas(16) uint4 shared_bins[(227 << 10) / sizeof(uint4)];
alignas(16) uint4 line_memory[(227 << 10) / sizeof(uint4)];
}  // namespace gpuopt::index_add

using namespace gpuopt;
using namespace gpuopt::index_add;

namespace {

constexpr char kPoison = char(0xcd);

Tuning tuning;

// A run: the launches and bytes of scratch memory that it took, and the plan of the last launch.
struct Run {
  cudaError_t error = cudaSuccess;
  int slices = 0;
  size_t scratch = 0;
  bool intact = true;
  Plan plan;
};

template <typename F>
void describe(const Run& run, F&& f) {
  f("error", static_cast<int>(run.error));
  f("slices", run.slices);
  f("scratch", run.scratch);
  f("intact", run.intact);
  describe(run.plan, f);
}

// Launches a plan. Returns whether nothing was written behind the shared memory of its tiles and
// of its frequent bins.
bool launch_guarded(Run& run, PoisonedWorkspace& workspace) {
  const auto* tiles = std::get_if<TilesPlan>(&run.plan.path);
  char* const guards[] = {
      reinterpret_cast<char*>(hot_sums) + kHotSharedBytes,
      reinterpret_cast<char*>(tile_memory) + (tiles != nullptr ? tiles->shape.shared_bytes : 0)};
  for (char* guard : guards) std::fill_n(guard, kGuard, kPoison);
  workspace.release();
  run.error = launch(run.plan, workspace, nullptr);
  return is_filled(guards[0], kGuard, kPoison) && is_filled(guards[1], kGuard, kPoison);
}

}  // namespace

extern "C" void reset_limits() { tuning = {}; }

extern "C" int set_limit(const char* name, int64_t value) {
  return sets_limit(tuning, name, value);
}

// Adds, and returns the run as JSON. Mode 3 adds half types to float32, in mode fast.
extern "C" const char* run(int num_dims, int dim, const int64_t* sizes, int64_t entries,
                           const int64_t* self_strides, const int64_t* source_strides,
                           uint64_t self, uint64_t source, uint64_t index, int64_t index_stride,
                           int long_index, int dtype, int mode, int64_t alpha, int sms) {
  static std::string json;
  Problem problem = make_problem(num_dims, dim, sizes, entries, self_strides, source_strides, self,
                                 source, index, index_stride, long_index, dtype, mode, alpha);
  problem.wide_self = mode == 3;
  if (problem.wide_self) problem.mode = Mode::kFast;
  PoisonedWorkspace workspace(kPoison);
  Run run;
  for_each_plan(problem, Device{sms, 227 << 10}, tuning, [&](const Plan& plan) {
    ++run.slices;
    run.plan = plan;
    run.intact = launch_guarded(run, workspace) && run.intact;
    return run.error;
  });
  run.scratch = workspace.most_in_use;
  run.intact = run.intact && workspace.intact();
  json = to_json(run);
  return json.c_str();
}

// Sorts an index: writes the bins in order and their positions. Returns the number of blocks that
// moved entries, or -1.
extern "C" int sort(uint64_t values, int64_t stride, int long_index, uint32_t count, int64_t bins,
                    int sms, int shared_bytes, int64_t* sorted_bins, int64_t* positions) {
  Index index;
  index.values = reinterpret_cast<const void*>(values);
  index.is_long = long_index != 0;
  index.stride = stride;
  index.bins = bins;
  PoisonedWorkspace workspace(kPoison);
  std::vector<uint32_t> zeroed(3001, ~0u);
  const auto end = static_cast<uint32_t>(zeroed.size() - 1);  // the last word must not change
  const SortPlan plan = plan_sort(index, count, end, Device{sms, shared_bytes}, tuning);
  const uint64_t* sorted = nullptr;
  if (sort_index(plan, zeroed.data(), workspace, nullptr, &sorted) != cudaSuccess ||
      !workspace.intact() || std::count(zeroed.begin(), zeroed.end(), 0) != end ||
      zeroed[end] != ~0u) {
    return -1;
  }
  const int position_bits = plan.args.source.position_bits;
  for (uint32_t i = 0; i < count; ++i) {
    sorted_bins[i] = static_cast<int64_t>(sorted[i] >> position_bits);
    positions[i] = static_cast<int64_t>(sorted[i] & ((uint64_t{1} << position_bits) - 1));
  }
  return static_cast<int>(plan.move.blocks);
}
