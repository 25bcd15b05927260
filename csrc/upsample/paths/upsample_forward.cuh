// Forward kernels: every output pixel is a copy of its source pixel in the input.
#pragma once

#include <type_traits>

#include "common/launch.cuh"
#include "common/vec.cuh"
#include "upsample/upsample_forward_args.h"

namespace gpuopt::upsample {

// Returns the input row that output row `row` copies. `row` counts over all images.
template <typename Unit>
__device__ __forceinline__ const Unit* source_row(const ForwardArgs& args, uint32_t row) {
  uint32_t image = row + args.first_row;
  const uint32_t y = args.out_height.divmod(image);
  image += args.first_image;
  const uint32_t channel = args.channels.divmod(image);
  return static_cast<const Unit*>(args.in) + image * args.batch_stride +
         channel * args.channel_stride + source_of(args.height, y) * args.row_stride;
}

// Stores with a streaming hint: the output is not read again here, so it may leave the caches
// first.
__device__ __forceinline__ void store_once(void* aligned, const uint4& words) {
  __stcs(static_cast<uint4*>(aligned), words);
}

template <typename Unit, int kUnits>
__device__ __forceinline__ uint4 words_of(const Vec<Unit, kUnits>& vec) {
  uint4 words;
  static_assert(sizeof(vec) == sizeof(words));
  memcpy(&words, &vec, sizeof(words));
  return words;
}

// Copies the vectors of a thread, kVecsAtOnce of them or one. vec_at(vec) loads one vector. All
// loads are issued before the first store.
template <typename VecAt>
__device__ __forceinline__ void copy_vecs(const ForwardArgs& args, VecAt&& vec_at) {
  const uint32_t first = blockIdx.x * (kForwardThreads * args.vecs_at_once) + threadIdx.x;
  uint4 words[kVecsAtOnce];
#pragma unroll
  for (int k = 0; k < kVecsAtOnce; ++k) {
    const uint32_t vec = first + k * kForwardThreads;
    if (k < args.vecs_at_once && vec < args.vecs) words[k] = vec_at(vec);
  }
  launch_dependents();
  auto* out = static_cast<uint4*>(args.out) + first;
#pragma unroll
  for (int k = 0; k < kVecsAtOnce; ++k) {
    const uint32_t vec = first + k * kForwardThreads;
    if (k < args.vecs_at_once && vec < args.vecs) store_once(out + k * kForwardThreads, words[k]);
  }
}

// A thread loads one aligned word of the input and writes each of its units kRepeat times, which
// fills a vector. Rows are whole vectors.
template <typename Unit, int kRepeat>
__global__ void __launch_bounds__(kForwardThreads)
    forward_vecs_kernel(const __grid_constant__ ForwardArgs args) {
  constexpr int kUnits = kVecSize<Unit>;
  constexpr int kSources = kUnits / kRepeat;
  grid_dependency_wait();
  copy_vecs(args, [&](uint32_t vec) {
    uint32_t row = vec + args.first_unit / kUnits;
    uint32_t x = args.vecs_per_row.divmod(row);  // in vectors
    const Unit* from = source_row<Unit>(args, row);
    if constexpr (kUnits == 1) {
      const uint32_t unit = args.pixel_units.divmod(x);
      from += source_of(args.width, x) * int64_t{args.pixel_stride} + unit;
      return words_of(load_vec<Unit, 1>(from));
    } else {
      const auto sources = load_vec<Unit, kSources>(from + source_of(args.width, x * kUnits));
      Vec<Unit, kUnits> vec;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) vec.values[i] = sources.values[i / kRepeat];
      return words_of(vec);
    }
  });
}

// Finds the sources of output pixels one after another. This supports rows that are not whole
// vectors, and sources that are not aligned words.
// kRepeat: neighbouring units with one source. kPixels: pixels have several units. kLong: the row
// is too long for float32 indices or 32-bit offsets.
template <typename Unit, int kRepeat, bool kPixels, bool kLong>
struct Gather {
  static_assert(kRepeat == 1 || !kPixels);

  const ForwardArgs& args;
  uint32_t row;
  int32_t x;
  float center;  // x + width.center
  const Unit* from;

  __device__ Gather(const ForwardArgs& args, uint32_t pixel) : args(args), row(pixel) {
    x = args.out_width.divmod(row);
    center = static_cast<float>(x) + args.width.center;
    from = source_row<Unit>(args, row);
  }

  __device__ __forceinline__ const Unit* source() const {
    if constexpr (kLong) return from + source_of(args.width, x) * int64_t{args.pixel_stride};
    return from + source_at(args.width, center) * args.pixel_stride;
  }

  // Moves on by kRepeat pixels, which divides the width. After the last row it stays there, since a
  // vector may reach past the end of the output.
  __device__ __forceinline__ void advance() {
    if constexpr (kLong) {
      if (++x < args.width.out) return;
    } else {
      center += kRepeat;
      if (center < static_cast<float>(args.width.out)) return;
    }
    x = 0;
    center = args.width.center;
    if (row + 1 < args.rows) from = source_row<Unit>(args, ++row);
  }
};

template <typename Unit, int kRepeat, bool kPixels, bool kLong>
__device__ __forceinline__ Vec<Unit, kVecSize<Unit>> gather(const ForwardArgs& args,
                                                            uint32_t position) {
  constexpr int kUnits = kVecSize<Unit>;
  position += args.first_unit;
  Vec<Unit, kUnits> vec;
  if constexpr (kPixels) {
    uint32_t unit = args.pixel_units.divmod(position);
    Gather<Unit, 1, true, kLong> pixel(args, position);
    const Unit* source = pixel.source();
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      using Offset = std::conditional_t<kLong, int64_t, int32_t>;
      vec.values[i] = source[static_cast<Offset>(unit) * args.unit_stride];
      if (i + 1 < kUnits && ++unit == args.pixel_units.divisor) {
        unit = 0;
        pixel.advance();
        source = pixel.source();
      }
    }
  } else {
    Gather<Unit, kRepeat, false, kLong> pixel(args, position);
#pragma unroll
    for (int i = 0; i < kUnits; i += kRepeat) {
      const Unit value = *pixel.source();
#pragma unroll
      for (int j = 0; j < kRepeat; ++j) vec.values[i + j] = value;
      if (i + kRepeat < kUnits) pixel.advance();
    }
  }
  return vec;
}

template <typename Unit, int kRepeat, bool kPixels, bool kLong>
__global__ void __launch_bounds__(kForwardThreads)
    forward_gather_kernel(const __grid_constant__ ForwardArgs args) {
  constexpr int kUnits = kVecSize<Unit>;
  grid_dependency_wait();
  copy_vecs(args, [&](uint32_t vec) {
    return words_of(gather<Unit, kRepeat, kPixels, kLong>(args, vec * kUnits));
  });
  // The units after the last whole vector, or all units of a small problem.
  const uint32_t rest = args.vecs * kUnits + blockIdx.x * kForwardThreads + threadIdx.x;
  if (rest < args.units) {
    static_cast<Unit*>(args.out)[rest] = gather<Unit, 1, kPixels, kLong>(args, rest).values[0];
  }
}

// A thread writes one vector of columns in kRowsAtOnce rows of an image. Rows with the same source
// row share its loads. Small units need this: in the gather kernel, one load per unit is the limit.
// Example, factor 2:
//
//   output row   the thread's vector
//       y          a a b b c c d d     loads a to d from source row s
//     y + 1        a a b b c c d d     same source row: the same registers
//     y + 2        e e f f g g h h     loads e to h from source row s + 1
//     y + 3        e e f f g g h h     same registers
template <typename Unit>
__global__ void __launch_bounds__(kRowThreads)
    forward_rows_kernel(const __grid_constant__ ForwardArgs args) {
  constexpr int kUnits = kVecSize<Unit>;
  uint32_t group = blockIdx.x * kRowThreads + threadIdx.x;
  if (group >= args.vecs) return;
  const uint32_t vec = args.vecs_per_row.divmod(group);
  uint32_t image = group;
  const uint32_t y = args.row_groups.divmod(image) * kRowsAtOnce;

  uint32_t x = vec * kUnits;
  uint32_t unit = args.pixel_units.divmod(x);
  float center = static_cast<float>(x) + args.width.center;
  int32_t offsets[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    offsets[i] = source_at(args.width, center) * args.pixel_stride +
                 static_cast<int32_t>(unit) * args.unit_stride;
    if (++unit == args.pixel_units.divisor) {
      unit = 0;
      center += 1;
    }
  }
  const uint32_t out_image = image;
  const uint32_t channel = args.channels.divmod(image);
  const Unit* from =
      static_cast<const Unit*>(args.in) + image * args.batch_stride + channel * args.channel_stride;
  uint4 words[kRowsAtOnce];
  int32_t source = -1;
  grid_dependency_wait();
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    const int32_t before = source;
    source = source_at(args.height, static_cast<float>(y + k) + args.height.center);
    if (k > 0 && source == before) {
      words[k] = words[k - 1];
      continue;
    }
    Vec<Unit, kUnits> sources;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      sources.values[i] = (from + source * args.row_stride)[offsets[i]];
    }
    words[k] = words_of(sources);
  }
  launch_dependents();
  const uint32_t height = args.out_height.divisor;
  auto* out = static_cast<uint4*>(args.out) + vec +
              (uint64_t{out_image} * height + y) * args.vecs_per_row.divisor;
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    if (y + k < height) store_once(out + k * args.vecs_per_row.divisor, words[k]);
  }
}

// A thread writes the same vector in every args.group_step-th group of images. The sources of its
// units have the same offsets in all groups, so it finds them once. It loads kGroupsAtOnce groups
// together. A group is the smallest number of images that fills whole vectors.
template <typename Unit>
__global__ void __launch_bounds__(kForwardThreads)
    forward_images_kernel(const __grid_constant__ ForwardArgs args) {
  constexpr int kUnits = kVecSize<Unit>;
  uint32_t group = blockIdx.x * kForwardThreads + threadIdx.x;
  if (group >= args.vecs) return;
  const uint32_t vec = args.vecs_per_group.divmod(group);

  uint32_t row = vec * kUnits;
  uint32_t unit = args.pixel_units.divmod(row);
  const uint32_t x = args.out_width.divmod(row);
  uint32_t image = row;
  uint32_t y = args.out_height.divmod(image);
  float center = static_cast<float>(x) + args.width.center;
  const auto row_offset = [&] {
    return static_cast<int32_t>(image * args.channel_stride +
                                source_of(args.height, y) * args.row_stride);
  };
  int32_t offsets[kUnits];
  int32_t from_row = row_offset();
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    offsets[i] = from_row + source_at(args.width, center) * args.pixel_stride +
                 static_cast<int32_t>(unit) * args.unit_stride;
    if (++unit < args.pixel_units.divisor) continue;
    unit = 0;
    center += 1;
    if (center < static_cast<float>(args.width.out)) continue;
    center = args.width.center;
    if (++y == args.out_height.divisor) {
      y = 0;
      ++image;
    }
    from_row = row_offset();
  }

  const uint64_t group_vecs = args.vecs_per_group.divisor;
  auto* out = static_cast<uint4*>(args.out) + vec;
  const auto from = [&](uint32_t group) {
    uint32_t batch = group * args.group_images;
    const uint32_t channel = args.channels.divmod(batch);
    return static_cast<const Unit*>(args.in) + batch * args.batch_stride +
           channel * args.channel_stride;
  };
  grid_dependency_wait();
  for (; group < args.groups; group += kGroupsAtOnce * args.group_step) {
    uint4 words[kGroupsAtOnce];
#pragma unroll
    for (int k = 0; k < kGroupsAtOnce; ++k) {
      const uint32_t kth_group = group + k * args.group_step;
      const Unit* images = from(kth_group < args.groups ? kth_group : group);
      Vec<Unit, kUnits> sources;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) sources.values[i] = images[offsets[i]];
      words[k] = words_of(sources);
    }
    launch_dependents();
#pragma unroll
    for (int k = 0; k < kGroupsAtOnce; ++k) {
      const uint32_t kth_group = group + k * args.group_step;
      if (kth_group < args.groups) store_once(out + kth_group * group_vecs, words[k]);
    }
  }
}

}  // namespace gpuopt::upsample
