// Shared by the backward kernels. In all of them, the copies of an input pixel form a window of
// output pixels. The gradients in the window are summed in a fixed order, without atomics.
#pragma once

#include "common/types.cuh"
#include "common/vec.cuh"
#include "upsample/upsample_backward_plan.h"

namespace gpuopt::upsample {

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
  FastDiv split_count;  // threads of a block that share the rows or pixels of a window

  // backward_rows_kernel
  FastDiv tiles, tile_units, last_tile_units;
  uint32_t tile_columns = 0, block_row_pairs = 0;

  // backward_windows_kernel, backward_pixels_kernel
  FastDiv pixel_units, block_units;
  uint32_t threads = 0, image_step = 1;  // backward_windows_kernel
};

struct Window {
  int32_t begin, end;
};

__device__ __forceinline__ Window copies_of(const Axis& axis, int32_t in) {
  return {first_copy_of(axis, in), first_copy_of(axis, in + 1)};
}

template <typename T>
__device__ __forceinline__ const T* image_at(const BackwardArgs& args, uint32_t image) {
  image += args.first_image;
  const uint32_t channel = args.channels.divmod(image);
  return static_cast<const T*>(args.in) + image * args.batch_stride + channel * args.channel_stride;
}

// Loads kElements values, or returns anything if not `valid`. kOnce: with a streaming hint. It is a
// template parameter because a run-time flag puts a second load before each, which takes up to a
// third longer.
template <typename T, int kElements, bool kOnce>
__device__ __forceinline__ Vec<T, kElements> load_valid(const T* aligned, bool valid) {
  if constexpr (sizeof(T) * kElements == kAccessBytes) {
    return vec_of<T>(load_16_bytes(aligned, valid, kOnce));
  } else if constexpr (sizeof(T) > 1) {
    using Word =
        std::conditional_t<sizeof(T) * kElements == 8, uint64_t,
                           std::conditional_t<sizeof(T) * kElements == 4, uint32_t, uint16_t>>;
    const Word word = load_word<Word>(aligned, valid);
    Vec<T, kElements> vec;
    memcpy(&vec, &word, sizeof(vec));
    return vec;
  } else {
    Vec<T, kElements> vec;
    if (valid) vec = load_vec<T, kElements>(aligned);
    return vec;
  }
}

template <typename T, int kElements>
__device__ __forceinline__ void accumulate(compute_t<T> (&sums)[kElements],
                                           const Vec<T, kElements>& vec, bool valid) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (valid) sums[i] += to_compute(vec.values[i]);
  }
}

}  // namespace gpuopt::upsample
