// What the backward kernels share. In all of them an input pixel gathers the gradients of its
// copies, a window of output pixels, in a fixed order and without atomics.
#pragma once

#include "common/types.cuh"
#include "common/vec.cuh"
#include "upsample/upsample_backward_plan.h"

namespace gpuopt::upsample {

struct BackwardArgs {
  const void* in = nullptr;      // gradients of the output
  const void* in_end = nullptr;  // the byte behind the last of them
  void* out = nullptr;           // gradients of the input
  Axis height, width;
  FastDiv in_width, channels;
  // Strides of `in`, in elements
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0, unit_stride = 0;
  // Of the launch: whole images, or some rows of one. The first are those of a launch that isn't
  // the first of its problem.
  FastDiv image_rows;
  uint32_t first_row = 0, first_image = 0;
  uint32_t rows = 0, images = 0, units = 0;
  FastDiv vecs;         // of a row of gradients, or of a tile of it
  uint32_t lanes = 1;   // threads side by side that share a window's columns
  FastDiv split_count;  // threads of a block that share a window's rows or pixels

  // backward_rows_kernel
  FastDiv tiles, tile_units, last_tile_units;
  uint32_t tile_columns = 0, block_row_pairs = 0;

  // backward_windows_kernel, backward_pixels_kernel
  FastDiv pixel_units, block_units;
  uint32_t threads = 0, image_step = 1;  // backward_windows_kernel: a unit in so many images
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

// kElements values, or anything where not `valid`. kOnce: they make way in the caches first. A
// template's, since a flag's second load in front of each takes up to a third longer.
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
