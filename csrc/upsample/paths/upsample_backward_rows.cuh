// Backward kernels that load rows of gradients in vectors. Windows of kFactor columns are summed in
// registers, other windows in shared memory.
#pragma once

#include "common/warp.cuh"
#include "upsample/device/upsample_backward.cuh"

namespace gpuopt::upsample {

// ---------------------------------------------------------------- windows of kFactor columns

// A thread loads a vector of columns of gradients, for kRows rows of the input. Every kFactor
// columns have one sum. A window wider than a vector has whole vectors: args.lanes neighbouring
// threads then add their sums. Example with kFactor = 2 and kRows = 2, for a vector of 4 values and
// row factor 2:
//
//   gradient row 2 y        [g g | g g]    \  sums of input row y
//   gradient row 2 y + 1    [g g | g g]    /    at columns x and x + 1
//   gradient row 2 y + 2    [g g | g g]    \  sums of input row y + 1
//   gradient row 2 y + 3    [g g | g g]    /    at columns x and x + 1
template <typename T, int kFactor, int kRows, bool kOnce>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_factor_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  constexpr int kValues = kVecSize<T>, kSums = kValues / kFactor;
  constexpr int kAtOnce = kColumnLoads / kRows;  // of a window's rows
  uint32_t first = blockIdx.x * kBackwardThreads + threadIdx.x;
  const uint32_t vec = args.vecs.divmod(first);
  first *= kRows;
  // Find the windows of kRows input rows.
  const T* from[kRows];
  int32_t left[kRows], tallest = 0;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    uint32_t image = first + j;
    left[j] = 0;
    if (image >= args.rows) continue;
    const uint32_t y = args.first_row + args.image_rows.divmod(image);
    const Window window = copies_of(args.height, y);
    from[j] = image_at<T>(args, image) + window.begin * args.row_stride + vec * kValues;
    left[j] = window.end - window.begin;
    tallest = max(tallest, left[j]);
  }
  // Adds row after row and column after column, in the order of ATen.
  Sum totals[kRows][kSums] = {};
  for (int32_t y = 0; y < tallest; y += kAtOnce) {
    Vec<T, kValues> loaded[kRows][kAtOnce];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        loaded[j][i] =
            load_valid<T, kValues, kOnce>(from[j] + (y + i) * args.row_stride, y + i < left[j]);
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
    if (row >= args.rows || vec % args.lanes != 0) continue;
    const uint32_t x = vec / args.lanes * kSums;
    T* to = static_cast<T*>(args.out) + uint64_t{row} * width + x;
    Vec<T, kSums> result;
#pragma unroll
    for (int i = 0; i < kSums; ++i) result.values[i] = from_compute<T>(totals[j][i]);
    store_vec(to, result);
  }
}

// ---------------------------------------------------------------- rows

template <typename T, bool kAligned>
__device__ __forceinline__ Vec<T, kVecSize<T>> load_columns(const BackwardArgs& args, const T* from,
                                                            bool valid) {
  constexpr int kValues = kVecSize<T>;
  if constexpr (kAligned) {
    return load_valid<T, kValues, false>(from, valid);
  } else {
    Vec<T, kValues> vec = {};
    if (!valid) return vec;
    // Values after the end of the row are loaded where memory allows, and not used.
    const auto* end = static_cast<const T*>(args.in_end);
    const auto available = static_cast<uint32_t>(min(end - from, int64_t{2 * kValues}));
    if (available >= kValues) return load_vec_unaligned(from, available);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (i < available) vec.values[i] = from[i];
    }
    return vec;
  }
}

// For pixels with a small number of channels. First, the rows of each window are summed: a thread
// sums a vector of columns, for two input rows at once. Then, in shared memory, the columns of each
// input pixel are summed.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_rows_kernel(const __grid_constant__ BackwardArgs args) {
  using Sum = compute_t<T>;
  constexpr int kValues = kVecSize<T>;
  extern __shared__ uint4 shared[];
  Sum* sums = reinterpret_cast<Sum*>(shared);
  const uint32_t vecs = args.vecs.divisor, splits = args.split_count.divisor;
  const uint32_t pitch = vecs * kValues, block_rows = 2 * args.block_row_pairs;
  auto* window_ends = reinterpret_cast<int32_t*>(sums + splits * block_rows * pitch);

  uint32_t block = blockIdx.x;
  // Find the columns of the tile and the borders of their windows.
  const uint32_t pixel_units = args.pixel_units.divisor;
  const uint32_t first_column = args.tiles.divmod(block) * args.tile_columns;
  const uint32_t columns = min(args.tile_columns, args.in_width.divisor - first_column);
  uint32_t begin = first_copy_of(args.width, first_column) * pixel_units;
  if (kAligned) begin = begin / kValues * kValues;
  const uint32_t end = first_copy_of(args.width, first_column + columns) * pixel_units;
  for (uint32_t i = threadIdx.x; i <= columns; i += kBackwardThreads) {
    window_ends[i] = first_copy_of(args.width, first_column + i) * pixel_units - begin;
  }

  // Sum the rows of each window, by vectors, into shared memory.
  uint32_t own_row = threadIdx.x;
  const uint32_t vec = args.vecs.divmod(own_row);
  const uint32_t split = args.split_count.divmod(own_row);
  if (own_row < args.block_row_pairs) {
    const uint32_t column = begin + vec * kValues;
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
      Vec<T, kValues> loaded[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t own = y + i % 2;
        loaded[i] =
            load_columns<T, kAligned>(args, from[i / 2] + own * args.row_stride, own < left[i / 2]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulate(totals[i / 2], loaded[i], y + i % 2 < left[i / 2]);
    }
    constexpr int kWords = kVecSize<Sum>;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Sum* to =
          sums + (split * block_rows + j * args.block_row_pairs + own_row) * pitch + vec * kValues;
#pragma unroll
      for (int i = 0; i < kValues; i += kWords) {
        Vec<Sum, kWords> words;
#pragma unroll
        for (int w = 0; w < kWords; ++w) words.values[w] = totals[j][i + w];
        store_vec(to + i, words);
      }
    }
  }
  __syncthreads();

  // Threads loop over the results of the tile. args.lanes neighbouring threads share a result.
  const uint32_t lanes = args.lanes, lane = threadIdx.x % lanes;
  const uint32_t row_units = columns * pixel_units, step = kBackwardThreads / lanes;
  const FastDiv& divide = columns == args.tile_columns ? args.tile_units : args.last_tile_units;
  uint32_t row = threadIdx.x / lanes;
  uint32_t position = divide.divmod(row);
  uint32_t step_rows = step;
  const uint32_t step_positions = divide.divmod(step_rows);
  const uint32_t first_row = block * block_rows;
  const uint32_t rows = min(block_rows, args.rows - first_row);
  T* out = static_cast<T*>(args.out) + uint64_t{first_row} * (args.in_width.divisor * pixel_units) +
           first_column * pixel_units;
  const uint32_t out_pitch = args.in_width.divisor * pixel_units;
  const uint32_t rounds = (rows * row_units + step - 1) / step;
#pragma unroll 1
  for (uint32_t round = 0; round < rounds; ++round) {
    uint32_t x = position, unit = 0;
    if (pixel_units > 1) unit = args.pixel_units.divmod(x);
    Sum total = 0;
    if (row < rows) {
      const int32_t to = window_ends[x + 1], by = lanes * pixel_units;
      const Sum* own = sums + row * pitch;
      int32_t c = window_ends[x] + unit + lane * pixel_units;
#pragma unroll 1
      for (uint32_t s = 0; s < splits; ++s, own += block_rows * pitch) {
        // Most windows have at most three columns per thread, and a loop takes longer.
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
    if (row < rows && lane == 0) out[row * out_pitch + position] = from_compute<T>(total);
    position += step_positions;
    row += step_rows;
    if (position >= row_units) {
      position -= row_units;
      ++row;
    }
  }
}

}  // namespace gpuopt::upsample
