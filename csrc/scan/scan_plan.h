// Plans a scan: the kernel, its launch and its arguments. This is plain host C++, so tests run it
// without a GPU. scan_layout.h chooses.
#pragma once

#include <optional>
#include <span>

#include "common/describe.h"
#include "common/device.h"
#include "common/launch_shape.h"
#include "common/parts.h"
#include "common/tuning.h"
#include "scan/scan_layout.h"

namespace gpuopt::scan {

// A launch.
struct Plan {
  Path path = Path::kPacked;
  int values = 1;                     // of a unit
  Packing packing = Packing::kWhole;  // kPacked
  // kRows, kSplitRows: vectors of the result are aligned, but rows begin and end inside of vectors.
  bool shifted = false;
  bool skewed = false;  // and vectors of an input are not
  bool shared_tiles = false;
  LaunchShape launch;
  // Look-back needs so many records. A launch before this one clears them.
  int64_t records = 0;
  TileArgs args;  // without the address of the records. Other kernels take its base
};

template <typename F>
void describe(const KernelDims& dims, F&& f) {
  const auto kept = [&](const auto& values) { return std::span(values, dims.count); };
  f("sizes", kept(dims.sizes));
  f("in_strides", kept(dims.in_strides));
  f("out_strides", kept(dims.out_strides));
  f("second_strides", kept(dims.second_strides));
  f("initial_strides", kept(dims.initial_strides));
}

template <typename F>
void describe(const TileTensor& tensor, F&& f) {
  f("strides", tensor.strides);
  f("steps", tensor.steps);
  f("in_vecs", tensor.in_vecs);
  f("is_flat", tensor.is_flat);
  f("reads_vecs", tensor.reads_vecs);
  f("bytes", tensor.bytes);
}

// Names what a plan has. The members of its launch and arguments are named as its own.
template <typename F>
void describe(const Plan& plan, F&& f) {
  f("path", plan.path);
  f("values", plan.values);
  f("packing", plan.packing);
  f("shifted", plan.shifted);
  f("skewed", plan.skewed);
  f("shared_tiles", plan.shared_tiles);
  f("records", plan.records);
  describe(plan.launch, f);
  const TileArgs& args = plan.args;
  f("in", args.in);
  f("out", args.out);
  f("second", args.second);
  f("initial", args.initial);
  f("outer", args.outer);
  f("length", args.length);
  f("in_stride", args.in_stride);
  f("out_stride", args.out_stride);
  f("chunk_rows", args.chunk_rows);
  f("units", args.units);
  f("rows", args.rows);
  f("tiles", args.tiles);
  f("column_tiles", args.column_tiles);
  f("slots", args.slots);
  f("columns", args.columns);
  f("in_column_stride", args.in_column_stride);
  f("out_column_stride", args.out_column_stride);
  f("x", args.x);
  f("column_sizes", args.sizes);
  f("widths", args.widths);
  f("tensors", args.tensors);
  f("dense", args.dense);
  f("second_is_one", args.second_is_one);
}

namespace detail {

// Completes the arguments of columns whose tiles a block copies together.
inline void add_tiles(TileArgs& args, const Problem& problem, const Layout& layout,
                      const Kernels& kernels) {
  const int64_t rows = int64_t{kWarp} * layout.warps / layout.x * layout.units;
  const TileAxis axes[3] = {{rows, problem.scanned},
                            {layout.widths[0], layout.column},
                            {layout.widths[1], layout.second_column}};
  for (int k = 0; k < 3; ++k) {
    if (k == 2 && problem.second == nullptr) break;
    // Types without kernels of their own are converted one by one.
    const auto bytes = static_cast<int64_t>(kernels.is_own ? problem.item(k) : kernels.value_bytes);
    const int64_t values = kernels.is_own ? kAccessBytes / bytes : 1;
    args.tensors[k] =
        make_tile_tensor(problem, axes, layout.outer, layout.num_outer, k, values, bytes);
    args.tensors[k].reads_vecs = args.tensors[k].reads_vecs && layout.units % values == 0;
  }
  for (int d = 0; d < 2; ++d) {
    args.sizes[d] = axes[d + 1].dim.size;
    args.widths[d] = static_cast<uint32_t>(layout.widths[d]);
    args.initial_strides[d] = axes[d + 1].dim.initial_stride;
  }
  args.first_tiles = divide_by(layout.first_tiles);
  args.buffers = layout.path == Path::kColumns && layout.tiles > 1 ? 2 : 1;
}

inline TileArgs make_args(const Problem& problem, const Layout& layout, const Kernels& kernels,
                          const Tuning& tuning) {
  TileArgs args;
  args.in = problem.in;
  args.out = problem.out;
  args.second = problem.second;
  args.initial = problem.initial;
  args.outer.count = layout.num_outer;
  for (int d = 0; d < layout.num_outer; ++d) {
    const Dim& dim = layout.outer[d];
    args.outer.sizes[d] = divide_by(dim.size);
    args.outer.in_strides[d] = dim.in_stride;
    args.outer.out_strides[d] = dim.out_stride;
    args.outer.second_strides[d] = dim.second_stride;
    args.outer.initial_strides[d] = dim.initial_stride;
  }
  args.length = problem.scanned.size;
  args.in_stride = problem.scanned.in_stride;
  args.out_stride = problem.scanned.out_stride;
  args.second_stride = problem.scanned.second_stride;
  args.total = layout.rows * args.length;
  if (layout.path == Path::kPacked) args.row_length = divide_by(args.length);
  args.chunk_rows = static_cast<uint32_t>(layout.chunk_rows);
  args.units = static_cast<uint32_t>(layout.units);
  args.rows = static_cast<uint32_t>(layout.rows);
  args.tiles = divide_by(layout.tiles);
  args.column_tiles = divide_by(layout.column_tiles);
  args.slots = layout.slots();
  // In place, the input of earlier tiles is overwritten, so a block can only wait.
  args.patience = problem.in == problem.out ? UINT64_MAX : tuning.patience;
  args.columns = layout.column.size;
  args.in_column_stride = layout.column.in_stride;
  args.out_column_stride = layout.column.out_stride;
  args.second_column_stride = layout.column.second_stride;
  args.initial_column_stride = layout.column.initial_stride;
  args.x = static_cast<uint32_t>(layout.x);
  args.in_dtype = problem.in_dtype;
  args.out_dtype = problem.dtype;
  args.dense = layout.dense;
  args.exclusive = problem.exclusive;
  args.second_is_one = layout.second_is_one;
  args.reverse = problem.reverse;
  if (layout.shared_tiles) add_tiles(args, problem, layout, kernels);
  return args;
}

inline Packing packing_of(const Layout& layout, int64_t length) {
  if (layout.path != Path::kPacked || length % layout.values == 0) return Packing::kWhole;
  return layout.chunk_rows * length % layout.values == 0 ? Packing::kShared : Packing::kShifted;
}

inline LaunchShape launch_of(const Layout& layout, const Kernels& kernels, const TileArgs& args,
                             bool clusters) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(layout.blocks);
  shape.threads = static_cast<unsigned>(kWarp * layout.warps);
  shape.use_pdl = true;
  if (clusters) shape.cluster = static_cast<unsigned>(layout.tiles);
  const bool staged =
      layout.path != Path::kPacked && layout.path != Path::kRows && layout.path != Path::kAlone;
  // Columns that a block scans tile by tile have the next tile in a second buffer.
  const int buffers = layout.path == Path::kColumns && layout.tiles > 1 ? 2 : 1;
  const int unit_bytes = layout.values * kernels.value_bytes * kernels.inputs;
  if (layout.shared_tiles) {
    const auto& [in, out, second] = args.tensors;
    shape.shared_bytes = size_t{1} * buffers * (in.bytes + second.bytes) + out.bytes;
  } else if (staged) {
    shape.shared_bytes = size_t{1} * buffers * layout.units * shape.threads * unit_bytes;
  }
  return shape;
}

}  // namespace detail

// The plan of one launch, or nothing if the problem is too large: if it has too many rows, columns,
// blocks or dimensions.
inline std::optional<Plan> make_plan(const Problem& problem, const Device& device,
                                     const Tuning& tuning = limits<Tuning>()) {
  const Kernels kernels = kernels_of(problem);
  const detail::Layout layout = detail::make_layout(problem, kernels, tuning);
  if (detail::is_too_large(layout, tuning.launch_limit)) return {};
  // Clusters have the bits of look-back.
  const bool clusters = device.has_clusters && layout.path == Path::kSplitRows &&
                        layout.tiles <= kClusterTiles && layout.blocks <= kClusterBlocks;
  const bool is_split = layout.path == Path::kSplitRows || layout.path == Path::kSplitColumns;
  std::optional<Plan> plan(std::in_place);
  plan->path = layout.path;
  plan->values = layout.values;
  plan->packing = detail::packing_of(layout, problem.scanned.size);
  plan->shifted = layout.shifted;
  plan->skewed = layout.skewed;
  plan->shared_tiles = layout.shared_tiles;
  plan->args = detail::make_args(problem, layout, kernels, tuning);
  plan->launch = detail::launch_of(layout, kernels, plan->args, clusters);
  if (is_split && !clusters) {
    // A chain for each row, or for each column of a block.
    const int64_t columns = layout.path == Path::kSplitColumns ? layout.x * layout.values : 1;
    plan->records = layout.rows * layout.column_tiles * columns * layout.slots() * kernels.records;
  }
  return plan;
}

// Calls use(plan) for the launches of a problem, in order.
template <typename Use>
void for_each_plan(const Problem& problem, const Device& device, const Tuning& tuning,
                   const Use& use) {
  for_each_part(problem, [&](const Problem& part) { return make_plan(part, device, tuning); }, use);
}

}  // namespace gpuopt::scan
