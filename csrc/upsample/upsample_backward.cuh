// Backward kernels: every input pixel gathers the gradients of its copies, a window of output
// pixels, in a fixed order and without atomics.
#pragma once

#include "common/types.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "upsample/upsample_plan.h"

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
  FastDiv packs;        // of a row of gradients, or of a tile of it
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
__device__ __forceinline__ Pack<T, kElements> load_valid(const T* aligned, bool valid) {
  if constexpr (sizeof(T) * kElements == kPackBytes) {
    return pack_of<T>(load_16_bytes(aligned, valid, kOnce));
  } else if constexpr (sizeof(T) > 1) {
    using Word =
        std::conditional_t<sizeof(T) * kElements == 8, uint64_t,
                           std::conditional_t<sizeof(T) * kElements == 4, uint32_t, uint16_t>>;
    const Word word = load_word<Word>(aligned, valid);
    Pack<T, kElements> pack;
    memcpy(&pack, &word, sizeof(pack));
    return pack;
  } else {
    Pack<T, kElements> pack;
    if (valid) pack = load_pack<T, kElements>(aligned);
    return pack;
  }
}

template <typename T, int kElements>
__device__ __forceinline__ void accumulate(compute_t<T> (&sums)[kElements],
                                           const Pack<T, kElements>& pack, bool valid) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (valid) sums[i] += to_compute(pack.values[i]);
  }
}

// ---------------------------------------------------------------- windows of kFactor columns

template <typename T, bool kAligned, bool kOnce>
__device__ __forceinline__ Pack<T, kPackSize<T>> load_columns(const BackwardArgs& args,
                                                              const T* from, bool valid) {
  constexpr int kValues = kPackSize<T>;
  if constexpr (kAligned) {
    return load_valid<T, kValues, kOnce>(from, valid);
  } else {
    Pack<T, kValues> pack = {};
    if (!valid) return pack;
    // Columns behind a row's last are read, and not used, where there is memory.
    const auto* end = static_cast<const T*>(args.in_end);
    const auto available = static_cast<uint32_t>(min(end - from, int64_t{2 * kValues}));
    if (available >= kValues) return load_pack_unaligned(from, available);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (i < available) pack.values[i] = from[i];
    }
    return pack;
  }
}

// A pack of columns of gradients to a thread, for kRows rows of the input. kFactor columns have one
// sum, or, where a pack has fewer, the columns of several threads side by side do: args.lanes.
template <typename T, int kFactor, int kRows, bool kAligned, bool kOnce>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_factor_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  constexpr int kValues = kPackSize<T>, kSums = kValues / kFactor;
  constexpr int kAtOnce = kColumnLoads / kRows;  // of a window's rows
  uint32_t first = blockIdx.x * kBackwardThreads + threadIdx.x;
  const uint32_t pack = args.packs.divmod(first);
  first *= kRows;
  const T* from[kRows];
  int32_t left[kRows], tallest = 0;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    uint32_t image = first + j;
    left[j] = 0;
    if (image >= args.rows) continue;
    const uint32_t y = args.first_row + args.image_rows.divmod(image);
    const Window window = copies_of(args.height, y);
    from[j] = image_at<T>(args, image) + window.begin * args.row_stride + pack * kValues;
    left[j] = window.end - window.begin;
    tallest = max(tallest, left[j]);
  }
  // Row after row and column after column, as ATen adds them.
  Sum totals[kRows][kSums] = {};
  for (int32_t y = 0; y < tallest; y += kAtOnce) {
    Pack<T, kValues> loaded[kRows][kAtOnce];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        loaded[j][i] = load_columns<T, kAligned, kOnce>(args, from[j] + (y + i) * args.row_stride,
                                                        y + i < left[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (y + i >= left[j]) continue;
#pragma unroll
        for (int c = 0; c < kValues; ++c) {
          totals[j][c / kFactor] += to_compute(loaded[j][i].values[c]);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    if constexpr (kSums == 1) {
      for (uint32_t mask = 1; mask < args.lanes; mask *= 2) {
        totals[j][0] += shuffle_xor(totals[j][0], mask);
      }
    }
    const uint32_t row = first + j, width = args.in_width.divisor;
    if (row >= args.rows || pack % args.lanes != 0) continue;
    const uint32_t x = pack / args.lanes * kSums;
    T* to = static_cast<T*>(args.out) + uint64_t{row} * width + x;
    Pack<T, kSums> result;
#pragma unroll
    for (int i = 0; i < kSums; ++i) result.values[i] = from_compute<T>(totals[j][i]);
    if constexpr (kAligned) {
      store_pack(to, result);
    } else {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        if (x + i < width) to[i] = result.values[i];
      }
    }
  }
}

// ---------------------------------------------------------------- rows

// Rows of pixels of few channels: first the rows of each input row's window are summed, a pack of
// their columns to a thread and two input rows at once, then in shared memory the columns of each
// input pixel.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_rows_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  constexpr int kValues = kPackSize<T>;
  extern __shared__ uint4 shared[];
  Sum* sums = reinterpret_cast<Sum*>(shared);
  const uint32_t packs = args.packs.divisor, splits = args.split_count.divisor;
  const uint32_t pitch = packs * kValues, block_rows = 2 * args.block_row_pairs;
  auto* window_ends = reinterpret_cast<int32_t*>(sums + splits * block_rows * pitch);

  uint32_t block = blockIdx.x;
  const uint32_t pixel_units = args.pixel_units.divisor;
  const uint32_t first_column = args.tiles.divmod(block) * args.tile_columns;
  const uint32_t columns = min(args.tile_columns, args.in_width.divisor - first_column);
  uint32_t begin = first_copy_of(args.width, first_column) * pixel_units;
  if (kAligned) begin = begin / kValues * kValues;
  const uint32_t end = first_copy_of(args.width, first_column + columns) * pixel_units;
  for (uint32_t i = threadIdx.x; i <= columns; i += kBackwardThreads) {
    window_ends[i] = first_copy_of(args.width, first_column + i) * pixel_units - begin;
  }

  uint32_t own_row = threadIdx.x;
  const uint32_t pack = args.packs.divmod(own_row);
  const uint32_t split = args.split_count.divmod(own_row);
  if (own_row < args.block_row_pairs) {
    const uint32_t column = begin + pack * kValues;
    const T* from[2];
    int32_t left[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t image = block * block_rows + j * args.block_row_pairs + own_row;
      if (image >= args.rows || column >= end) continue;
      const uint32_t y = args.first_row + args.image_rows.divmod(image);
      const Window window = copies_of(args.height, y);
      from[j] = image_at<T>(args, image) + window.begin * args.row_stride + column;
      left[j] = window.end - window.begin;
    }
    Sum totals[2][kValues] = {};
    for (int32_t y = 2 * split; y < max(left[0], left[1]); y += 2 * splits) {
      Pack<T, kValues> loaded[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t own = y + i % 2;
        loaded[i] = load_columns<T, kAligned, false>(args, from[i / 2] + own * args.row_stride,
                                                     own < left[i / 2]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulate(totals[i / 2], loaded[i], y + i % 2 < left[i / 2]);
    }
    constexpr int kWords = kPackSize<Sum>;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Sum* to =
          sums + (split * block_rows + j * args.block_row_pairs + own_row) * pitch + pack * kValues;
#pragma unroll
      for (int i = 0; i < kValues; i += kWords) {
        Pack<Sum, kWords> words;
#pragma unroll
        for (int w = 0; w < kWords; ++w) words.values[w] = totals[j][i + w];
        store_pack(to + i, words);
      }
    }
  }
  __syncthreads();

  // Threads walk over the results of the tile; args.lanes of them share one.
  const uint32_t lanes = args.lanes, lane = threadIdx.x % lanes;
  const uint32_t row_units = columns * pixel_units, step = kBackwardThreads / lanes;
  const FastDiv& divide = columns == args.tile_columns ? args.tile_units : args.last_tile_units;
  uint32_t row = threadIdx.x / lanes;
  uint32_t place = divide.divmod(row);
  uint32_t step_rows = step;
  const uint32_t step_places = divide.divmod(step_rows);
  const uint32_t first_row = block * block_rows;
  const uint32_t rows = min(block_rows, args.rows - first_row);
  T* out = static_cast<T*>(args.out) + uint64_t{first_row} * (args.in_width.divisor * pixel_units) +
           first_column * pixel_units;
  const uint32_t out_pitch = args.in_width.divisor * pixel_units;
  const uint32_t rounds = (rows * row_units + step - 1) / step;
#pragma unroll 1
  for (uint32_t round = 0; round < rounds; ++round) {
    uint32_t x = place, unit = 0;
    if (pixel_units > 1) unit = args.pixel_units.divmod(x);
    Sum total = 0;
    if (row < rows) {
      const int32_t to = window_ends[x + 1], by = lanes * pixel_units;
      const Sum* own = sums + row * pitch;
      int32_t c = window_ends[x] + unit + lane * pixel_units;
#pragma unroll 1
      for (uint32_t s = 0; s < splits; ++s, own += block_rows * pitch) {
        // Most windows are this narrow, and a loop takes longer.
        if (c < to) total += own[c];
        if (c + by < to) total += own[c + by];
        if (c + 2 * by < to) total += own[c + 2 * by];
#pragma unroll 1
        for (int32_t rest = c + 3 * by; rest < to; rest += by) total += own[rest];
      }
    }
    if (lanes > 1) {
      for (uint32_t mask = 1; mask < lanes; mask *= 2) total += shuffle_xor(total, mask);
    }
    if (row < rows && lane == 0) out[row * out_pitch + place] = from_compute<T>(total);
    place += step_places;
    row += step_rows;
    if (place >= row_units) {
      place -= row_units;
      ++row;
    }
  }
}

// ---------------------------------------------------------------- pixels

// Where a unit of an input pixel is.
struct Place {
  uint32_t image, y, x, unit;
};

__device__ __forceinline__ Place place_of(const BackwardArgs& args, uint32_t place) {
  Place own;
  own.image = place;
  own.unit = args.pixel_units.divmod(own.image);
  own.x = args.in_width.divmod(own.image);
  own.y = args.first_row + args.image_rows.divmod(own.image);
  return own;
}

template <typename T, int kElements>
__device__ __forceinline__ void store_sums(const BackwardArgs& args, uint32_t place,
                                           const compute_t<T> (&sums)[kElements]) {
  Pack<T, kElements> result;
#pragma unroll
  for (int i = 0; i < kElements; ++i) result.values[i] = from_compute<T>(sums[i]);
  store_pack(static_cast<T*>(args.out) + uint64_t{place} * kElements, result);
}

// The bits of `value` that are in `mask`: all, or none, which is 0.
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

// How the pixels of a window are loaded and added. Packs are only loaded where they are in the
// window. With one value to a load the instructions around each are the limit (71 to 76% of the
// issue slots against 22% of the memory pipes, by ncu): it is always loaded, from the nearest pixel
// that is in the window or, where none is, in the image, and masked.
template <typename T, int kElements, int kMost, bool kOnce>
struct WindowLoads {
  int64_t offset;
  bool row_valid[kMost], column_valid[kMost];

  __device__ WindowLoads(const BackwardArgs& args, const Place& own, Window rows, Window columns) {
    offset = rows.begin * args.row_stride + columns.begin * args.pixel_stride +
             own.unit * args.unit_stride;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      row_valid[i] = rows.end - rows.begin > i;
      column_valid[i] = columns.end - columns.begin > i;
    }
  }

  __device__ __forceinline__ Pack<T, kElements> load(const BackwardArgs& args, const T* image,
                                                     int y, int x, bool valid) const {
    const T* from = image + offset + y * args.row_stride + x * args.pixel_stride;
    return load_valid<T, kElements, kOnce>(from, valid && row_valid[y] && column_valid[x]);
  }

  __device__ __forceinline__ void add(compute_t<T> (&sums)[kElements],
                                      const Pack<T, kElements>& pack, int y, int x) const {
    accumulate(sums, pack, row_valid[y] && column_valid[x]);
  }
};

template <typename T, int kMost, bool kOnce>
struct WindowLoads<T, 1, kMost, kOnce> {
  int32_t offsets[kMost][kMost];
  uint32_t rows_in[kMost], columns_in[kMost];

  __device__ WindowLoads(const BackwardArgs& args, const Place& own, Window rows, Window columns) {
    int32_t row_offsets[kMost], column_offsets[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int32_t y = max(min(rows.begin + i, rows.end - 1), 0);
      const int32_t x = max(min(columns.begin + i, columns.end - 1), 0);
      row_offsets[i] = y * static_cast<int32_t>(args.row_stride);
      column_offsets[i] = x * static_cast<int32_t>(args.pixel_stride) +
                          static_cast<int32_t>(own.unit * args.unit_stride);
      rows_in[i] = rows.end - rows.begin > i ? 0xffffffffu : 0;
      columns_in[i] = columns.end - columns.begin > i ? 0xffffffffu : 0;
    }
#pragma unroll
    for (int y = 0; y < kMost; ++y) {
#pragma unroll
      for (int x = 0; x < kMost; ++x) offsets[y][x] = row_offsets[y] + column_offsets[x];
    }
  }

  __device__ __forceinline__ Pack<T, 1> load(const BackwardArgs&, const T* image, int y, int x,
                                             bool) const {
    return load_pack<T, 1>(image + offsets[y][x]);
  }

  __device__ __forceinline__ void add(compute_t<T> (&sums)[1], const Pack<T, 1>& pack, int y,
                                      int x) const {
    sums[0] += masked(to_compute(pack.values[0]), rows_in[y] & columns_in[x]);
  }
};

// A unit of kElements values of an input pixel to a thread, in every args.image_step-th image,
// kAtOnce of them together: windows are the same in all. None is larger than kMost x kMost, and all
// of a window's values are loaded at once.
template <typename T, int kElements, int kMost, int kAtOnce, bool kOnce>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_windows_kernel(const __grid_constant__ BackwardArgs args) {
  uint32_t place = blockIdx.x * kBackwardThreads + threadIdx.x;
  if (place >= args.threads) return;
  const Place own = place_of(args, place);
  const WindowLoads<T, kElements, kMost, kOnce> window(args, own, copies_of(args.height, own.y),
                                                       copies_of(args.width, own.x));
  uint32_t image = own.image;
  do {
    Pack<T, kElements> loaded[kAtOnce][kMost][kMost];
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
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (k > 0 && image >= args.images) break;
      compute_t<T> sums[kElements] = {};
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) window.add(sums, loaded[k][y][x], y, x);
      }
      store_sums<T>(args, place, sums);
      image += args.image_step;
      place += args.threads;
    }
  } while (image < args.images);
}

// The same for windows of any size; args.splits threads of a block share one's pixels.
template <typename T, int kElements, bool kOnce>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_pixels_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  __shared__ Sum parts[kBackwardThreads * kElements];
  uint32_t split = threadIdx.x;
  const uint32_t own_unit = args.block_units.divmod(split);
  const uint32_t place = blockIdx.x * args.block_units.divisor + own_unit;
  const uint32_t splits = args.split_count.divisor;
  Sum sums[kElements] = {};
  if (place < args.units) {
    const Place own = place_of(args, place);
    const Window rows = copies_of(args.height, own.y), columns = copies_of(args.width, own.x);
    const T* image = image_at<T>(args, own.image) + own.unit * args.unit_stride;
    const int32_t width = columns.end - columns.begin;
    // Every splits-th pixel of the window, row after row.
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
      Pack<T, kElements> loaded[kPixelLoads];
#pragma unroll
      for (int i = 0; i < kPixelLoads; ++i) {
        loaded[i] = load_valid<T, kElements, kOnce>(from[i], valid[i]);
      }
#pragma unroll
      for (int i = 0; i < kPixelLoads; ++i) accumulate(sums, loaded[i], valid[i]);
    }
  }
  if (splits > 1) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) parts[threadIdx.x * kElements + i] = sums[i];
    __syncthreads();
    if (split > 0) return;
    for (uint32_t s = 1; s < splits; ++s) {
      const uint32_t thread = s * args.block_units.divisor + own_unit;
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[i] += parts[thread * kElements + i];
    }
  }
  if (place < args.units) store_sums<T>(args, place, sums);
}

}  // namespace gpuopt::upsample
