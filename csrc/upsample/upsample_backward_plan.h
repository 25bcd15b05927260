// Plans the backward: shapes, strides and alignment -> path and launch numbers. Host code without
// CUDA, tested on the CPU.
#pragma once

#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

constexpr int kBackwardThreads = 256;
// Loads of 16 bytes that a thread has in flight. With eight instead of four, bf16 takes 188 us
// instead of 167 us, and x8 channels_last in f32 21.7 us instead of 21.2 us.
constexpr int kColumnLoads = 4;  // of backward_factor_kernel
constexpr int kPixelLoads = 4;   // of backward_pixels_kernel
// Most units of a tile of backward_rows_kernel. The window borders of a tile lie in shared memory
// beside its sums.
constexpr int64_t kMaxTileUnits = 2048;
// Gradients of this many bytes are loaded with a streaming hint (ld.global.cs), so they leave the
// caches first. With the hint, (32,128,7,7) x8 in f32 takes 18.9 us instead of 21.2 us, and 84 MB
// of bf16 5% less time. Outside this range it costs time: 1 GB takes 10% more, 64 KB 0.2 us more.
constexpr int64_t kReadOnceFrom = 1 << 20, kReadOnceTo = 256 << 20;
// Most images of a thread of backward_windows_kernel. The gradient of (16,64,200,200) to (100,100)
// in f32 takes 71 us with 32 images, 88 us with eight.
constexpr int64_t kMostImages = 32;
// Most rows or columns of a window in backward_windows_kernel. The gradient of (413,1,461,461) to
// (296,1621) in f16 takes 620 us there, 1091 us in backward_rows_kernel.
constexpr int kMostCopies = 4;

enum class BackwardPath : uint8_t {
  kFactor,   // windows of a power of two columns, in aligned rows: a thread sums parts of a vector
  kRows,     // sums rows by vectors, then columns in shared memory
  kWindows,  // a thread loads a whole window of up to kMostCopies x kMostCopies pixels
  kPixels,   // everything else, pixel by pixel
};

struct BackwardPlan {
  BackwardPath path = BackwardPath::kPixels;
  Layout layout;
  int64_t rows = 0, row_units = 0;  // of the result: rows of all images, units of one row
  bool aligned = false;             // kRows: rows of gradients are whole aligned vectors
  int factor = 0;                   // kFactor: neighbouring values of a vector that are summed
  int rows_per_thread = 1;          // kFactor: input rows
  int most = 0;                     // kWindows: most rows or columns of a window
  int lanes = 1;                    // neighbouring threads that share the columns of a window
  int splits = 1;                   // threads of a block that share a window
  int64_t vecs = 1;                 // kFactor: vectors of a row of gradients; kRows: of a tile
  int64_t tiles = 1, tile_columns = 1, block_row_pairs = 1;  // kRows

  int64_t images_per_thread = 1;  // kWindows
  bool read_once = false;

  int64_t units() const { return rows * row_units; }
};

// Images that a thread of backward_windows_kernel loads together, so that it has about 64 bytes
// in flight.
constexpr int images_at_once(int unit_bytes, int most) {
  const int bytes = unit_bytes * most * most;
  return bytes >= 64 ? 1 : bytes >= 32 ? 2 : bytes >= 4 ? 4 : 8;
}

namespace detail {

inline int64_t pow2_floor(int64_t n) {
  int64_t power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

// Upper bound of the number of copies of an input pixel. The centers of its copies span less than
// outs_per_in pixels, plus rounding. The last input pixel may have more copies: where a scale
// factor contradicts the sizes, it also has the rest of the output.
inline int64_t widest_window(const Axis& axis) {
  if (axis.factor > 0) return axis.factor;
  const double out = axis.out, rounding = out / (1 << 22);
  const double usual = std::ceil(std::min<double>(axis.outs_per_in, out) + rounding);
  return std::max<int64_t>(static_cast<int64_t>(usual),
                           axis.out - first_copy_of(axis, axis.in - 1));
}

// What the choice of a path depends on.
struct Windows {
  int64_t tall = 0, wide = 0;  // rows and columns of the largest window
  int64_t vec_values = 0;      // values per vector of gradients
  int64_t row_values = 0;      // values per row of gradients
  bool dense_rows = false;     // rows of gradients can be read in vectors
  int64_t blocks = 0;          // enough to occupy the device
};

inline Windows find_windows(const Problem& problem, const Layout& layout, const Device& device) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  Windows windows;
  windows.tall = widest_window(problem.height);
  windows.wide = widest_window(problem.width);
  windows.vec_values = kAccessBytes / size;
  windows.row_values = problem.width.out * layout.pixel_units;
  const bool elements = layout.unit_bytes == size && size > 1;
  windows.dense_rows = elements && layout.unit_stride == 1 &&
                       windows.row_values >= windows.vec_values &&
                       layout.pixel_stride == layout.pixel_units;
  windows.blocks = int64_t{2} * device.sms;
  return windows;
}

// Supports width factors that are a power of two, so that a vector holds whole windows or a window
// holds whole vectors. In rows that are not aligned, backward_windows_kernel is faster (f16
// (1590,1,168,194) to (336,388): 195 us, and 237 us with vectors from two loads).
inline bool plan_factor(const Problem& problem, const Windows& windows, BackwardPlan& plan) {
  const int64_t factor = problem.width.factor, lanes = factor / windows.vec_values;
  const bool power = factor > 1 && pow2_floor(factor) == factor;
  if (!windows.dense_rows || plan.layout.pixel_units != 1 || !power || !plan.aligned ||
      lanes > 32) {
    return false;
  }
  const int rows_per_thread = windows.tall < 4 ? 2 : 1;
  const int64_t vecs = ceil_div(windows.row_values, windows.vec_values);
  const int64_t threads = ceil_div<int64_t>(plan.rows, rows_per_thread) * vecs;
  if (windows.tall >= 16 && threads < windows.blocks * kBackwardThreads) return false;
  plan.path = BackwardPath::kFactor;
  plan.rows_per_thread = rows_per_thread;
  plan.vecs = vecs;
  plan.factor = static_cast<int>(std::min(factor, windows.vec_values));
  plan.lanes = static_cast<int>(std::max<int64_t>(lanes, 1));
  return true;
}

// Supports windows of up to kMostCopies rows and columns, at 32-bit offsets.
inline bool plan_windows(const Problem& problem, const Windows& windows, const Device& device,
                         BackwardPlan& plan) {
  const Layout& layout = plan.layout;
  const int64_t reach = (problem.height.out - 1) * layout.row_stride +
                        (problem.width.out - 1) * layout.pixel_stride +
                        (layout.pixel_units - 1) * layout.unit_stride;
  const int64_t most = std::max(windows.tall, windows.wide);
  if (most > kMostCopies || reach > kMaxIndex32) return false;
  plan.path = BackwardPath::kWindows;
  plan.most = static_cast<int>(most);
  const int64_t threads = int64_t{2} * 2048 * device.sms;
  const int64_t plane_units = problem.height.in * plan.row_units;
  // Finding the windows is most of the work of a thread with one value, so more images per thread
  // cost it little.
  const bool one_value = layout.unit_bytes == static_cast<int>(size_of(problem.dtype));
  const int64_t most_images =
      one_value ? kMostImages : 2 * images_at_once(layout.unit_bytes, plan.most);
  while (plan.images_per_thread < most_images && 2 * plan.images_per_thread <= layout.images &&
         plane_units * ceil_div(layout.images, 2 * plan.images_per_thread) >= threads) {
    plan.images_per_thread *= 2;
  }
  return true;
}

// Sums rows by vectors, then columns in shared memory.
inline void plan_rows(const Problem& problem, const Windows& windows, BackwardPlan& plan) {
  plan.path = BackwardPath::kRows;
  const int64_t vec_values = windows.vec_values, wide = windows.wide;
  const int64_t units = plan.layout.pixel_units, columns = problem.width.in;
  // A block has at least one thread for each vector of a tile. Alignment may add a vector to it.
  const int64_t span = (kBackwardThreads - 1) * vec_values;
  const bool whole = problem.width.out * units <= span && columns * units <= kMaxTileUnits;
  const int64_t most =
      whole ? columns : std::max<int64_t>(std::min(span / wide, kMaxTileUnits) / units, 1);
  plan.tile_columns = ceil_div(columns, ceil_div(columns, most));
  plan.tiles = ceil_div(columns, plan.tile_columns);
  const int64_t widest = std::min<int64_t>(problem.width.out, plan.tile_columns * wide) * units;
  plan.vecs = ceil_div(widest, vec_values) + (plan.tiles > 1 ? 1 : 0);
  plan.block_row_pairs = kBackwardThreads / plan.vecs;
  while (plan.block_row_pairs > 1 && 4 * plan.splits <= windows.tall &&
         ceil_div(plan.rows, 2 * plan.block_row_pairs) * plan.tiles < windows.blocks) {
    plan.splits *= 2;
    plan.block_row_pairs = std::max<int64_t>(1, kBackwardThreads / (plan.vecs * plan.splits));
  }
  while (plan.vecs * plan.splits > kBackwardThreads) plan.splits /= 2;
  const int64_t results = 2 * plan.block_row_pairs * plan.tile_columns * units;
  plan.lanes =
      static_cast<int>(std::min({pow2_floor(std::max<int64_t>(kBackwardThreads / results, 1)),
                                 pow2_floor(std::max<int64_t>(wide / 2, 1)), int64_t{32}}));
}

inline void plan_pixels(const Windows& windows, BackwardPlan& plan) {
  while (plan.splits < kBackwardThreads && 8 * plan.splits <= windows.tall * windows.wide &&
         ceil_div(plan.units() * plan.splits, int64_t{kBackwardThreads}) < windows.blocks) {
    plan.splits *= 2;
  }
}

}  // namespace detail

inline BackwardPlan plan_backward(const Problem& problem, const Device& device) {
  BackwardPlan plan;
  // uint8 gradients are not loaded in vectors: each value has a 32-bit sum of its own.
  plan.layout = make_layout(problem, size_of(problem.dtype) == 1 ? 1 : kAccessBytes);
  const Layout& layout = plan.layout;
  const detail::Windows windows = detail::find_windows(problem, layout, device);
  plan.rows = layout.images * problem.height.in;
  plan.row_units = problem.width.in * layout.pixel_units;
  plan.aligned = windows.row_values % windows.vec_values == 0 &&
                 alignment_of_rows(problem, layout) == kAccessBytes;
  const int64_t bytes = layout.images * problem.height.out * windows.row_values * layout.unit_bytes;
  plan.read_once = kReadOnceFrom <= bytes && bytes <= kReadOnceTo;

  if (detail::plan_factor(problem, windows, plan)) return plan;
  if (detail::plan_windows(problem, windows, device, plan)) return plan;
  const int64_t span = (kBackwardThreads - 1) * windows.vec_values;
  if (windows.dense_rows && 2 * windows.wide * layout.pixel_units <= span) {
    detail::plan_rows(problem, windows, plan);
  } else {
    detail::plan_pixels(windows, plan);
  }
  return plan;
}

}  // namespace gpuopt::upsample
