// The backward kernel that sums windows in shared memory.
#pragma once

#include "common/async.cuh"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "upsample/device/upsample_backward.cuh"

namespace gpuopt::upsample {

// The gradients of a tile in shared memory. Rows of gradients begin anywhere, so they are copied as
// the aligned vectors that hold them. The pitch is the distance of rows in memory plus a multiple
// of 16 bytes. So every byte keeps its position within a vector:
//
//   memory   | . . . a a a a a | a a . . . b b b | b b b b . . . . |
//   shared   | . . . a a a a a | a a . . . . . . | . . . . . b b b | b b b b . . . . |
template <typename T>
struct StagedRows {
  uintptr_t first;    // address of the first gradient in memory
  char* shared;       // aligned to 16 bytes
  int64_t row_bytes;  // from row to row in memory
  uint32_t pitch;     // and in shared memory

  __device__ __forceinline__ uint32_t offset() const { return first % kAccessBytes; }

  // Copies `vec`, counted from the first one of a row of `bytes`. Nothing is read at `end` or
  // behind it.
  __device__ __forceinline__ void copy(uint32_t row, uint32_t vec, uint32_t bytes,
                                       const void* end) const {
    const uint32_t to = offset() + row * pitch, shift = to % kAccessBytes;
    if (vec * kAccessBytes >= shift + bytes) return;
    const auto* from =
        reinterpret_cast<const char*>(first + row * row_bytes - shift + vec * kAccessBytes);
    char* const copy = shared + (to - shift) + vec * kAccessBytes;
    const int64_t left = static_cast<const char*>(end) - from;
    if (left >= kAccessBytes) {
      copy_async<char, kAccessBytes>(copy, from);
    } else {
      for (int64_t i = 0; i < left; ++i) copy[i] = from[i];
    }
  }

  __device__ __forceinline__ const char* at(uint32_t row, uint32_t value) const {
    return shared + offset() + row * pitch + value * sizeof(T);
  }
};

// A block sums the windows of args.tile_rows x args.tile_columns input pixels. It first copies all
// their gradients to shared memory, so that memory sees whole vectors of all rows at once. Then
// args.lanes neighbouring threads share the columns of a window, and each adds kColumns of them. A
// thread keeps its columns for all its rows. kPlanar: a pixel has one unit.
template <typename T, int kColumns, bool kPlanar>
__global__ void __launch_bounds__(kTileThreads)
    backward_tiles_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  extern __shared__ uint4 shared[];
  uint32_t image = blockIdx.x;
  const uint32_t first_column = args.tiles.divmod(image) * args.tile_columns;
  const uint32_t first_row = args.row_tiles.divmod(image) * args.tile_rows;
  const uint32_t columns = min(args.tile_columns, args.in_width.divisor - first_column);
  const uint32_t rows = min(args.tile_rows, args.image_rows.divisor - first_row);

  // Find the borders of the windows.
  auto* column_borders = reinterpret_cast<int32_t*>(shared);
  int32_t* row_borders = column_borders + columns + 1;
  for (uint32_t i = threadIdx.x; i < columns + rows + 2; i += kTileThreads) {
    column_borders[i] =
        i <= columns ? first_copy_of(args.width, first_column + i)
                     : first_copy_of(args.height, args.first_row + first_row + (i - columns - 1));
  }
  __syncthreads();

  // Copy their gradients.
  const uint32_t pixel_units = kPlanar ? 1 : args.pixel_units.divisor;
  const int32_t begin = column_borders[0], top = row_borders[0];
  const uint32_t staged_rows = row_borders[rows] - top;
  const uint32_t row_bytes = (column_borders[columns] - begin) * pixel_units * sizeof(T);
  const T* from = image_at<T>(args, image) + top * args.row_stride + int64_t{begin} * pixel_units;
  const StagedRows<T> staged{reinterpret_cast<uintptr_t>(from),
                             reinterpret_cast<char*>(shared) + args.staged_at,
                             args.row_stride * static_cast<int64_t>(sizeof(T)), args.pitch};
  grid_dependency_wait();
  for (uint32_t i = threadIdx.x;; i += kTileThreads) {
    uint32_t row = i;
    const uint32_t vec = args.vecs.divmod(row);
    if (row >= staged_rows) break;
    staged.copy(row, vec, row_bytes, args.in_end);
  }
  launch_dependents();
  wait_for_copies();
  __syncthreads();

  // Sum. All threads run all rounds, because they exchange sums.
  const uint32_t lanes = args.lanes;
  const uint32_t groups = args.split_count.divisor, row_units = args.in_width.divisor * pixel_units;
  T* out = static_cast<T*>(args.out) +
           uint64_t{image * args.image_rows.divisor + first_row} * row_units +
           first_column * pixel_units;
  uint32_t group = threadIdx.x;
  uint32_t item = args.tile_units.divmod(group);
#pragma unroll 1
  for (uint32_t column_round = 0; column_round < args.column_rounds; ++column_round) {
    uint32_t x = item >> __popc(lanes - 1), unit = 0;
    const uint32_t lane = item & (lanes - 1), position = x;
    if (!kPlanar) unit = args.pixel_units.divmod(x);
    const bool has_pixel = group < groups && x < columns;
    int32_t left = begin, width = 0;
    if (has_pixel) {
      left = column_borders[x] + lane * kColumns;
      width = column_borders[x + 1] - left;
    }
    const uint32_t first_value = (left - begin) * pixel_units + unit;
    uint32_t row = group;
#pragma unroll 1
    for (uint32_t row_round = 0; row_round < args.row_rounds; ++row_round, row += groups) {
      const bool valid = has_pixel && row < rows;
      Sum total = 0;
      if (valid) {
        const int32_t y = row_borders[row];
        const char* at = staged.at(y - top, first_value);
#pragma unroll 1
        for (int32_t height = row_borders[row + 1] - y; height > 0; --height, at += args.pitch) {
          const T* values = reinterpret_cast<const T*>(at);
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            if (i < width) total += to_compute(values[i * pixel_units]);
          }
        }
      }
      for (uint32_t mask = 1; mask < lanes; mask *= 2) total += shuffle_xor(total, mask);
      if (valid && lane == 0) out[row * row_units + position] = from_compute<T>(total);
    }
    item += kTileThreads;
  }
}

}  // namespace gpuopt::upsample
