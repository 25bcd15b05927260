// C entry points to the emulated index_add launchers, for index_add_model.py.
#include "../plan/index_add_problem.h"
#include "index_add/device/index_add_sort.cuh"
#include "index_add/index_add.h"
#include "index_add/index_add_plan.h"
#include "index_add/index_add_slices.h"
#include "poisoned_workspace.h"

namespace gpuopt::index_add {
// Shared memory: the most per block on sm_90, which is more than any kernel gets here.
alignas(16) uint4 staged[(48 << 10) / sizeof(uint4)];
alignas(16) uint4 hot_sums[kHotSharedBytes / sizeof(uint4) + 64];  // the last 64 must not change
alignas(16) uint4 tile_memory[(48 << 10) / sizeof(uint4)];
alignas(16) uint4 shared_bins[(227 << 10) / sizeof(uint4)];
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t) + 8];
alignas(16) uint4 line_memory[(227 << 10) / sizeof(uint4)];
}  // namespace gpuopt::index_add

using namespace gpuopt;
using namespace gpuopt::index_add;

namespace {

constexpr char kPoison = char(0xcd);

}  // namespace

struct Taken {
  int path, values, lanes, copies, outer_group, slices, hot_bins, tile_rows;
  int64_t splits, scratch;
  int intact;
};

// Copies a field if the plan has it.
#define SHOW(field)                       \
  if constexpr (requires { plan.field; }) \
    taken->field = static_cast<decltype(taken->field)>(plan.field);

// Limits that tests lower, because small problems would not reach them.
extern "C" void set_limits(int64_t sort_source_bytes, int64_t min_bin_values, int64_t launch_size,
                           int group_rows, int max_position_bits, int64_t min_hot_values,
                           int64_t max_tile_entries, int min_lines, int64_t min_tile_entries,
                           int64_t sort_traffic) {
  kSortSourceBytes = sort_source_bytes;
  kMinBinValues = min_bin_values;
  kMaxLaunchSize = launch_size;
  kGroupRows = group_rows;
  kMaxPositionBits = max_position_bits;
  kMinHotValues = min_hot_values;
  kMaxTileEntries = max_tile_entries;
  kMinLines = min_lines;
  kMinTileEntries = min_tile_entries;
  kSortTraffic = static_cast<double>(sort_traffic);
}

extern "C" int run(int num_dims, int dim, const int64_t* sizes, int64_t entries,
                   const int64_t* self_strides, const int64_t* source_strides, uint64_t self,
                   uint64_t source, uint64_t index, int64_t index_stride, int long_index, int dtype,
                   int mode, int64_t alpha, int sms, Taken* taken) {
  const Problem problem =
      make_problem(num_dims, dim, sizes, entries, self_strides, source_strides, self, source, index,
                   index_stride, long_index, dtype, mode, alpha);
  const Device device{sms, 227 << 10};
  const Layout layout = make_layout(problem);
  const Path path = choose_path(problem, layout, device);
  *taken = {};
  taken->path = static_cast<int>(path);
  int64_t tile_bytes = 0;
  for_each_part(problem, layout, [&](const Problem& part, const Layout& part_layout) {
    ++taken->slices;
    const auto show = [&](const auto& plan) {
      SHOW(values)
      SHOW(lanes)
      SHOW(copies)
      SHOW(outer_group)
      SHOW(splits)
      SHOW(hot_bins)
      SHOW(tile_rows)
    };
    std::visit(show, make_plan(path, part, part_layout, device));
    if (taken->tile_rows > 0) {
      tile_bytes = std::max(tile_bytes, tile_shared_bytes(taken->tile_rows));
    }
    return cudaSuccess;
  });
  const auto guard = reinterpret_cast<char*>(hot_sums) + kHotSharedBytes;
  std::fill_n(guard, kGuard, kPoison);
  const auto tile_guard = reinterpret_cast<char*>(tile_memory) + tile_bytes;
  std::fill_n(tile_guard, kGuard, kPoison);
  PoisonedWorkspace workspace(kPoison);
  const cudaError_t error = add(problem, device, workspace, nullptr);
  taken->scratch = static_cast<int64_t>(workspace.most_in_use);
  taken->intact = workspace.intact() && is_filled(guard, kGuard, kPoison) &&
                  is_filled(tile_guard, kGuard, kPoison);
  return error;
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
  const Device device{sms, shared_bytes};
  PoisonedWorkspace workspace(kPoison);
  std::vector<uint32_t> zeroed(3001, ~0u);
  SortedIndex sorted;
  const auto end = static_cast<uint32_t>(zeroed.size() - 1);  // the last word must not change
  const SortPlan plan = plan_sort(count, bins, device);
  if (sort_index(plan, index, count, zeroed.data(), end, workspace, nullptr, &sorted) !=
          cudaSuccess ||
      !workspace.intact() || std::count(zeroed.begin(), zeroed.end(), 0) != end ||
      zeroed[end] != ~0u) {
    return -1;
  }
  for (uint32_t i = 0; i < count; ++i) {
    sorted_bins[i] = static_cast<int64_t>(sorted.entries[i] >> sorted.position_bits);
    positions[i] =
        static_cast<int64_t>(sorted.entries[i] & ((uint64_t{1} << sorted.position_bits) - 1));
  }
  return static_cast<int>(plan.blocks);
}
