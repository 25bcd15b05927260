// C entry points to the planner of index_add, for test_index_add_plan.py.
#include "index_add/index_add_plan.h"
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

// Copies a field to the view if the plan has it.
#define SHOW(field) \
  if constexpr (requires { plan.field; }) view.field = plan.field;

namespace {

View view_of(const Problem& problem, const Layout& layout, Path path, const Device& device) {
  View view = {};
  view.path = static_cast<int64_t>(path);
  view.thread_units = plan_atomic(problem, layout, device).thread_units;
  const auto show = [&](const auto& plan) {
    SHOW(values)
    SHOW(units)
    SHOW(thread_units)
    SHOW(tile_rows)
    SHOW(tile_units)
    SHOW(tile_threads)
    SHOW(hot_bins)
    SHOW(lanes)
    SHOW(tiles)
    SHOW(group_entries)
    SHOW(range_entries)
    SHOW(tasks)
    SHOW(warp_rows)
    SHOW(part_rows)
    SHOW(outer_group)
    SHOW(copies)
    SHOW(splits)
    SHOW(split_values)
    SHOW(thread_entries)
  };
  std::visit(show, make_plan(path, problem, layout, device));
  const SortPlan sort = plan_sort(problem.entries, problem.bins, device);
  view.position_bits = sort.position_bits;
  view.passes = sort.passes;
  view.digit_bits = sort.digit_bits;
  view.sort_blocks = sort.blocks;
  view.tiles_per_block = sort.tiles_per_block;
  view.sort_tile = sort.tile();
  view.sort_bytes = sort_shared_bytes(sort.items);
  view.one_tile = sort.one_tile;
  view.shared_bytes = line_shared_bytes(problem, static_cast<int>(view.outer_group));
  view.inner = layout.inner.size;
  view.inner_self_stride = layout.inner.self_stride;
  view.inner_source_stride = layout.inner.source_stride;
  view.num_outer = layout.num_outer;
  view.outer_size = layout.outer_size;
  return view;
}

}  // namespace

extern "C" {

int64_t max_outer_dims() { return kMaxOuterDims; }
int64_t max_sort_blocks() { return kMaxSortBlocks; }
int64_t max_digit_bits() { return kMaxDigitBits; }
int64_t line_threads() { return kLineThreads; }
int64_t max_line_entries() { return int64_t{kOrderThreads} * kOrderItems; }

// Calls each(entries, index's offset, self's offset, source's offset, view) for every slice of
// every stretch of entries. Addresses are only numbers and are not dereferenced.
void for_each(int num_dims, int dim, const int64_t* sizes, int64_t entries,
              const int64_t* self_strides, const int64_t* source_strides, uint64_t self,
              uint64_t source, uint64_t index, int dtype, int mode, int sms, int shared_bytes,
              void (*each)(int64_t entries, int64_t index_offset, int64_t self_offset,
                           int64_t source_offset, const View*)) {
  const Problem problem = make_problem(num_dims, dim, sizes, entries, self_strides, source_strides,
                                       self, source, index, 1, 1, dtype, mode, 1);
  const Device device{sms, shared_bytes};
  const Layout layout = make_layout(problem);
  const Path path = choose_path(problem, layout, device);
  for_each_part(problem, layout, [&](const Problem& part, const Layout& part_layout) {
    const View view = view_of(part, part_layout, path, device);
    each(part.entries, (reinterpret_cast<int64_t>(part.index) - static_cast<int64_t>(index)) / 8,
         reinterpret_cast<int64_t>(part.self) - static_cast<int64_t>(self),
         reinterpret_cast<int64_t>(part.source) - static_cast<int64_t>(source), &view);
    return 0;
  });
}
}
