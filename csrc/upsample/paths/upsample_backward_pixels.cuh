// Backward kernels in which one thread, or several, sum the window of one unit of an input pixel.
#pragma once

#include "common/launch.cuh"
#include "upsample/device/upsample_backward.cuh"

namespace gpuopt::upsample {

// Coordinates of a unit of an input pixel.
struct Position {
  uint32_t image, y, x, unit;
};

__device__ __forceinline__ Position position_of(const BackwardArgs& args, uint32_t position) {
  Position result;
  result.image = position;
  result.unit = args.pixel_units.divmod(result.image);
  result.x = args.in_width.divmod(result.image);
  result.y = args.first_row + args.image_rows.divmod(result.image);
  return result;
}

template <typename T, int kElements>
__device__ __forceinline__ void store_sums(const BackwardArgs& args, uint32_t position,
                                           const compute_t<T> (&sums)[kElements]) {
  Vec<T, kElements> result;
#pragma unroll
  for (int i = 0; i < kElements; ++i) result.values[i] = from_compute<T>(sums[i]);
  store_vec(static_cast<T*>(args.out) + uint64_t{position} * kElements, result);
}

// Returns `value` where `mask` is all ones, and 0 where `mask` is 0.
__device__ __forceinline__ float masked(float value, uint32_t mask) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  bits &= mask;
  memcpy(&value, &bits, sizeof(bits));
  return value;
}
__device__ __forceinline__ double masked(double value, uint32_t mask) {
  uint32_t bits[2];
  memcpy(bits, &value, sizeof(bits));
  bits[0] &= mask;
  bits[1] &= mask;
  memcpy(&value, bits, sizeof(bits));
  return value;
}
__device__ __forceinline__ uint32_t masked(uint32_t value, uint32_t mask) { return value & mask; }

// Loads and adds the pixels of a window. A vector is only loaded if its pixel is in the window.
// One value per load works differently, because the instructions around each load are the limit
// there (ncu: 71 to 76% of the issue slots busy, 22 to 24% of the memory pipes). The value is
// always loaded, and masked. Outside the window, the address is that of the nearest pixel in it, or
// in the image if the window is empty.
template <typename T, int kElements, int kMost>
struct WindowLoads {
  int64_t offset;
  bool row_valid[kMost], column_valid[kMost];

  __device__ WindowLoads(const BackwardArgs& args, const Position& pixel, const Copies<kMost>& rows,
                         const Copies<kMost>& columns) {
    offset = rows.at[0] * args.row_stride + columns.at[0] * args.pixel_stride +
             pixel.unit * args.unit_stride;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      row_valid[i] = rows.valid[i];
      column_valid[i] = columns.valid[i];
    }
  }

  __device__ __forceinline__ Vec<T, kElements> load(const BackwardArgs& args, const T* image, int y,
                                                    int x, bool valid) const {
    const T* from = image + offset + y * args.row_stride + x * args.pixel_stride;
    return load_valid<T, kElements>(from, valid && row_valid[y] && column_valid[x]);
  }

  __device__ __forceinline__ void add(compute_t<T> (&sums)[kElements], const Vec<T, kElements>& vec,
                                      int y, int x) const {
    accumulate(sums, vec, row_valid[y] && column_valid[x]);
  }
};

template <typename T, int kMost>
struct WindowLoads<T, 1, kMost> {
  int32_t offsets[kMost][kMost];
  uint32_t rows_in[kMost], columns_in[kMost];

  __device__ WindowLoads(const BackwardArgs& args, const Position& pixel, const Copies<kMost>& rows,
                         const Copies<kMost>& columns) {
    int32_t row_offsets[kMost], column_offsets[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      row_offsets[i] = rows.at[i] * static_cast<int32_t>(args.row_stride);
      column_offsets[i] = columns.at[i] * static_cast<int32_t>(args.pixel_stride) +
                          static_cast<int32_t>(pixel.unit * args.unit_stride);
      rows_in[i] = rows.valid[i] ? 0xffffffffu : 0;
      columns_in[i] = columns.valid[i] ? 0xffffffffu : 0;
    }
#pragma unroll
    for (int y = 0; y < kMost; ++y) {
#pragma unroll
      for (int x = 0; x < kMost; ++x) offsets[y][x] = row_offsets[y] + column_offsets[x];
    }
  }

  __device__ __forceinline__ Vec<T, 1> load(const BackwardArgs&, const T* image, int y, int x,
                                            bool) const {
    return load_vec<T, 1>(image + offsets[y][x]);
  }

  __device__ __forceinline__ void add(compute_t<T> (&sums)[1], const Vec<T, 1>& vec, int y,
                                      int x) const {
    sums[0] += masked(to_compute(vec.values[0]), rows_in[y] & columns_in[x]);
  }
};

// A thread sums the window of one unit, kElements values of an input pixel, in every
// args.image_step-th image. Windows are the same in all images, so it finds them once. It loads
// kAtOnce images together, and all values of a window at once. A window has at most kMost x kMost
// pixels. Example, sizes 4 to 6:
//
//   output pixel    0   1   2   3   4   5
//                   \   /   |   \   /   |     one window per input pixel; in 2-D, the
//   input pixel       0     1     2     3     thread of a pixel loads rows x columns
template <typename T, int kElements, int kMost, int kAtOnce>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_windows_kernel(const __grid_constant__ BackwardArgs args) {
  uint32_t position = blockIdx.x * kBackwardThreads + threadIdx.x;
  if (position >= args.threads) return;
  const Position pixel = position_of(args, position);
  const WindowLoads<T, kElements, kMost> window(args, pixel, Copies<kMost>(args.height, pixel.y),
                                                Copies<kMost>(args.width, pixel.x));
  uint32_t image = pixel.image;
  grid_dependency_wait();
  do {
    Vec<T, kElements> loaded[kAtOnce][kMost][kMost];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const uint32_t from_image = image + k * args.image_step;
      const bool in = k == 0 || from_image < args.images;
      const T* from = image_at<T>(args, in ? from_image : image);
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) loaded[k][y][x] = window.load(args, from, y, x, in);
      }
    }
    launch_dependents();
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (k > 0 && image >= args.images) break;
      compute_t<T> sums[kElements] = {};
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) window.add(sums, loaded[k][y][x], y, x);
      }
      store_sums<T>(args, position, sums);
      image += args.image_step;
      position += args.threads;
    }
  } while (image < args.images);
}

// Sums windows of any size. args.split_count threads of a block share the pixels of a window.
template <typename T, int kElements>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_pixels_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  __shared__ Sum parts[kBackwardThreads * kElements];
  uint32_t split = threadIdx.x;
  const uint32_t block_unit = args.block_units.divmod(split);
  const uint32_t position = blockIdx.x * args.block_units.divisor + block_unit;
  const uint32_t splits = args.split_count.divisor;
  Sum sums[kElements] = {};
  grid_dependency_wait();
  if (position < args.units) {
    const Position pixel = position_of(args, position);
    const Window rows = copies_of(args.height, pixel.y), columns = copies_of(args.width, pixel.x);
    const T* image = image_at<T>(args, pixel.image) + pixel.unit * args.unit_stride;
    const int32_t width = columns.end - columns.begin;
    // A thread adds every splits-th pixel of the window, row after row.
    uint32_t y = rows.begin, x = columns.begin + split;
    const auto last_y = static_cast<uint32_t>(rows.end);
    const auto last_x = static_cast<uint32_t>(columns.end);
    while (y < last_y && width > 0) {
      const T* from[kPixelLoads];
      bool valid[kPixelLoads];
#pragma unroll
      for (int i = 0; i < kPixelLoads; ++i) {
        while (x >= last_x && y < last_y) x -= width, ++y;
        valid[i] = y < last_y;
        from[i] = image + y * args.row_stride + x * args.pixel_stride;
        x += splits;
      }
      Vec<T, kElements> loaded[kPixelLoads];
#pragma unroll
      for (int i = 0; i < kPixelLoads; ++i) {
        loaded[i] = load_valid<T, kElements>(from[i], valid[i]);
      }
#pragma unroll
      for (int i = 0; i < kPixelLoads; ++i) accumulate(sums, loaded[i], valid[i]);
    }
  }
  launch_dependents();
  // Add the sums of the threads that share a window.
  if (splits > 1) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) parts[threadIdx.x * kElements + i] = sums[i];
    __syncthreads();
    if (split > 0) return;
    for (uint32_t s = 1; s < splits; ++s) {
      const uint32_t thread = s * args.block_units.divisor + block_unit;
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[i] += parts[thread * kElements + i];
    }
  }
  if (position < args.units) store_sums<T>(args, position, sums);
}

}  // namespace gpuopt::upsample
