// The backward kernel for windows of kFactor columns, which sums vectors of gradients in registers.
#pragma once

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "upsample/device/upsample_backward.cuh"

namespace gpuopt::upsample {

// A thread loads a vector of columns of gradients, for kRows rows of the input. Every kFactor
// columns have one sum. A window wider than a vector has whole vectors: args.lanes neighbouring
// threads then add their sums. Example with kFactor = 2 and kRows = 2, for a vector of 4 values and
// row factor 2:
//
//   gradient row 2 y        [g g | g g]    \  sums of input row y
//   gradient row 2 y + 1    [g g | g g]    /    at columns x and x + 1
//   gradient row 2 y + 2    [g g | g g]    \  sums of input row y + 1
//   gradient row 2 y + 3    [g g | g g]    /    at columns x and x + 1
template <typename T, int kFactor, int kRows>
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
  grid_dependency_wait();
  for (int32_t y = 0; y < tallest; y += kAtOnce) {
    Vec<T, kValues> loaded[kRows][kAtOnce];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        loaded[j][i] = load_valid<T, kValues>(from[j] + (y + i) * args.row_stride, y + i < left[j]);
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
  launch_dependents();
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

}  // namespace gpuopt::upsample
