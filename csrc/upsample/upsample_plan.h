// Shapes, strides and alignment -> launch plans. Host code without CUDA, tested on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "common/device.h"
#include "common/dtype.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

// One call, forward or backward: images of `from` become images of `to`.
struct Problem {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::kFloat32;
  int64_t batch = 0, channels = 0;
  Axis height, width;  // in -> out as the forward has them, in the backward too
  // Of `from`, in elements. `to` is dense, in NCHW order or in NHWC order.
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0;
  bool channels_last = false;
};

// Forward, with the times of (2,512,256,256) x2 in f32 or bf16 on an H200. Small blocks of threads
// that load two packs before they store them: 326 us; blocks of 256 335, one pack 348, four 332.
constexpr int kForwardThreads = 128;
constexpr int kPacksAtOnce = 2;
// forward_rows_kernel: 16.0 us for a photograph of bytes, (1,3,1080,1920) x2; two rows 18.2, eight
// 16.4 and slower for images of fewer rows.
constexpr int kRowThreads = 256;
constexpr int kRowsAtOnce = 4;
// forward_images_kernel: 25.1 us for (16,64,100,100) to (150,150) in bf16; two groups 27.6.
constexpr int kGroupsAtOnce = 4;

// Backward. Loads of a thread under way, 16 bytes each: with eight instead of four, bf16 took 188
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

// Images as the kernels see them: planes of units. In NCHW order a unit is an element and every
// channel an image; in NHWC order a pixel has channels * size / unit_bytes units, and units are as
// wide as the alignment of pixels allows, to 16 bytes.
struct Layout {
  int unit_bytes = 1;
  int64_t images = 0, channels = 1;  // channels: images of one batch entry
  int64_t pixel_units = 1;
  // of `from`, in units
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0, unit_stride = 1;
};

namespace detail {

// The widest power of two, to 16 bytes, that divides all of them.
inline int common_alignment(std::initializer_list<int64_t> bytes) {
  int64_t bits = 16;
  for (const int64_t b : bytes) bits |= b;
  return static_cast<int>(bits & -bits);
}

}  // namespace detail

// Of every row's first pixel, in bytes to 16.
inline int alignment_of_rows(const Problem& problem, const Layout& layout) {
  return detail::common_alignment({static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.from)),
                                   layout.batch_stride * layout.unit_bytes,
                                   layout.channel_stride * layout.unit_bytes,
                                   layout.row_stride * layout.unit_bytes});
}

inline Layout make_layout(const Problem& problem, int widest_unit = kAccessBytes) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  Layout layout;
  layout.unit_bytes = static_cast<int>(size);
  layout.batch_stride = problem.batch_stride;
  layout.row_stride = problem.row_stride;
  layout.pixel_stride = problem.pixel_stride;
  if (!problem.channels_last || problem.channels == 1) {
    layout.images = problem.batch * problem.channels;
    layout.channels = problem.channels;
    layout.channel_stride = problem.channel_stride;
    if (problem.batch == 1 || problem.batch_stride == problem.channels * problem.channel_stride) {
      layout.channels = 1;  // images at even distances
      layout.batch_stride = problem.channel_stride;
    }
    return layout;
  }
  layout.images = problem.batch;
  layout.pixel_units = problem.channels;
  layout.unit_stride = problem.channel_stride;
  if (problem.channel_stride != 1) return layout;
  layout.unit_bytes = detail::common_alignment(
      {widest_unit, static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.from)),
       problem.channels * size, problem.batch_stride * size, problem.row_stride * size,
       problem.pixel_stride * size});
  const int64_t elements = layout.unit_bytes / size;
  layout.pixel_units /= elements;
  layout.batch_stride /= elements;
  layout.row_stride /= elements;
  layout.pixel_stride /= elements;
  return layout;
}

// ---------------------------------------------------------------- forward

enum class Path : uint8_t {
  kPacks,   // what a pack of the output holds is one aligned word of the input
  kRows,    // a thread keeps its columns for several rows, which share their loads
  kImages,  // a thread keeps its pixels for several images
  kGather,  // everything else
};

struct ForwardPlan {
  Path path = Path::kGather;
  Layout layout;
  int repeat = 1;          // units of the output side by side that have one source: a power of two
  bool long_rows = false;  // too long for float32 or 32-bit offsets
  int64_t rows = 0, row_units = 0, packs_per_row = 0;
  int64_t packs = 0;  // whole ones; with kRows packs of groups of rows
  int packs_at_once = 1;
  int64_t group_images = 1, groups = 1, group_step = 1;  // kImages

  int64_t units() const { return rows * row_units; }
};

// Kernels count with 31 bits: the sides of an image, the units of a row, and the units and rows of
// a launch from the first of the row, or image, that it begins in. More units are launched in
// parts.
constexpr int64_t kMaxRowUnits = kMaxIndex32;
constexpr int64_t kMaxPartUnits = int64_t{1} << 30;

inline ForwardPlan plan_forward(const Problem& problem, const Device& device) {
  ForwardPlan plan;
  plan.layout = make_layout(problem);
  const Layout& layout = plan.layout;
  const Axis &height = problem.height, &width = problem.width;
  const int64_t pack_units = kAccessBytes / layout.unit_bytes;
  plan.rows = layout.images * height.out;
  plan.row_units = width.out * layout.pixel_units;
  plan.packs_per_row = plan.row_units / pack_units;
  plan.packs = plan.units() / pack_units;
  const int64_t reach =
      (width.in - 1) * layout.pixel_stride + (layout.pixel_units - 1) * layout.unit_stride;
  plan.long_rows = std::max(width.in, width.out) >= kShortAxis || reach > INT32_MAX;
  if (plan.long_rows) return plan;

  if (layout.pixel_units == 1 && width.factor > 0) {
    while (plan.repeat < std::min<int64_t>(pack_units, 8) &&
           width.factor % (2 * plan.repeat) == 0) {
      plan.repeat *= 2;
    }
  }
  const bool rows_of_packs = plan.row_units % pack_units == 0;
  const int64_t word_bytes = kAccessBytes / plan.repeat;
  const bool words = layout.pixel_stride == 1 && alignment_of_rows(problem, layout) >= word_bytes &&
                     (plan.repeat == width.factor || plan.repeat == pack_units);
  const bool whole_packs = layout.unit_bytes == kAccessBytes;  // wide pixels
  // All threads of one pack are resident at once: two packs each would only take longer.
  const int64_t resident = int64_t{2048} * device.multiprocessors;
  plan.packs_at_once = plan.packs <= resident ? 1 : kPacksAtOnce;
  if (rows_of_packs && (whole_packs || (plan.repeat > 1 && words))) {
    plan.path = Path::kPacks;
    return plan;
  }
  const bool enlarges = 2 * int64_t{height.out} >= 3 * int64_t{height.in};
  const int64_t groups = ceil_div<int64_t>(height.out, kRowsAtOnce) * layout.images;
  const int widest_in_rows = layout.pixel_units > 1 ? 4 : 2;
  if (rows_of_packs && layout.unit_bytes <= widest_in_rows && enlarges && height.out < kShortAxis &&
      groups * plan.packs_per_row >= resident && plan.units() <= kMaxPartUnits) {
    plan.path = Path::kRows;
    plan.repeat = 1;
    plan.packs = groups * plan.packs_per_row;
    return plan;
  }
  // Images make groups of whole packs, whose images follow each other at even distances.
  const int64_t image_units = height.out * plan.row_units;
  while (plan.group_images * image_units % pack_units != 0) plan.group_images *= 2;
  plan.groups = layout.images / plan.group_images;
  plan.group_step = ceil_div<int64_t>(plan.groups, kGroupsAtOnce);
  const bool even = layout.channels % plan.group_images == 0 ||
                    (layout.images % plan.group_images == 0 &&
                     layout.batch_stride == layout.channels * layout.channel_stride);
  const int64_t group_reach =
      (plan.group_images - 1) * layout.channel_stride + (height.in - 1) * layout.row_stride + reach;
  const int64_t group_packs = plan.group_images * image_units / pack_units;
  if (even && plan.groups >= kGroupsAtOnce && plan.repeat == 1 && layout.unit_bytes <= 4 &&
      group_reach <= INT32_MAX && plan.units() <= kMaxPartUnits &&
      plan.group_step * group_packs >= resident) {
    plan.path = Path::kImages;
    plan.packs = plan.group_step * group_packs;
  }
  return plan;
}

// How many units the launch takes that begins at unit `first`: a multiple of every pack's, or all.
inline int64_t part_units(const Problem& problem, const ForwardPlan& plan, int64_t first) {
  const int64_t row = first / plan.row_units;
  const int64_t in_row = kMaxIndex32 - first % plan.row_units;
  const int64_t in_rows = (kMaxIndex32 - row % problem.height.out) * plan.row_units;
  const int64_t most = std::min({kMaxPartUnits, in_row, in_rows}) / 16 * 16;
  return std::min(std::max<int64_t>(most, 16), plan.units() - first);
}

// ---------------------------------------------------------------- backward

enum class BackwardPath : uint8_t {
  kFactor,   // windows of a power of two columns: sums of a pack's parts
  kRows,     // packs of rows, columns summed in shared memory
  kWindows,  // a thread loads a window at once
  kPixels,   // everything else
};

struct BackwardPlan {
  BackwardPath path = BackwardPath::kPixels;
  Layout layout;
  int64_t rows = 0, row_units = 0;  // of the result
  bool aligned = false;             // kFactor, kRows: the packs of every row of gradients
  int factor = 0;                   // kFactor: columns of a pack with one sum
  int rows_per_thread = 1;          // kFactor: of the input
  int most = 0;                     // kWindows: rows and columns of a window, at most
  int lanes = 1;                    // threads side by side that share a window's columns
  int splits = 1;                   // threads of a block that share a window
  int64_t packs = 1;                // kFactor: of a row of gradients; kRows: of a tile of it
  int64_t tiles = 1, tile_columns = 1, block_row_pairs = 1;  // kRows

  int64_t images_per_thread = 1;  // kWindows
  bool read_once = false;

  int64_t units() const { return rows * row_units; }
};

// Images that a thread of backward_windows_kernel loads together, so that it has about 64 bytes
// under way.
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

inline void plan_rows(const Problem& problem, int64_t pack_values, int64_t tall, int64_t wide,
                      int64_t blocks, BackwardPlan& plan) {
  const int64_t units = plan.layout.pixel_units, columns = problem.width.in;
  // The packs of a tile, with one that alignment may add, are no more than a block's threads.
  const int64_t span = (kBackwardThreads - 1) * pack_values;
  const bool whole = problem.width.out * units <= span && columns * units <= kMaxTileUnits;
  const int64_t most =
      whole ? columns : std::max<int64_t>(std::min(span / wide, kMaxTileUnits) / units, 1);
  plan.tile_columns = ceil_div(columns, ceil_div(columns, most));
  plan.tiles = ceil_div(columns, plan.tile_columns);
  const int64_t widest = std::min<int64_t>(problem.width.out, plan.tile_columns * wide) * units;
  plan.packs = ceil_div(widest, pack_values) + (plan.tiles > 1 ? 1 : 0);
  plan.block_row_pairs = kBackwardThreads / plan.packs;
  while (plan.block_row_pairs > 1 && 4 * plan.splits <= tall &&
         ceil_div(plan.rows, 2 * plan.block_row_pairs) * plan.tiles < blocks) {
    plan.splits *= 2;
    plan.block_row_pairs = std::max<int64_t>(1, kBackwardThreads / (plan.packs * plan.splits));
  }
  while (plan.packs * plan.splits > kBackwardThreads) plan.splits /= 2;
  const int64_t results = 2 * plan.block_row_pairs * plan.tile_columns * units;
  plan.lanes =
      static_cast<int>(std::min({pow2_floor(std::max<int64_t>(kBackwardThreads / results, 1)),
                                 pow2_floor(std::max<int64_t>(wide / 2, 1)), int64_t{32}}));
}

}  // namespace detail

inline BackwardPlan plan_backward(const Problem& problem, const Device& device) {
  BackwardPlan plan;
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  // Gradients of bytes have no packs: each of their values becomes a sum of 32 bits.
  plan.layout = make_layout(problem, size == 1 ? 1 : kAccessBytes);
  const Layout& layout = plan.layout;
  const Axis &height = problem.height, &width = problem.width;
  plan.rows = layout.images * height.in;
  plan.row_units = width.in * layout.pixel_units;
  const int64_t pack_values = kAccessBytes / size, row_values = width.out * layout.pixel_units;
  const int64_t tall = detail::widest_window(height), wide = detail::widest_window(width);
  const int64_t blocks = int64_t{2} * device.multiprocessors;
  plan.aligned =
      row_values % pack_values == 0 && alignment_of_rows(problem, layout) == kAccessBytes;

  const int64_t bytes = layout.images * height.out * row_values * layout.unit_bytes;
  plan.read_once = kReadOnceFrom <= bytes && bytes <= kReadOnceTo;
  const bool elements = layout.unit_bytes == size && size > 1;
  const bool dense_rows = elements && layout.unit_stride == 1 && row_values >= pack_values &&
                          layout.pixel_stride == layout.pixel_units;
  // A power of two that divides a pack or is made of packs, in a row of whole windows.
  const bool power = width.factor > 1 && detail::pow2_floor(width.factor) == width.factor;
  const int64_t lanes = width.factor / pack_values;
  if (dense_rows && layout.pixel_units == 1 && power &&
      (lanes <= 1 || (lanes <= 32 && plan.aligned))) {
    plan.rows_per_thread = tall < 4 ? 2 : 1;
    const int64_t threads =
        ceil_div<int64_t>(plan.rows, plan.rows_per_thread) * ceil_div(row_values, pack_values);
    if (tall < 16 || threads >= blocks * kBackwardThreads) {
      plan.path = BackwardPath::kFactor;
      plan.packs = ceil_div(row_values, pack_values);
      plan.factor = static_cast<int>(std::min<int64_t>(width.factor, pack_values));
      plan.lanes = static_cast<int>(std::max<int64_t>(lanes, 1));
      return plan;
    }
  }
  const int64_t reach = (height.out - 1) * layout.row_stride +
                        (width.out - 1) * layout.pixel_stride +
                        (layout.pixel_units - 1) * layout.unit_stride;
  const bool small = tall <= kMostCopies && wide <= kMostCopies && reach <= kMaxIndex32;
  const int64_t threads = int64_t{2} * 2048 * device.multiprocessors;
  if (small) {
    plan.most = static_cast<int>(std::max(tall, wide));
    const int64_t plane_units = height.in * plan.row_units;
    // Each further image costs a thread with one value little beside finding the windows.
    const int64_t most_images =
        layout.unit_bytes == size ? kMostImages : 2 * images_at_once(layout.unit_bytes, plan.most);
    while (plan.images_per_thread < most_images && 2 * plan.images_per_thread <= layout.images &&
           plane_units * ceil_div(layout.images, 2 * plan.images_per_thread) >= threads) {
      plan.images_per_thread *= 2;
    }
  }
  if (dense_rows && 2 * wide * layout.pixel_units <= (kBackwardThreads - 1) * pack_values &&
      !(small && plan.images_per_thread >= 2)) {
    plan.path = BackwardPath::kRows;
    detail::plan_rows(problem, pack_values, tall, wide, blocks, plan);
    return plan;
  }
  if (small) {
    plan.path = BackwardPath::kWindows;
    return plan;
  }
  while (plan.splits < kBackwardThreads && 8 * plan.splits <= tall * wide &&
         ceil_div(plan.units() * plan.splits, int64_t{kBackwardThreads}) < blocks) {
    plan.splits *= 2;
  }
  return plan;
}

}  // namespace gpuopt::upsample
