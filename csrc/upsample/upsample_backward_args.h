// The arguments of the backward's kernels, and the plan that holds them. Plain host C++, which the
// kernels include.
#pragma once

#include <memory>

#include "common/dtype.h"
#include "common/launch_shape.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

constexpr int kBackwardThreads = 256;
// Loads of 16 bytes that a thread has in flight. With eight instead of four, bf16 takes 188 us
// instead of 167 us, and x8 channels_last in f32 21.7 us instead of 21.2 us.
constexpr int kColumnLoads = 4;  // of backward_factor_kernel
constexpr int kPixelLoads = 4;   // of backward_pixels_kernel
// Threads of backward_tiles_kernel, and bytes of gradients of a block. Neither is swept. 16 blocks
// of 12 KB fill the threads and most of the shared memory of an SM.
constexpr int kTileThreads = 128;
constexpr int64_t kTileBytes = 12 << 10;
// Most bytes of a block, with the borders of its windows, and most columns and rows of a tile.
constexpr int64_t kMostTileBytes = 48 << 10;
constexpr int64_t kMostTileSide = 512, kTileTableBytes = (2 * kMostTileSide + 4) * 4;
// Columns of a window that one thread of backward_tiles_kernel adds. Wider windows, and pixels of
// several units, have several threads with kLaneColumns each: their loads of shared memory conflict
// less.
constexpr int kLeastColumns = 3, kMostColumns = 6, kLaneColumns = 4, kMostLanes = 32;
// Most rows or columns of a window in backward_windows_kernel.
constexpr int kMostCopies = 4;

enum class BackwardPath : uint8_t {
  kFactor,   // windows of a power of two columns, in aligned rows: a thread sums parts of a vector
  kTiles,    // a block copies the gradients of a tile to shared memory, and sums them there
  kWindows,  // a thread loads a whole window of up to kMostCopies x kMostCopies pixels
  kPixels,   // everything else, pixel by pixel
};

// Images that a thread of backward_windows_kernel loads together, so that it has about 64 bytes
// in flight.
constexpr int images_at_once(int unit_bytes, int most) {
  const int bytes = unit_bytes * most * most;
  return bytes >= 64 ? 1 : bytes >= 32 ? 2 : bytes >= 4 ? 4 : 8;
}

struct BackwardArgs {
  const void* in = nullptr;      // gradients of the output, strided
  const void* in_end = nullptr;  // the byte after the last gradient
  void* out = nullptr;           // gradients of the input, dense
  Axis height, width;
  FastDiv in_width, channels;
  // Strides of `in` in elements.
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0, unit_stride = 0;
  // A launch covers whole images, or some rows of one image. It begins at first_row of first_image.
  FastDiv image_rows;
  uint32_t first_row = 0, first_image = 0;
  uint32_t rows = 0, images = 0, units = 0;
  FastDiv vecs;         // of a row of gradients, or of a tile
  uint32_t lanes = 1;   // neighbouring threads that share the columns of a window
  FastDiv split_count;  // threads of a block that share a window; kTiles: rows that it sums at once

  // backward_tiles_kernel
  FastDiv tiles, row_tiles;  // that make up the columns of an image, and its rows
  uint32_t tile_columns = 0, tile_rows = 0;
  FastDiv tile_units;                          // threads that a row of a tile needs
  uint32_t column_rounds = 0, row_rounds = 0;  // of a thread
  uint32_t staged_at = 0, pitch = 0;           // of gradients in shared memory, in bytes

  // backward_windows_kernel, backward_pixels_kernel
  FastDiv pixel_units, block_units;
  uint32_t threads = 0, image_step = 1;  // backward_windows_kernel
};

// A launch.
struct BackwardPlan {
  BackwardPath path = BackwardPath::kPixels;
  DType dtype = DType::kFloat32;
  int elements = 1;         // kWindows, kPixels: values of a unit, which a thread sums together
  int factor = 0;           // kFactor: neighbouring values of a vector that are summed
  int rows_per_thread = 1;  // kFactor: input rows
  int most = 0;             // kWindows: most rows or columns of a window; kTiles: of a thread
  int at_once = 1;          // kWindows: images that a thread loads together
  BackwardArgs args;
  LaunchShape launch;
  std::unique_ptr<BackwardPlan> rest;  // of the result, if it is too large for one launch
};

}  // namespace gpuopt::upsample
