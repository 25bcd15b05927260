// Plans the backward: shapes, strides and alignment -> path, arguments and launches. Host code
// without CUDA, tested on the CPU.
#pragma once

#include "common/tuning.h"
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
  bool aligned = false;             // rows of gradients are whole aligned vectors
  int factor = 0;                   // kFactor: neighbouring values of a vector that are summed
  int rows_per_thread = 1;          // kFactor: input rows
  int most = 0;                     // as in BackwardPlan
  int lanes = 1;                    // neighbouring threads that share the columns of a window
  int splits = 1;                   // kPixels: threads of a block that share a window
  int64_t vecs = 1;                 // kFactor: vectors of a row of gradients; kTiles: of a tile
  int64_t tile_columns = 1, tile_rows = 1, pitch = 0, staged_rows = 0;  // kTiles

  int64_t images_per_thread = 1;  // kWindows

  int64_t units() const { return rows * row_units; }
};

inline int64_t pow2_floor(int64_t n) {
  int64_t power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

// Upper bound of the number of copies of some neighbouring input pixels. The centers of the copies
// of one span less than outs_per_in pixels, plus rounding. The last input pixel may have more
// copies: where a scale factor contradicts the sizes, it also has the rest of the output.
inline int64_t widest_window(const Axis& axis, int64_t pixels = 1) {
  if (axis.factor > 0) return axis.factor * pixels;
  const double out = axis.out, rounding = out / (1 << 22);
  const auto usual = [&](int64_t count) {
    const double copies = axis.outs_per_in * static_cast<double>(count);
    return count == 0 ? 0 : static_cast<int64_t>(std::ceil(std::min(copies, out) + rounding));
  };
  const int64_t last = axis.out - first_copy_of(axis, axis.in - 1) + usual(pixels - 1);
  return std::min<int64_t>(std::max(usual(pixels), last), axis.out);
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
  // cost it little. Images that it loads together cost no time at all, so few threads are enough,
  // even if there are fewer images than that.
  const bool one_value = layout.unit_bytes == static_cast<int>(size_of(problem.dtype));
  const int at_once = images_at_once(layout.unit_bytes, choice.most);
  const auto threads_of = [&](int64_t images) {
    return plane_units * ceil_div<int64_t>(layout.images, images);
  };
  if (one_value && layout.images > 1 && threads_of(at_once) >= 256 * device.sms) {
    choice.images_per_thread = at_once;
  }
  const int64_t most_images = one_value ? kMostImages : 2 * at_once;
  while (choice.images_per_thread < most_images && 2 * choice.images_per_thread <= layout.images &&
         threads_of(2 * choice.images_per_thread) >= threads) {
    choice.images_per_thread *= 2;
  }
  return true;
}

// The largest number of pixels, up to `most`, that `holds`, then the least that makes as many
// tiles.
template <typename F>
int64_t tile_side(int64_t pixels, int64_t most, F&& holds) {
  int64_t low = 1, high = std::min(pixels, most);
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    (holds(middle) ? low : high) = holds(middle) ? middle : middle - 1;
  }
  return ceil_div(pixels, ceil_div(pixels, low));
}

// Supports windows whose gradients fit in the shared memory of a block. Tiles are smaller if there
// would be too few to occupy the device.
inline bool plan_tiles(const Problem& problem, const Windows& windows, BackwardChoice& choice) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t pixel_bytes = choice.layout.pixel_units * size;
  const int64_t row_bytes = problem.row_stride * size;
  // The distance of rows in shared memory: no two rows have parts of one vector.
  const auto pitch_of = [&](int64_t columns) {
    const int64_t least = widest_window(problem.width, columns) * pixel_bytes + 2 * kAccessBytes;
    return least + ((row_bytes - least) % kAccessBytes + kAccessBytes) % kAccessBytes;
  };
  const auto bytes_of = [&](int64_t columns, int64_t rows) {
    return pitch_of(columns) * widest_window(problem.height, rows);
  };
  if (!windows.dense_rows || windows.wide > int64_t{kMostLanes} * kLaneColumns ||
      bytes_of(1, 1) > kMostTileBytes - kTileTableBytes) {
    return false;
  }
  choice.path = BackwardPath::kTiles;
  const int64_t width = problem.width.in, height = problem.height.in;
  int64_t columns =
      tile_side(width, kMostTileSide, [&](int64_t n) { return bytes_of(n, 1) <= kTileBytes; });
  int64_t rows = tile_side(height, kMostTileSide,
                           [&](int64_t n) { return bytes_of(columns, n) <= kTileBytes; });
  const auto blocks = [&] {
    return choice.layout.images * ceil_div(width, columns) * ceil_div(height, rows);
  };
  while (rows > 1 && blocks() < windows.blocks) rows = ceil_div<int64_t>(rows, 2);
  while (columns > kWarp && blocks() < windows.blocks) columns = ceil_div<int64_t>(columns, 2);
  choice.tile_columns = columns;
  choice.tile_rows = rows;
  choice.pitch = pitch_of(columns);
  choice.staged_rows = widest_window(problem.height, rows);
  choice.vecs = ceil_div<int64_t>(
      widest_window(problem.width, columns) * pixel_bytes + kAccessBytes - size, kAccessBytes);
  if (windows.wide <= kMostColumns && choice.layout.pixel_units == 1) {
    choice.most = std::max(static_cast<int>(windows.wide), kLeastColumns);
  } else {
    choice.most = kLaneColumns;
    choice.lanes = static_cast<int>(pow2_ceil(ceil_div<int64_t>(windows.wide, kLaneColumns)));
  }
  return true;
}

// Neighbouring threads have neighbouring units, or share one window.
inline void plan_pixels(const Windows& windows, BackwardChoice& choice) {
  if (windows.dense_rows && windows.wide >= kWarp) choice.splits = kBackwardThreads;
  while (choice.splits < kBackwardThreads && 8 * choice.splits <= windows.tall * windows.wide &&
         ceil_div(choice.units() * choice.splits, int64_t{kBackwardThreads}) < windows.blocks) {
    choice.splits *= 2;
  }
}

// Chooses the path.
inline BackwardChoice choose_backward(const Problem& problem, const Device& device,
                                      const Tuning& tuning) {
  BackwardChoice choice;
  // uint8 gradients are not loaded in vectors: each value has a 32-bit sum.
  choice.layout = make_layout(problem, size_of(problem.dtype) == 1 ? 1 : kAccessBytes);
  const Layout& layout = choice.layout;
  const Windows windows = find_windows(problem, layout, device);
  choice.rows = layout.images * problem.height.in;
  choice.row_units = problem.width.in * layout.pixel_units;
  choice.aligned = windows.row_values % windows.vec_values == 0 &&
                   alignment_of_rows(problem, layout) == kAccessBytes;

  if (plan_factor(problem, windows, choice)) return choice;
  // A thread that loads a window of more than 2 x 2 single values runs more instructions than
  // memory has time for.
  const bool small = std::max(windows.tall, windows.wide) <= 2;
  if (!small && plan_tiles(problem, windows, choice)) return choice;
  if (plan_windows(problem, windows, device, choice)) return choice;
  plan_pixels(windows, choice);
  return choice;
}

inline LaunchShape blocks_of(int64_t threads) {
  return {static_cast<unsigned>(ceil_div<int64_t>(threads, kBackwardThreads)), kBackwardThreads, 0,
          /*use_pdl=*/true};
}

inline LaunchShape backward_launch(const BackwardChoice& choice, const BackwardArgs& args) {
  switch (choice.path) {
    case BackwardPath::kFactor:
      return blocks_of(ceil_div<int64_t>(args.rows, choice.rows_per_thread) * choice.vecs);
    case BackwardPath::kTiles:
      return {args.images * args.row_tiles.divisor * args.tiles.divisor, kTileThreads,
              static_cast<size_t>(args.staged_at + choice.pitch * choice.staged_rows),
              /*use_pdl=*/true};
    case BackwardPath::kWindows:
      return blocks_of(args.threads);
    case BackwardPath::kPixels:
      return blocks_of(int64_t{args.units} * choice.splits);
  }
  return {};
}

// Sets the arguments of backward_tiles_kernel, for `rows` rows of images with `width` columns.
inline void set_tiles(BackwardArgs& args, const BackwardChoice& choice, int64_t width,
                      int64_t rows) {
  const int64_t units = choice.tile_columns * choice.layout.pixel_units * choice.lanes;
  const int64_t tile_rows = std::min(choice.tile_rows, rows);
  const int64_t groups = std::clamp<int64_t>(kTileThreads / units, 1, tile_rows);
  args.tiles = divide_by(ceil_div(width, choice.tile_columns));
  args.row_tiles = divide_by(ceil_div(rows, tile_rows));
  args.tile_columns = static_cast<uint32_t>(choice.tile_columns);
  args.tile_rows = static_cast<uint32_t>(tile_rows);
  args.tile_units = divide_by(groups > 1 ? units : std::max<int64_t>(units, kTileThreads));
  args.column_rounds = static_cast<uint32_t>(ceil_div<int64_t>(units, kTileThreads));
  args.row_rounds = static_cast<uint32_t>(ceil_div(tile_rows, groups));
  args.split_count = divide_by(groups);
  const int64_t borders = (choice.tile_columns + tile_rows + 2) * int64_t{sizeof(int32_t)};
  args.staged_at = static_cast<uint32_t>(ceil_div<int64_t>(borders, kAccessBytes) * kAccessBytes);
  args.pitch = static_cast<uint32_t>(choice.pitch);
}

// The launches from a row of an image on. Kernels use 31-bit numbers, so a launch covers some whole
// images, or some rows of one image.
inline BackwardPlan plan_backward_from(const Problem& problem, const BackwardChoice& choice,
                                       const Tuning& tuning, int64_t image, int64_t row) {
  const Layout& layout = choice.layout;
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t elements = layout.unit_bytes / size, height = problem.height.in;
  const int64_t row_threads =
      std::max<int64_t>(choice.row_units * choice.splits,
                        choice.path == BackwardPath::kFactor ? choice.vecs : choice.row_units);
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
  if (choice.path == BackwardPath::kTiles) set_tiles(args, choice, problem.width.in, rows);
  args.pixel_units = divide_by(layout.pixel_units);
  args.block_units = divide_by(kBackwardThreads / choice.splits);

  plan.path = choice.path;
  plan.dtype = problem.dtype;
  plan.elements = static_cast<int>(elements);
  plan.factor = choice.factor;
  plan.rows_per_thread = choice.rows_per_thread;
  plan.most = choice.most;
  if (choice.path == BackwardPath::kWindows) {
    const int at_once = images_at_once(layout.unit_bytes, choice.most);
    if (choice.images_per_thread >= at_once) plan.at_once = at_once;
    args.image_step = static_cast<uint32_t>(ceil_div<int64_t>(images, choice.images_per_thread));
    args.threads = args.units / args.images * args.image_step;
  }
  plan.launch = backward_launch(choice, args);
  const bool ends_image = row + rows == height;
  if (!ends_image || image + images < layout.images) {
    plan.rest = std::make_unique<BackwardPlan>(plan_backward_from(
        problem, choice, tuning, ends_image ? image + images : image, ends_image ? 0 : row + rows));
  }
  return plan;
}

}  // namespace detail

inline BackwardPlan plan_backward(const Problem& problem, const Device& device,
                                  const Tuning& tuning = limits<Tuning>()) {
  const detail::BackwardChoice choice = detail::choose_backward(problem, device, tuning);
  return detail::plan_backward_from(problem, choice, tuning, 0, 0);
}

// Without plan.rest.
template <typename F>
void describe(const BackwardPlan& plan, F&& f) {
  const BackwardArgs& args = plan.args;
  f("path", plan.path);
  f("elements", plan.elements);
  f("factor", plan.factor);
  f("rows_per_thread", plan.rows_per_thread);
  f("most", plan.most);
  f("at_once", plan.at_once);
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
  f("row_tiles", args.row_tiles);
  f("tile_columns", args.tile_columns);
  f("tile_rows", args.tile_rows);
  f("tile_units", args.tile_units);
  f("column_rounds", args.column_rounds);
  f("row_rounds", args.row_rounds);
  f("staged_at", args.staged_at);
  f("pitch", args.pitch);
  f("threads_of_units", args.threads);
  f("image_step", args.image_step);
  f("launch", plan.launch);
}

}  // namespace gpuopt::upsample
