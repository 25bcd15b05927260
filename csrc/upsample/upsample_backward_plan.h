// Plans the backward: shapes, strides and alignment -> path, arguments and launches. Host code
// without CUDA, tested on the CPU.
#pragma once

#include "upsample/upsample_backward_args.h"
#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

// Most images of a thread of backward_windows_kernel. The gradient of (16,64,200,200) to (100,100)
// in f32 takes 71 us with 32 images, 88 us with eight.
constexpr int64_t kMostImages = 32;
namespace detail {

// What all launches of a backward share.
struct BackwardChoice {
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
inline bool plan_factor(const Problem& problem, const Windows& windows, BackwardChoice& choice) {
  const int64_t factor = problem.width.factor, lanes = factor / windows.vec_values;
  const bool power = factor > 1 && pow2_floor(factor) == factor;
  if (!windows.dense_rows || choice.layout.pixel_units != 1 || !power || !choice.aligned ||
      lanes > 32) {
    return false;
  }
  const int rows_per_thread = windows.tall < 4 ? 2 : 1;
  const int64_t vecs = ceil_div(windows.row_values, windows.vec_values);
  const int64_t threads = ceil_div<int64_t>(choice.rows, rows_per_thread) * vecs;
  if (windows.tall >= 16 && threads < windows.blocks * kBackwardThreads) return false;
  choice.path = BackwardPath::kFactor;
  choice.rows_per_thread = rows_per_thread;
  choice.vecs = vecs;
  choice.factor = static_cast<int>(std::min(factor, windows.vec_values));
  choice.lanes = static_cast<int>(std::max<int64_t>(lanes, 1));
  return true;
}

// Supports windows of up to kMostCopies rows and columns, at 32-bit offsets.
inline bool plan_windows(const Problem& problem, const Windows& windows, const Device& device,
                         BackwardChoice& choice) {
  const Layout& layout = choice.layout;
  const int64_t reach = (problem.height.out - 1) * layout.row_stride +
                        (problem.width.out - 1) * layout.pixel_stride +
                        (layout.pixel_units - 1) * layout.unit_stride;
  const int64_t most = std::max(windows.tall, windows.wide);
  if (most > kMostCopies || reach > kMaxIndex32) return false;
  choice.path = BackwardPath::kWindows;
  choice.most = static_cast<int>(most);
  const int64_t threads = int64_t{2} * 2048 * device.sms;
  const int64_t plane_units = problem.height.in * choice.row_units;
  // Finding the windows is most of the work of a thread with one value, so more images per thread
  // cost it little.
  const bool one_value = layout.unit_bytes == static_cast<int>(size_of(problem.dtype));
  const int64_t most_images =
      one_value ? kMostImages : 2 * images_at_once(layout.unit_bytes, choice.most);
  while (choice.images_per_thread < most_images && 2 * choice.images_per_thread <= layout.images &&
         plane_units * ceil_div(layout.images, 2 * choice.images_per_thread) >= threads) {
    choice.images_per_thread *= 2;
  }
  return true;
}

// Sums rows by vectors, then columns in shared memory.
inline void plan_rows(const Problem& problem, const Windows& windows, BackwardChoice& choice) {
  choice.path = BackwardPath::kRows;
  const int64_t vec_values = windows.vec_values, wide = windows.wide;
  const int64_t units = choice.layout.pixel_units, columns = problem.width.in;
  // A block has at least one thread for each vector of a tile. Alignment may add a vector to it.
  const int64_t span = (kBackwardThreads - 1) * vec_values;
  const bool whole = problem.width.out * units <= span && columns * units <= kMaxTileUnits;
  const int64_t most =
      whole ? columns : std::max<int64_t>(std::min(span / wide, kMaxTileUnits) / units, 1);
  choice.tile_columns = ceil_div(columns, ceil_div(columns, most));
  choice.tiles = ceil_div(columns, choice.tile_columns);
  const int64_t widest = std::min<int64_t>(problem.width.out, choice.tile_columns * wide) * units;
  choice.vecs = ceil_div(widest, vec_values) + (choice.tiles > 1 ? 1 : 0);
  choice.block_row_pairs = kBackwardThreads / choice.vecs;
  while (choice.block_row_pairs > 1 && 4 * choice.splits <= windows.tall &&
         ceil_div(choice.rows, 2 * choice.block_row_pairs) * choice.tiles < windows.blocks) {
    choice.splits *= 2;
    choice.block_row_pairs = std::max<int64_t>(1, kBackwardThreads / (choice.vecs * choice.splits));
  }
  while (choice.vecs * choice.splits > kBackwardThreads) choice.splits /= 2;
  const int64_t results = 2 * choice.block_row_pairs * choice.tile_columns * units;
  choice.lanes =
      static_cast<int>(std::min({pow2_floor(std::max<int64_t>(kBackwardThreads / results, 1)),
                                 pow2_floor(std::max<int64_t>(wide / 2, 1)), int64_t{32}}));
}

inline void plan_pixels(const Windows& windows, BackwardChoice& choice) {
  while (choice.splits < kBackwardThreads && 8 * choice.splits <= windows.tall * windows.wide &&
         ceil_div(choice.units() * choice.splits, int64_t{kBackwardThreads}) < windows.blocks) {
    choice.splits *= 2;
  }
}

// Chooses the path.
inline BackwardChoice choose_backward(const Problem& problem, const Device& device,
                                      const Tuning& tuning) {
  BackwardChoice choice;
  // uint8 gradients are not loaded in vectors: each value has a 32-bit sum of its own.
  choice.layout = make_layout(problem, size_of(problem.dtype) == 1 ? 1 : kAccessBytes);
  const Layout& layout = choice.layout;
  const Windows windows = find_windows(problem, layout, device);
  choice.rows = layout.images * problem.height.in;
  choice.row_units = problem.width.in * layout.pixel_units;
  choice.aligned = windows.row_values % windows.vec_values == 0 &&
                   alignment_of_rows(problem, layout) == kAccessBytes;
  const int64_t bytes = layout.images * problem.height.out * windows.row_values * layout.unit_bytes;
  choice.read_once = tuning.read_once_from <= bytes && bytes <= tuning.read_once_to;

  if (plan_factor(problem, windows, choice)) return choice;
  if (plan_windows(problem, windows, device, choice)) return choice;
  const int64_t span = (kBackwardThreads - 1) * windows.vec_values;
  if (windows.dense_rows && 2 * windows.wide * layout.pixel_units <= span) {
    plan_rows(problem, windows, choice);
  } else {
    plan_pixels(windows, choice);
  }
  return choice;
}

inline LaunchShape blocks_of(int64_t threads) {
  return {static_cast<unsigned>(ceil_div<int64_t>(threads, kBackwardThreads)), kBackwardThreads};
}

inline LaunchShape backward_launch(const BackwardChoice& choice, const BackwardArgs& args,
                                   DType dtype) {
  switch (choice.path) {
    case BackwardPath::kFactor:
      return blocks_of(ceil_div<int64_t>(args.rows, choice.rows_per_thread) * choice.vecs);
    case BackwardPath::kRows: {
      const int64_t item = static_cast<int64_t>(size_of(dtype));
      const int64_t sums = 2 * choice.splits * choice.block_row_pairs * choice.vecs *
                           (kAccessBytes / item) * std::max<int64_t>(item, 4);
      const int64_t window_ends = (choice.tile_columns + 1) * static_cast<int64_t>(sizeof(int32_t));
      const int64_t blocks =
          ceil_div<int64_t>(args.rows, 2 * choice.block_row_pairs) * choice.tiles;
      return {static_cast<unsigned>(blocks), kBackwardThreads,
              static_cast<size_t>(sums + window_ends)};
    }
    case BackwardPath::kWindows:
      return blocks_of(args.threads);
    case BackwardPath::kPixels:
      return blocks_of(int64_t{args.units} * choice.splits);
  }
  return {};
}

// The launches from a row of an image on. Kernels use 31-bit numbers, so a launch covers some whole
// images, or some rows of one image.
inline BackwardPlan plan_backward_from(const Problem& problem, const BackwardChoice& choice,
                                       const Tuning& tuning, int64_t image, int64_t row) {
  const Layout& layout = choice.layout;
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t elements = layout.unit_bytes / size, height = problem.height.in;
  const int64_t row_threads =
      std::max<int64_t>(choice.row_units * choice.splits, choice.vecs * choice.tiles);
  const int64_t most_rows = std::clamp<int64_t>(tuning.part_units / row_threads, 1, height);
  const int64_t most_images =
      most_rows < height ? 1 : std::max<int64_t>(tuning.part_units / (row_threads * height), 1);
  const int64_t images = std::min(most_images, layout.images - image);
  const int64_t rows = std::min(most_rows, height - row);

  BackwardPlan plan;
  BackwardArgs& args = plan.args;
  args.in =
      moved(problem.from, image / layout.channels * layout.batch_stride * elements, problem.dtype);
  const int64_t last = (problem.batch - 1) * problem.batch_stride +
                       (problem.channels - 1) * problem.channel_stride +
                       (problem.height.out - 1) * problem.row_stride +
                       (problem.width.out - 1) * problem.pixel_stride;
  args.in_end = moved(problem.from, last + 1, problem.dtype);
  args.out = moved(problem.to, (image * height + row) * choice.row_units * elements, problem.dtype);
  args.height = problem.height;
  args.width = problem.width;
  args.in_width = divide_by(problem.width.in);
  args.channels = divide_by(layout.channels);
  args.batch_stride = layout.batch_stride * elements;
  args.channel_stride = layout.channel_stride * elements;
  args.row_stride = layout.row_stride * elements;
  args.pixel_stride = layout.pixel_stride * elements;
  args.unit_stride = layout.unit_stride * elements;
  args.image_rows = divide_by(rows);
  args.first_row = static_cast<uint32_t>(row);
  args.first_image = static_cast<uint32_t>(image % layout.channels);
  args.rows = static_cast<uint32_t>(images * rows);
  args.images = static_cast<uint32_t>(images);
  args.units = static_cast<uint32_t>(images * rows * choice.row_units);
  args.vecs = divide_by(choice.vecs);
  args.lanes = static_cast<uint32_t>(choice.lanes);
  args.split_count = divide_by(choice.splits);
  args.tiles = divide_by(choice.tiles);
  args.tile_columns = static_cast<uint32_t>(choice.tile_columns);
  args.tile_units = divide_by(choice.tile_columns * layout.pixel_units);
  args.last_tile_units =
      divide_by((problem.width.in - (choice.tiles - 1) * choice.tile_columns) * layout.pixel_units);
  args.block_row_pairs = static_cast<uint32_t>(choice.block_row_pairs);
  args.pixel_units = divide_by(layout.pixel_units);
  args.block_units = divide_by(kBackwardThreads / choice.splits);

  plan.path = choice.path;
  plan.dtype = problem.dtype;
  plan.elements = static_cast<int>(elements);
  plan.aligned = choice.aligned;
  plan.factor = choice.factor;
  plan.rows_per_thread = choice.rows_per_thread;
  plan.read_once = choice.read_once && choice.path != BackwardPath::kRows &&
                   (choice.path == BackwardPath::kFactor || layout.unit_bytes == kAccessBytes);
  if (choice.path == BackwardPath::kWindows) {
    plan.most = choice.most;
    const int at_once = images_at_once(layout.unit_bytes, choice.most);
    if (choice.images_per_thread >= at_once) plan.at_once = at_once;
    args.image_step = static_cast<uint32_t>(ceil_div<int64_t>(images, choice.images_per_thread));
    args.threads = args.units / args.images * args.image_step;
  }
  plan.launch = backward_launch(choice, args, problem.dtype);
  const bool ends_image = row + rows == height;
  if (!ends_image || image + images < layout.images) {
    plan.rest = std::make_unique<BackwardPlan>(plan_backward_from(
        problem, choice, tuning, ends_image ? image + images : image, ends_image ? 0 : row + rows));
  }
  return plan;
}

}  // namespace detail

inline BackwardPlan plan_backward(const Problem& problem, const Device& device,
                                  const Tuning& tuning = {}) {
  const detail::BackwardChoice choice = detail::choose_backward(problem, device, tuning);
  return detail::plan_backward_from(problem, choice, tuning, 0, 0);
}

// Without plan.rest.
template <typename F>
void describe(const BackwardPlan& plan, F&& f) {
  const BackwardArgs& args = plan.args;
  f("path", plan.path);
  f("elements", plan.elements);
  f("aligned", plan.aligned);
  f("factor", plan.factor);
  f("rows_per_thread", plan.rows_per_thread);
  f("most", plan.most);
  f("at_once", plan.at_once);
  f("read_once", plan.read_once);
  f("source", args.in);
  f("to", args.out);
  f("channels", args.channels);
  f("batch_stride", args.batch_stride);
  f("channel_stride", args.channel_stride);
  f("row_stride", args.row_stride);
  f("pixel_stride", args.pixel_stride);
  f("unit_stride", args.unit_stride);
  f("pixel_units", args.pixel_units);
  f("first_row", args.first_row);
  f("first_image", args.first_image);
  f("rows", args.rows);
  f("images", args.images);
  f("units", args.units);
  f("vecs", args.vecs);
  f("lanes", args.lanes);
  f("splits", args.split_count);
  f("tiles", args.tiles);
  f("tile_columns", args.tile_columns);
  f("block_row_pairs", args.block_row_pairs);
  f("threads_of_units", args.threads);
  f("image_step", args.image_step);
  f("launch", plan.launch);
}

}  // namespace gpuopt::upsample
