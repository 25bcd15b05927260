// Shared by the backward kernels. In all of them, the copies of an input pixel form a window of
// output pixels. The gradients in the window are summed in a fixed order, without atomics.
#pragma once

#include "common/types.cuh"
#include "common/vec.cuh"
#include "upsample/upsample_backward_args.h"

namespace gpuopt::upsample {

struct Window {
  int32_t begin, end;
};

__device__ __forceinline__ Window copies_of(const Axis& axis, int32_t in) {
  return {first_copy_of(axis, in), first_copy_of(axis, in + 1)};
}

// Up to kMost copies of an input pixel, which has no more: which of the output pixels from the
// first copy on are copies. at[i] is the last copy up to there, or a pixel of the image if there is
// none. A test takes fewer instructions than first_copy_of() of the next input pixel.
template <int kMost>
struct Copies {
  int32_t at[kMost];
  bool valid[kMost];

  __device__ __forceinline__ Copies(const Axis& axis, int32_t in) {
    const int32_t first = first_copy_of(axis, in);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int32_t out = first + i;
      valid[i] = out < axis.out && source_of(axis, out) == in;
      at[i] = i == 0 ? min(out, axis.out - 1) : valid[i] ? out : at[i - 1];
    }
  }
};

template <typename T>
__device__ __forceinline__ const T* image_at(const BackwardArgs& args, uint32_t image) {
  image += args.first_image;
  const uint32_t channel = args.channels.divmod(image);
  return static_cast<const T*>(args.in) + image * args.batch_stride + channel * args.channel_stride;
}

// Loads kElements values, or returns anything if not `valid`. Vectors of gradients are loaded with
// a streaming hint (ld.global.cs), so that they leave the caches first.
template <typename T, int kElements>
__device__ __forceinline__ Vec<T, kElements> load_valid(const T* aligned, bool valid) {
  if constexpr (sizeof(T) * kElements == kAccessBytes) {
    return vec_of<T>(load_16_bytes(aligned, valid, /*once=*/true));
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
