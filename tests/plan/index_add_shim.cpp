// C entry points to the planner of index_add, for test_index_add_plan.py.
#include "index_add/index_add_slices.h"
#include "index_add_problem.h"

using namespace gpuopt;
using namespace gpuopt::index_add;

struct View {
  int64_t path, values, units, lanes, tiles, group_entries, range_entries, tasks, warp_rows,
      part_rows;
  int64_t outer_group, copies, splits, split_values, thread_entries, shared_bytes;
  int64_t inner, inner_self_stride, inner_source_stride, num_outer, outer_size;
  int64_t position_bits, passes, digit_bits, sort_blocks, tiles_per_block, sort_tile, sort_bytes,
      one_tile, tile_rows, tile_units, tile_threads, thread_units, hot_bins;
};

namespace {

View view_of(const Problem& problem, Path path, const Device& device) {
  const Plan plan = make_plan(problem, path, device);
  const SortPlan sort = plan_sort(problem.entries, problem.bins, device);
  return {static_cast<int64_t>(plan.path),
          plan.values,
          plan.units,
          plan.lanes,
          plan.tiles,
          plan.group_entries,
          plan.range_entries(),
          plan.tasks(),
          plan.warp_rows,
          plan.part_rows,
          plan.outer_group,
          plan.copies,
          plan.splits,
          plan.split_values,
          plan.thread_entries,
          line_shared_bytes(problem, plan.outer_group),
          plan.layout.inner.size,
          plan.layout.inner.self_stride,
          plan.layout.inner.source_stride,
          plan.layout.num_outer,
          plan.layout.outer_size,
          sort.position_bits,
          sort.passes,
          sort.digit_bits,
          sort.blocks,
          sort.tiles_per_block,
          sort.tile(),
          sort_shared_bytes(sort.items),
          sort.one_tile,
          plan.tile_rows,
          plan.tile_units,
          plan.tile_threads,
          plan.thread_units,
          plan.hot_bins};
}

}  // namespace

extern "C" {

int64_t max_outer_dims() { return kMaxOuterDims; }
int64_t max_sort_blocks() { return kMaxSortBlocks; }
int64_t max_digit_bits() { return kMaxDigitBits; }
int64_t line_threads() { return kLineThreads; }
int64_t max_line_entries() { return int64_t{kOrderThreads} * kOrderItems; }

// Calls each(first entry, entries, self's offset, source's offset, the slice's dims, view) for
// every slice of every stretch. Addresses are numbers that nobody follows.
void for_each(int num_dims, int dim, const int64_t* sizes, int64_t entries,
              const int64_t* self_strides, const int64_t* source_strides, uint64_t self,
              uint64_t source, uint64_t index, int dtype, int mode, int multiprocessors,
              int shared_bytes,
              void (*each)(int64_t entries, int64_t index_offset, int64_t self_offset,
                           int64_t source_offset, const View*)) {
  const Problem problem = make_problem(num_dims, dim, sizes, entries, self_strides, source_strides,
                                       self, source, index, 1, 1, dtype, mode, 1);
  const Device device{multiprocessors, shared_bytes};
  const Path path = choose_path(problem, device);
  for_each_stretch(problem, [&](const Problem& stretch) {
    return for_each_slice(stretch, [&](const Problem& slice) {
      const View view = view_of(slice, path, device);
      each(slice.entries,
           (reinterpret_cast<int64_t>(slice.index) - static_cast<int64_t>(index)) / 8,
           reinterpret_cast<int64_t>(slice.self) - static_cast<int64_t>(self),
           reinterpret_cast<int64_t>(slice.source) - static_cast<int64_t>(source), &view);
      return 0;
    });
  });
}
}
