// Plans an element-wise operation: chooses, from shape, strides, dtypes and alignment, how launches
// walk the operands. This is plain host C++, so tests run it without a GPU.
#pragma once

#include <algorithm>
#include <optional>

#include "common/describe.h"
#include "common/device.h"
#include "common/parts.h"
#include "common/tuning.h"
#include "elementwise/elementwise_paths.h"
#include "elementwise/elementwise_problem.h"

namespace gpuopt::elementwise {

// Limits between paths and between launch shapes. Tests lower them, to reach every kernel with
// small problems.
struct Tuning {
  // Problems with a smaller output leave most SMs without a tile. x * y.t() of 147 x 147 values in
  // fp32 takes 3.9 us in tiles, 2.0 us value by value (H100,
  // benchmarks/results/nvidia-h100-80gb-hbm3/general-path.jsonl, as the next limit).
  int64_t small = 1 << 18;
  // Shorter output rows leave most of a tile empty. The general path reads the transposed inputs of
  // such rows from the L1 cache. Tiles of fewer columns are accessed value by value, and their
  // shape follows the number of columns. Dense x * y, with y a transposed matrix (H200, 2026-11-28,
  // us value by value in the general path and in tiles):
  //   (3209532,27) bf16 1147, 175; f32 1504, 261    (2^20,16) bf16 82, 37    (699050,8) f32 35, 25
  //   (30000,27) f32 8.0, 4.5                       (1398101,8) bf16 36, 41
  int64_t tile_side = 64;
  // From this many values on, a thread of the general path handles four. Two give more threads to
  // small problems: 4 to 20 % less time. Large problems take 16 to 21 % less with four (H100,
  // general-path.jsonl).
  int64_t four_values = 1 << 19;

  GPUOPT_DESCRIBE(small, tile_side, four_values)
};

namespace detail {

// The dimensions in the order of `dims`.
template <int kInputs>
StridedArgs<kInputs + 1> strided_args(const Problem<kInputs>& problem,
                                      const Layout<kInputs>& layout, const Dim<kInputs + 1>* dims) {
  StridedArgs<kInputs + 1> args{};
  args.dtype = problem.dtype;
  args.num_dims = layout.num_dims;
  args.numel = static_cast<uint32_t>(layout.numel);
  for (int d = 0; d < layout.num_dims; ++d) args.sizes[d] = divide_by(dims[d].size);
  for (int k = 0; k <= kInputs; ++k) {
    args.data[k] = problem.operands[k].data;
    args.dtypes[k] = problem.operands[k].dtype;
    args.linear[k] = layout.linear[k];
    for (int d = 0; d < layout.num_dims; ++d) {
      args.strides[k][d] = static_cast<uint32_t>(dims[d].strides[k]);
    }
  }
  return args;
}

// A launch whose threads handle `per_thread` of `items` each.
template <int kInputs, typename Path>
Launch<kInputs> in_blocks(const Path& path, int64_t items, int per_thread) {
  const int64_t blocks = ceil_div<int64_t>(items, kThreads * per_thread);
  return {path, {static_cast<unsigned>(blocks), kThreads, 0, blocks <= kMostOverlappingBlocks}};
}

template <int kInputs>
Launch<kInputs> plan_vector(const Problem<kInputs>& problem, const Layout<kInputs>& layout) {
  VectorPlan<kInputs> plan{};
  for (int k = 0; k <= kInputs; ++k) plan.args.data[k] = problem.operands[k].data;
  plan.args.numel = layout.numel;
  const int64_t vecs = ceil_div(layout.numel, layout.values);
  Launch<kInputs> launch = in_blocks<kInputs>(plan, vecs, kThreadVecs);
  launch.shape.use_pdl = true;
  return launch;
}

// How the path of rows reads the inputs, or nothing if it does not support the problem.
template <int kInputs>
std::optional<Access> access_of_rows(const Problem<kInputs>& problem,
                                     const Layout<kInputs>& layout) {
  const auto& inner = layout.dims[0];
  if (problem.operands[0].dtype != problem.dtype || inner.strides[0] != 1) return {};
  if (layout.num_dims > 1 && inner.size % layout.values != 0) return {};
  if (!has_aligned_rows(problem, layout, 0, 0)) return {};
  Access access = layout.one_type ? Access::kAligned : Access::kConverted;
  for (int k = 1; k <= kInputs; ++k) {
    if (inner.strides[k] == 0) continue;
    if (inner.strides[k] != 1) return {};
    if (has_aligned_rows(problem, layout, k, 0)) continue;
    if (!layout.one_type) return {};
    access = Access::kUnaligned;
  }
  return access;
}

// A thread handles two aligned vectors if the traffic is mostly writes, otherwise one. Measured on
// an H200 with mul (microseconds, fp32 / bf16; L2 flushed):
//   (64,256,56,56) * (256,1,1):  1 vector 100.8 / 54.4, 2 vectors 102.9 / 56.9
//   (16384,1) * (4096):          1 vector 83.4 / 44.2, 2 vectors 62.6 / 38.6
template <int kInputs>
Launch<kInputs> plan_rows(const Problem<kInputs>& problem, const Layout<kInputs>& layout,
                          Access access) {
  RowsPlan<kInputs> plan{strided_args(problem, layout, layout.dims), access, 1};
  plan.args.sizes[0] = divide_by(std::max<int64_t>(layout.dims[0].size / layout.values, 1));
  for (auto& strides : plan.args.strides) strides[0] *= static_cast<uint32_t>(layout.values);
  const int64_t vecs = ceil_div(layout.numel, layout.values);
  const bool may_have_two = access == Access::kAligned && size_of(problem.dtype) >= 2;
  if (may_have_two && layout.inputs_repeat) plan.vecs = 2;
  return in_blocks<kInputs>(plan, vecs, plan.vecs);
}

// Inputs that a warp, walking along dimension 0, would read with a large stride although another
// dimension is contiguous or nearly so.
struct Turned {
  int dim = 0;          // along which they are contiguous
  uint32_t inputs = 0;  // bit k: input k is turned
  // Bit k: input k is not turned, and its vectors along dimension 0 are aligned.
  uint32_t packed = 0;
  bool packed_tiles = true;  // vectors of the output and of turned inputs are aligned
};

// Returns nothing if no input is turned, or if tiles would be mostly empty.
template <int kInputs>
std::optional<Turned> find_turned(const Problem<kInputs>& problem, const Layout<kInputs>& layout) {
  // With sides below 8 values most of a tile is empty, and reading value by value is faster.
  constexpr int64_t kMinSide = 8;
  const auto& dims = layout.dims;
  if (dims[0].strides[0] != 1 || dims[0].size < kMinSide) return {};
  Turned turned;
  for (int k = 1; k <= kInputs; ++k) {
    if (dims[0].strides[k] == 0 || dims[0].strides[k] == 1) continue;
    int best = 0;
    for (int d = 1; d < layout.num_dims; ++d) {
      const bool closer = dims[d].strides[k] != 0 && dims[d].strides[k] < dims[best].strides[k];
      if (closer && dims[d].size >= kMinSide) best = d;
    }
    // A launch has one tile dimension. An input that is contiguous along a different one is read
    // value by value.
    if (best == 0 || (turned.dim != 0 && best != turned.dim)) continue;
    turned.dim = best;
    turned.inputs |= 1u << (k - 1);
  }
  if (turned.dim == 0) return {};
  turned.packed_tiles =
      dims[0].size % layout.values == 0 && dims[turned.dim].size % layout.values == 0;
  for (int k = 0; k <= kInputs; ++k) {
    const bool is_turned = k > 0 && (turned.inputs >> (k - 1) & 1) != 0;
    const int along = is_turned ? turned.dim : 0;
    const bool vecs = dims[along].strides[k] == 1 && has_aligned_rows(problem, layout, k, along);
    if (k == 0 || is_turned) {
      turned.packed_tiles = turned.packed_tiles && vecs;
    } else if (vecs) {
      turned.packed |= 1u << (k - 1);
    }
  }
  return turned;
}

template <int kInputs>
Launch<kInputs> plan_tiles(const Problem<kInputs>& problem, const Layout<kInputs>& layout,
                           const Turned& turned, const Device& device, const Tuning& tuning) {
  // The kernel expects the second dimension of a tile at index 1.
  Dim<kInputs + 1> dims[kMaxDims];
  std::copy_n(layout.dims, layout.num_dims, dims);
  std::rotate(dims + 1, dims + turned.dim, dims + turned.dim + 1);
  const int item = static_cast<int>(size_of(problem.dtype));
  const int tiles = __builtin_popcount(turned.inputs);
  // Three transposed inputs of 2 bytes per element need 96 KiB, and sm_75 has 64 KiB. Tiles that
  // are accessed value by value are smaller.
  const int64_t size_j = dims[1].size;
  const TileShape square(item, /*packed=*/true, size_j);
  const bool packed = turned.packed_tiles && size_j >= tuning.tile_side &&
                      tiles * square.bytes <= device.shared_bytes;
  const TileShape tile(item, packed, size_j);
  const int64_t tiles_i = ceil_div<int64_t>(dims[0].size, tile.side_i);
  const int64_t tiles_j = ceil_div<int64_t>(size_j, tile.side_j);
  const int64_t outer = layout.numel / (dims[0].size * dims[1].size);
  const int64_t width = std::min<int64_t>(kTileGroup, tiles_j);
  const int64_t last_group = (tiles_j - 1) / width;
  const TileGrid grid{divide_by(tiles_i * tiles_j),
                      divide_by(tiles_i * width),
                      divide_by(width),
                      divide_by(tiles_j - last_group * width),
                      static_cast<uint32_t>(last_group),
                      turned.inputs,
                      turned.packed,
                      divide_by(tile.side_i),
                      divide_by(tile.side_j),
                      divide_by(std::max(kTileThreads / tile.side_j, 1)),
                      static_cast<uint32_t>(tile.pitch)};
  return {TiledPlan<kInputs>{strided_args(problem, layout, dims), grid, packed},
          {static_cast<unsigned>(tiles_i * tiles_j * outer), kTileThreads,
           static_cast<size_t>(tiles * tile.bytes), /*use_pdl=*/true}};
}

// Whether vectors of the output are worth it where neither rows nor tiles support the problem.
template <int kInputs>
bool is_packed(const Problem<kInputs>& problem, const Layout<kInputs>& layout, bool small) {
  const auto item = static_cast<int64_t>(size_of(problem.dtype));
  // In types of 1 and 2 bytes, partial vectors cost more than they save in small problems (measured
  // in bf16).
  if (layout.dims[0].strides[0] != 1 || (small && item <= 2)) return false;
  // Neighbouring values of a strided input are read best by neighbouring threads if each is in a
  // sector of its own or nearly so (fp32, 28 bytes apart: 43 us by vectors of the output, 27 us).
  // Farther apart, another dimension of the input is usually contiguous.
  for (int k = 1; k <= kInputs; ++k) {
    const int64_t apart = layout.dims[0].strides[k] * item;
    if (apart > 12 && apart <= 32) return false;
  }
  return true;
}

// Returns nothing if the vectors of rows are too many for one launch.
template <int kInputs>
std::optional<Launch<kInputs>> plan_packed_rows(const Problem<kInputs>& problem,
                                                const Layout<kInputs>& layout) {
  // A row that starts inside a 16-byte vector may touch one vector more.
  const int64_t size = layout.dims[0].size, rows = layout.numel / size;
  const int64_t vecs_per_row = ceil_div(size + layout.values - 1, layout.values);
  if (rows * vecs_per_row * layout.values > kMaxIndex32) return {};
  const auto vecs = static_cast<uint32_t>(rows * vecs_per_row);
  const PackedRowsPlan<kInputs> plan{strided_args(problem, layout, layout.dims),
                                     divide_by(vecs_per_row), vecs};
  return in_blocks<kInputs>(plan, vecs, 1);
}

template <int kInputs>
Launch<kInputs> plan_general(const Problem<kInputs>& problem, const Layout<kInputs>& layout,
                             const Tuning& tuning) {
  const int values = layout.numel < tuning.four_values ? 2 : 4;
  const GeneralPlan<kInputs> plan{strided_args(problem, layout, layout.dims), values,
                                  layout.one_type};
  return in_blocks<kInputs>(plan, layout.numel, values);
}

// Returns nothing if the problem is too large for one launch.
template <int kInputs>
std::optional<Launch<kInputs>> plan_launch(const Problem<kInputs>& problem, Types types,
                                           const Device& device, const Tuning& tuning) {
  const Layout<kInputs> layout(problem);
  if (is_one_run(problem, layout)) return plan_vector(problem, layout);
  if (!fits_one_launch(layout)) return {};
  const bool every_path = types == Types::kAll || category_of(problem.dtype) == Category::kFloat;
  const bool small = layout.numel < tuning.small;
  if (const auto access = access_of_rows(problem, layout)) {
    // In types of 4 bytes and more, vectors that straddle 16-byte boundaries cost more than they
    // save in small problems (measured in fp32).
    const bool slow = *access == Access::kUnaligned && small && size_of(problem.dtype) >= 4;
    if (*access == Access::kAligned || (every_path && !slow)) {
      return plan_rows(problem, layout, *access);
    }
    return plan_general(problem, layout, tuning);
  }
  if (!layout.one_type || !every_path) return plan_general(problem, layout, tuning);
  if (const auto turned = find_turned(problem, layout)) {
    if (small || layout.dims[0].size < tuning.tile_side) {
      return plan_general(problem, layout, tuning);
    }
    return plan_tiles(problem, layout, *turned, device, tuning);
  }
  if (!is_packed(problem, layout, small)) return plan_general(problem, layout, tuning);
  if (!layout.linear[0] || !is_aligned(problem.operands[0].data, kAccessBytes)) {
    return plan_packed_rows(problem, layout);
  }
  // A vector that runs on may leave a plane (dimensions 0 and 1) once, not twice.
  if (layout.num_dims > 2 && layout.dims[0].size * layout.dims[1].size < layout.values) {
    return plan_general(problem, layout, tuning);
  }
  const PackedPlan<kInputs> plan{strided_args(problem, layout, layout.dims)};
  return in_blocks<kInputs>(plan, ceil_div(layout.numel, layout.values), 1);
}

}  // namespace detail

template <Types kTypes = Types::kFloats, int kInputs>
Plan<kInputs, kTypes> make_plan(const Problem<kInputs>& problem, const Device& device,
                                const Tuning& tuning = limits<Tuning>()) {
  Plan<kInputs, kTypes> plan{problem.dtype, {}};
  for_each_part(
      problem, [&](const auto& part) { return detail::plan_launch(part, kTypes, device, tuning); },
      [&](const auto& launch) { plan.launches.push_back(launch); });
  return plan;
}

}  // namespace gpuopt::elementwise
