// How the backward is launched: shapes, strides and alignment -> plan. Host code without CUDA,
// tested on the CPU.
#pragma once

#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

// Loads of a thread in flight, 16 bytes each: with eight instead of four, bf16 took 188
// and not 167 us, and x8 channels_last in f32 21.7 and not 21.2.
constexpr int kBackwardThreads = 256;
constexpr int kColumnLoads = 4;  // of backward_factor_kernel
constexpr int kPixelLoads = 4;   // of backward_pixels_kernel
// Of a tile of backward_rows_kernel, whose window borders are in shared memory with the sums.
constexpr int64_t kMaxTileUnits = 2048;
// Gradients of so many bytes make way in the caches first (ld.global.cs): (32,128,7,7) x8 in f32
// took 18.9 us and not 21.2, and 84 MB of bf16 5% less; 1 GB took 10% more, and 64 KB 0.2 us more.
constexpr int64_t kReadOnceFrom = 1 << 20, kReadOnceTo = 256 << 20;
// backward_windows_kernel: 71 us for (16,64,200,200) from (100,100) in f32; eight images 88.
constexpr int64_t kMostImages = 32;  // of a thread
constexpr int kMostCopies = 3;       // rows, or columns, of a window

enum class BackwardPath : uint8_t {
  kFactor,   // windows of a power of two columns: sums of a vector's parts
  kRows,     // vectors of rows, columns summed in shared memory
  kWindows,  // a thread loads a window at once
  kPixels,   // everything else
};

struct BackwardPlan {
  BackwardPath path = BackwardPath::kPixels;
  Layout layout;
  int64_t rows = 0, row_units = 0;  // of the result
  bool aligned = false;             // kFactor, kRows: the vectors of every row of gradients
  int factor = 0;                   // kFactor: columns of a vector with one sum
  int rows_per_thread = 1;          // kFactor: of the input
  int most = 0;                     // kWindows: rows and columns of a window, at most
  int lanes = 1;                    // threads side by side that share a window's columns
  int splits = 1;                   // threads of a block that share a window
  int64_t vecs = 1;                 // kFactor: of a row of gradients; kRows: of a tile of it
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

// An upper bound of the copies of an input pixel. Their centers are less than outs_per_in apart,
// with rounding; the last pixel also has what a scale factor that contradicts the sizes leaves
// over.
inline int64_t widest_window(const Axis& axis) {
  if (axis.factor > 0) return axis.factor;
  const double out = axis.out, rounding = out / (1 << 22);
  const double usual = std::ceil(std::min<double>(axis.outs_per_in, out) + rounding);
  return std::max<int64_t>(static_cast<int64_t>(usual),
                           axis.out - first_copy_of(axis, axis.in - 1));
}

// What all paths are chosen by.
struct Windows {
  int64_t tall = 0, wide = 0;  // rows and columns of the largest
  int64_t vec_values = 0;      // of a vector of gradients
  int64_t row_values = 0;      // of a row of gradients
  bool dense_rows = false;     // rows of gradients can be read in vectors
  int64_t blocks = 0;          // that occupy the device
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

// Windows of a power of two columns that divides a vector or is made of vectors, in a row of whole
// windows.
inline bool plan_factor(const Problem& problem, const Windows& windows, BackwardPlan& plan) {
  const int64_t factor = problem.width.factor, lanes = factor / windows.vec_values;
  const bool power = factor > 1 && pow2_floor(factor) == factor;
  if (!windows.dense_rows || plan.layout.pixel_units != 1 || !power ||
      (lanes > 1 && (lanes > 32 || !plan.aligned))) {
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

// Windows of few rows and columns, at offsets of 32 bits.
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
  // Each further image costs a thread with one value little beside finding the windows.
  const bool one_value = layout.unit_bytes == static_cast<int>(size_of(problem.dtype));
  const int64_t most_images =
      one_value ? kMostImages : 2 * images_at_once(layout.unit_bytes, plan.most);
  while (plan.images_per_thread < most_images && 2 * plan.images_per_thread <= layout.images &&
         plane_units * ceil_div(layout.images, 2 * plan.images_per_thread) >= threads) {
    plan.images_per_thread *= 2;
  }
  return true;
}

// Vectors of rows, whose columns are summed in shared memory.
inline void plan_rows(const Problem& problem, const Windows& windows, BackwardPlan& plan) {
  plan.path = BackwardPath::kRows;
  const int64_t vec_values = windows.vec_values, wide = windows.wide;
  const int64_t units = plan.layout.pixel_units, columns = problem.width.in;
  // The vectors of a tile, with one that alignment may add, are no more than a block's threads.
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
  // Gradients of bytes have no vectors: each of their values becomes a sum of 32 bits.
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
  const bool small = detail::plan_windows(problem, windows, device, plan);
  const int64_t span = (kBackwardThreads - 1) * windows.vec_values;
  if (windows.dense_rows && 2 * windows.wide * layout.pixel_units <= span &&
      plan.images_per_thread == 1) {
    detail::plan_rows(problem, windows, plan);
  } else if (!small) {
    detail::plan_pixels(windows, plan);
  }
  return plan;
}

}  // namespace gpuopt::upsample
