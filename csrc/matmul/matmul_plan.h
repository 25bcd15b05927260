// The plan of a 3xTF32 product, and the decision between it and cuBLAS. Plain host C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "common/device.h"
#include "common/index.h"
#include "matmul/matmul.h"

namespace gpuopt::matmul {

// Times of an H200 (benchmarks/results/nvidia-h200/ladder/matmul.json): three_tf32_wgmma takes
// 1250 us for 4096^3, which is 8 tiles of 128 slices for each SM, and torch.mm 2760 us. The times
// of a tile and of a launch, and the rate of memory, are estimates.
constexpr double kSliceTime = 1.22, kTileTime = 4, kLaunchTime = 3;       // us
constexpr double kCublasRate = 51e6, kCublasTime = 4, kMemoryRate = 3e6;  // MACs x 2, us, bytes

// Whether rows or matrices so many elements apart begin at multiples of 16 bytes. Bulk copies have
// 40 bits for the distance in bytes.
constexpr bool is_pitch(int64_t stride) {
  return stride > 0 && stride % 4 == 0 && stride < int64_t{1} << 38;
}

// Whether the values of a row are neighbours, and rows fit bulk copies.
inline bool has_rows(const Operand& x, int64_t rows, int64_t columns) {
  return (columns == 1 || x.column_stride == 1) && (rows == 1 || is_pitch(x.row_stride));
}

// Whether bulk copies can read the matrices, by rows or by columns.
inline bool is_readable(const Operand& x, int64_t rows, int64_t columns) {
  const Operand transposed{x.data, x.column_stride, x.row_stride, x.batch_stride};
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
         (has_rows(x, rows, columns) || has_rows(transposed, columns, rows)) &&
         (x.batch_stride == 0 || is_pitch(x.batch_stride));
}

inline double bytes_of(const Problem& p) {
  const double a = double(p.m) * p.k * (p.a.batch_stride == 0 ? 1 : p.batch);
  const double b = double(p.k) * p.n * (p.b.batch_stride == 0 ? 1 : p.batch);
  return 4 * (a + b + double(p.m) * p.n * p.batch);
}

// The least time of cuBLAS in float32, in us. It is longer where tiles don't divide the problem.
inline double cublas_time(const Problem& p) {
  const double products = 2.0 * p.m * p.n * p.k * p.batch;
  return kCublasTime + std::max(products / kCublasRate, bytes_of(p) / kMemoryRate);
}

// The time of a plan, in us: a block has one tile of one part, and an SM one block at a time.
inline double time_of(const Plan& plan, const Device& device) {
  const Problem& p = plan.problem;
  const double blocks =
      double(ceil_div(p.m, kTileSize)) * ceil_div(p.n, kTileSize) * plan.parts * p.batch;
  const double rounds = ceil_div(static_cast<int64_t>(blocks), int64_t{device.sms});
  const double tiles = rounds * (kTileTime + kSliceTime * ceil_div(plan.part_k, kSliceK));
  const double outputs = 4.0 * p.m * p.n * p.batch;
  const double sums = plan.parts == 1 ? 0 : kLaunchTime + (plan.parts + 1) * outputs / kMemoryRate;
  return kLaunchTime + std::max(tiles, bytes_of(p) / kMemoryRate) + sums;
}

inline bool is_faster_than_cublas(const Plan& plan, const Device& device) {
  return time_of(plan, device) < cublas_time(plan.problem);
}

// Nothing if the problem has too many blocks for a grid. The number of parts is the one with the
// least time. Each part has at least four slices.
inline std::optional<Plan> make_plan(const Problem& problem, const Device& device) {
  const int64_t tiles = int64_t{ceil_div(problem.m, kTileSize)} * ceil_div(problem.n, kTileSize);
  if (problem.batch > std::numeric_limits<int32_t>::max() / tiles) return std::nullopt;
  const int64_t blocks = tiles * problem.batch;
  Plan best{problem, 1, problem.k};
  double least = time_of(best, device);
  const int32_t slices = ceil_div(problem.k, kSliceK);
  // More parts than these leave SMs without a block in no round but the last.
  const int64_t most = std::min<int64_t>(slices / 4, 4 * int64_t{device.sms} / blocks);
  for (int32_t parts = 2; parts <= most; ++parts) {
    const int32_t part_k = ceil_div(slices, parts) * kSliceK;
    const Plan plan{problem, ceil_div(problem.k, part_k), part_k};
    const double time = time_of(plan, device);
    if (time < least) {
      best = plan;
      least = time;
    }
  }
  return best;
}

}  // namespace gpuopt::matmul
