// Plans a reduction: the launches of a call, and their arguments. This is plain host C++, so tests
// run it without a GPU.
#pragma once

#include <variant>
#include <vector>

#include "common/launch_shape.h"
#include "common/tuning.h"
#include "reduce/reduce_args.h"
#include "reduce/reduce_columns_config.h"
#include "reduce/reduce_rows_config.h"

namespace gpuopt::reduce {

// A kernel and its arguments. Pointers to the workspace are set when it is launched.
struct Launch {
  Path path = Path::kRows;
  bool vecs = false, unaligned = false, shifted = false, spread = false;  // as in Config
  bool one_row = true;        // the units of an output lie in one row
  bool to_workspace = false;  // reads or writes partial results
  uint32_t first_slot = 0;
  uint32_t slots = 0;  // kFinish: partial results of an output
  LaunchShape shape;
  std::variant<Args, LineArgs> args;  // LineArgs on path kLine

  bool reads_vecs() const { return vecs || path == Path::kRowsInVecs || path == Path::kTile; }
};

struct Plan {
  Operation operation = Operation::kSum;
  double divisor = 1;
  Types types;
  std::vector<Launch> launches;
  // Partial results of split outputs. Outputs that are computed one after another share them.
  size_t workspace_bytes = 0;
};

namespace detail {

inline Config config_of(const Problem& problem, const Layout& layout, const Types& types,
                        const Device& device, const Tuning& tuning) {
  const auto chosen = [](auto chooser) {
    for (int d = 1; d < chooser.layout.num_reduced; ++d) {
      chooser.config.outer_units *= chooser.layout.reduced[d].size;
    }
    chooser.choose();
    return chooser.config;
  };
  const Chooser chooser{problem, layout, types, device, tuning};
  return layout.count == 0 || layout.dims[0].reduced ? chosen(RowsChooser{chooser})
                                                     : chosen(ColumnsChooser{chooser});
}

// Clamps to 31 bits. Kernels never divide by a number that is clamped. Such numbers are sizes of
// the innermost reduced dimension, and sizes of problems that are launched in parts.
inline FastDiv clamped(int64_t n) { return divide_by(std::min(n, kMaxIndex32)); }

inline KernelDims kernel_dims(const Dim* dims, int count) {
  KernelDims out;
  if (count > kMaxKernelDims) return out;  // the problem is launched in parts, not as a whole
  out.count = count;
  for (int d = 0; d < count; ++d) {
    out.sizes[d] = clamped(dims[d].size);
    out.in_strides[d] = dims[d].in_stride;
    out.out_strides[d] = dims[d].out_stride;
  }
  return out;
}

inline Args make_args(const Problem& problem, const Layout& layout, const Config& config) {
  const auto item = static_cast<int64_t>(size_of(problem.in_dtype));
  Args args;
  args.in = problem.in;
  for (int d = 0; d < layout.count; ++d) {
    args.reach += (layout.dims[d].size - 1) * layout.dims[d].in_stride;
  }
  args.out = problem.out;
  args.in_dtype = problem.in_dtype;
  args.out_dtype = problem.dtype;
  args.kept = kernel_dims(layout.kept, layout.num_kept);
  args.reduced = kernel_dims(layout.reduced, layout.num_reduced);
  args.outputs = static_cast<uint32_t>(layout.outputs);
  args.outer_units = static_cast<uint32_t>(config.outer_units);
  args.inner_units = clamped(config.inner_units);  // used only if there are outer units
  args.units = config.units();
  args.splits = clamped(config.splits);
  args.x = clamped(config.x);
  args.y = clamped(config.y);
  args.z = static_cast<uint32_t>(config.z);
  args.linear_out = layout.linear_out;
  args.packed_out = config.packed_out;
  args.read_once = config.read_once;
  args.row_size = layout.reduced[0].size;
  args.inner_stride = layout.reduced[0].in_stride;
  args.apart = static_cast<uint32_t>(config.apart);
  if (config.path == Path::kColumns) {
    args.column_tiles = clamped(config.column_tiles);
    args.columns = static_cast<uint32_t>(layout.kept[0].size);
    args.outer_outputs = args.outputs / args.columns;
    args.fold = static_cast<uint32_t>(config.fold);
    args.overlap = static_cast<uint32_t>(config.overlap);
    args.inner_stride *= config.fold;
  } else if (config.path == Path::kTile) {
    const Dim& outer = layout.dims[layout.count - 1];
    args.piece_outputs = clamped(layout.outputs / outer.size);
    args.tile_pieces = static_cast<uint32_t>(config.tile_pieces);
    args.pitch = static_cast<uint32_t>(outer.in_stride);
    args.span = static_cast<uint32_t>(config.span);
  } else if (config.vecs) {
    args.row_size = (args.row_size - 1) * config.apart + 1;
    args.inner_stride = kAccessBytes / item;
  }
  return args;
}

inline LineArgs make_line_args(const Problem& problem, const Layout& layout, const Config& config) {
  LineArgs args;
  args.in = problem.in;
  args.to = problem.out;
  args.row_stride = layout.kept[0].in_stride;
  args.vecs = config.inner_units;
  args.splits = clamped(config.splits);
  args.outputs = static_cast<uint32_t>(layout.outputs);
  args.out_dtype = problem.dtype;
  args.read_once = config.read_once;
  return args;
}

inline Launch make_launch(const Problem& problem, const Layout& layout, const Config& config) {
  Launch launch;
  launch.path = config.path;
  launch.vecs = config.vecs;
  launch.unaligned = config.unaligned;
  launch.shifted = config.shifted;
  launch.spread = config.spread;
  launch.one_row = config.outer_units == 1;
  launch.shape.blocks = static_cast<unsigned>(config.blocks());
  launch.shape.threads = static_cast<unsigned>(config.threads());
  launch.shape.shared_bytes = config.shared_bytes;
  launch.shape.use_pdl = true;
  if (config.path == Path::kLine) {
    launch.args = make_line_args(problem, layout, config);
  } else {
    launch.args = make_args(problem, layout, config);
  }
  return launch;
}

// Inside a launch, all counts have 32 bits, except the number of vectors in a single row. Larger
// problems are halved until each part fits into a launch. Too many outputs are halved along a kept
// dimension, too many units of an output along a reduced one.
inline bool has_too_many_outputs(const Layout& layout, const Config& config, int64_t limit) {
  return layout.outputs > limit || config.blocks() > limit || layout.num_kept > kMaxKernelDims;
}

inline bool has_too_many_units(const Layout& layout, const Config& config, int64_t limit) {
  const int64_t edges = config.outer_units * 2 * kAccessBytes;  // values at the ends of rows
  const bool one_row = config.vecs && config.outer_units == 1;  // its units are counted in 64 bits
  return layout.num_reduced > kMaxKernelDims ||
         (!one_row && (config.units() > limit || edges > limit));
}

struct Planner {
  Plan& plan;
  const Device& device;
  const Tuning& tuning;

  size_t accumulator_bytes() const { return size_of(accumulator_of(plan.types.values)); }

  void add(const Problem& problem) {
    const Layout layout = layout_of(problem);
    const Config config = config_of(problem, layout, plan.types, device, tuning);
    if (has_too_many_outputs(layout, config, tuning.most_in_launch)) {
      Problem first = problem;
      const Problem second = halve(first, layout, /*reduced=*/false);
      add(first);
      add(second);
    } else if (config.splits == 1 && !has_too_many_units(layout, config, tuning.most_in_launch)) {
      plan.launches.push_back(make_launch(problem, layout, config));
    } else {
      const uint32_t slots = add_split(problem, layout, config, 0);
      add_finish(problem, layout, config, slots);
      plan.workspace_bytes =
          std::max(plan.workspace_bytes, slots * layout.outputs * accumulator_bytes());
    }
  }

  // Adds launches that write partial results to the slots from `slot` on. Returns the slot after
  // the last.
  uint32_t add_split(const Problem& problem, const Layout& layout, const Config& config,
                     uint32_t slot) {
    if (!has_too_many_units(layout, config, tuning.most_in_launch)) {
      Launch& launch = plan.launches.emplace_back(make_launch(problem, layout, config));
      launch.to_workspace = true;
      launch.first_slot = slot;
      if (auto* line = std::get_if<LineArgs>(&launch.args)) line->to_workspace = true;
      return slot + static_cast<uint32_t>(config.splits);
    }
    Problem first = problem;
    Problem second = halve(first, layout, /*reduced=*/true);
    for (const Problem* half : {&first, &second}) {
      const Layout own = layout_of(*half);
      slot = add_split(*half, own, config_of(*half, own, plan.types, device, tuning), slot);
    }
    return slot;
  }

  void add_finish(const Problem& problem, const Layout& layout, const Config& config,
                  uint32_t slots) {
    // A block has x outputs, a power of two: 8, a sector of f32, or more if there are few slots.
    // The threads of an output are x apart, so that those within a warp combine by shuffles.
    const int64_t sector = std::min<int64_t>(pow2_ceil(layout.outputs), 8);
    const int64_t y = std::clamp(pow2_ceil(slots), kWarp / sector, kFinishThreads / sector);
    const int64_t wide = std::min<int64_t>(kWarp, kFinishThreads / (2 * y));
    const int64_t x = layout.outputs >= kWarp ? std::max(sector, wide) : sector;
    Args args = make_args(problem, layout, config);
    args.x = divide_by(x);
    args.y = divide_by(y);
    Launch& launch = plan.launches.emplace_back();
    launch.path = Path::kFinish;
    launch.to_workspace = true;
    launch.slots = slots;
    launch.shape.blocks = static_cast<unsigned>(ceil_div(layout.outputs, x));
    launch.shape.threads = static_cast<unsigned>(x * y);
    launch.shape.shared_bytes = launch.shape.threads * accumulator_bytes();
    launch.shape.use_pdl = true;
    launch.args = args;
  }
};

}  // namespace detail

inline Plan make_plan(const Problem& problem, const Device& device,
                      const Tuning& tuning = limits<Tuning>()) {
  Plan plan;
  plan.operation = problem.operation;
  plan.divisor = problem.divisor;
  plan.types = types_of(problem.operation, problem.in_dtype, problem.dtype);
  detail::Planner{plan, device, tuning}.add(problem);
  return plan;
}

// ---------------------------------------------------------------- description

inline const char* path_name(Path path) {
  switch (path) {
    case Path::kRows:
      return "rows";
    case Path::kLine:
      return "line";
    case Path::kShortRows:
      return "short_rows";
    case Path::kRowsInVecs:
      return "rows_in_vecs";
    case Path::kTile:
      return "tile";
    case Path::kColumns:
      return "columns";
    case Path::kFinish:
      return "finish";
  }
  return "";
}

// describe() calls f(name, value) for each field, for common/describe.h.
template <typename F>
void describe(const KernelDims& dims, F&& f) {
  std::vector<uint32_t> sizes;
  for (int d = 0; d < dims.count; ++d) sizes.push_back(dims.sizes[d].divisor);
  f("sizes", sizes);
  f("in_strides", std::vector<int64_t>(dims.in_strides, dims.in_strides + dims.count));
  f("out_strides", std::vector<int64_t>(dims.out_strides, dims.out_strides + dims.count));
}

template <typename F>
void describe(const Args& args, F&& f) {
  f("in", reinterpret_cast<uintptr_t>(args.in));
  f("out", reinterpret_cast<uintptr_t>(args.out));
  f("kept", args.kept);
  f("reduced", args.reduced);
  f("outputs", args.outputs);
  f("units", args.units);
  f("outer_units", args.outer_units);
  f("row_size", args.row_size);
  f("splits", args.splits.divisor);
  f("x", args.x.divisor);
  f("y", args.y.divisor);
  f("z", args.z);
  f("column_tiles", args.column_tiles.divisor);
  f("columns", args.columns);
  f("fold", args.fold);
  f("apart", args.apart);
  f("overlap", args.overlap);
  f("piece_outputs", args.piece_outputs.divisor);
  f("tile_pieces", args.tile_pieces);
  f("pitch", args.pitch);
  f("span", args.span);
  f("packed_out", args.packed_out);
  f("read_once", args.read_once);
}

template <typename F>
void describe(const LineArgs& args, F&& f) {
  f("in", reinterpret_cast<uintptr_t>(args.in));
  f("out", reinterpret_cast<uintptr_t>(args.to));
  f("row_stride", args.row_stride);
  f("outputs", args.outputs);
  f("units", args.vecs);
  f("splits", args.splits.divisor);
  f("read_once", args.read_once);
}

template <typename F>
void describe(const Launch& launch, F&& f) {
  f("path", path_name(launch.path));
  f("vecs", launch.vecs);
  f("unaligned", launch.unaligned);
  f("shifted", launch.shifted);
  f("spread", launch.spread);
  f("to_workspace", launch.to_workspace);
  f("first_slot", launch.first_slot);
  f("slots", launch.slots);
  f("blocks", launch.shape.blocks);
  f("threads", launch.shape.threads);
  f("shared_bytes", launch.shape.shared_bytes);
  std::visit([&](const auto& args) { describe(args, f); }, launch.args);
}

template <typename F>
void describe(const Plan& plan, F&& f) {
  f("native", plan.types.native);
  f("workspace_bytes", plan.workspace_bytes);
  f("launches", plan.launches);
}

}  // namespace gpuopt::reduce
