// How a block copies a tile of columns to shared memory, if units are single values. Plain host
// C++.
//
// A tile has three axes: rows (0) and two dimensions of columns (1, 2). Each tensor lies in memory
// in an order of its own: one may be contiguous along the rows, and the other along the columns. A
// block copies segments along the innermost axis of a tensor, in whole aligned vectors, wherever
// segments begin and end:
//
//   memory         | .  .  .  a0 | a1 a2 a3 a4 | a5 .  .  .  |  ...  | .  .  b0 b1 | b2 b3 b4 b5 |
//   shared memory  | x  x  x  a0 | a1 a2 a3 a4 | a5 x  x  x  | x  x  b0 b1 | b2 b3 b4 b5 |
//
// Steps in shared memory and strides in memory are equal modulo the values of a vector. So every
// value has the same position in its vector in both, and positions in shared memory are linear in
// the indices of a tile.
#pragma once

#include <algorithm>

#include "scan/scan_problem.h"

namespace gpuopt::scan {

// An axis of a tile: its size in a tile, and the dimension along which tiles lie.
struct TileAxis {
  int64_t size = 1;
  Dim dim;
};

namespace detail {

// Plans the copies of tensor k. `values`: of a vector, 1 if values are converted one by one.
// `item`: bytes of a value in shared memory. `outer`: the dimensions beside the axes.
inline TileTensor make_tile_tensor(const Problem& problem, const TileAxis (&axes)[3],
                                   const Dim* outer, int num_outer, int k, int64_t values,
                                   int64_t item) {
  TileTensor tensor;
  int order[3] = {0, 1, 2};
  const auto stride = [&](int axis) { return axes[axis].dim.stride(k); };
  const auto key = [&](int axis) {
    return axes[axis].dim.size == 1 ? INT64_MAX : memory_order(stride(axis));
  };
  std::stable_sort(order, order + 3, [&](int a, int b) { return key(a) < key(b); });
  const int inner = order[0], middle = order[1], last = order[2];
  tensor.in_vecs = values > 1 && stride(inner) == 1 && axes[inner].dim.size > 1;
  const int64_t n = tensor.in_vecs ? values : 1;
  const auto is_whole = [&](int axis) { return axes[axis].size >= axes[axis].dim.size; };

  // Whether all segments begin at a vector.
  const bool from_end = problem.reverse && inner == 0 && !is_whole(0);
  bool aligned = is_aligned(problem.data(k), problem.item(k) * n) && stride(middle) % n == 0 &&
                 stride(last) % n == 0 && (axes[inner].size % n == 0 || is_whole(inner)) &&
                 (!from_end || axes[inner].dim.size % n == 0);
  for (int a = 0; a < 3; ++a) tensor.span += (axes[a].dim.size - 1) * stride(a);
  for (int d = 0; d < num_outer; ++d) {
    aligned = aligned && outer[d].stride(k) % n == 0;
    tensor.span += (outer[d].size - 1) * outer[d].stride(k);
  }
  ++tensor.span;
  tensor.reads_vecs = tensor.in_vecs && inner == 0 && aligned && axes[0].dim.size % n == 0;
  // Segments that lie behind each other are one. Aligned ones stay apart: with a gap, threads that
  // read neighbouring segments use different banks.
  tensor.is_flat =
      tensor.in_vecs && !aligned && is_whole(inner) && stride(middle) == axes[inner].dim.size;

  const int64_t gap = aligned ? 0 : n - 1;
  // The smallest odd number of vectors, or about so, that covers a segment and is congruent.
  const auto step_over = [&](int64_t covered, int axis) {
    const int64_t least = covered + gap;
    const int64_t step = least + ((stride(axis) - least) % n + n) % n;
    return step / n % 2 == 0 ? step + n : step;
  };
  int64_t covered = axes[inner].size, length = covered;
  const int64_t middle_step = tensor.is_flat ? stride(middle) : step_over(covered, middle);
  covered += (axes[middle].size - 1) * middle_step;
  if (tensor.is_flat) length = covered;
  const int64_t last_step = step_over(covered, last);
  covered += (axes[last].size - 1) * last_step;
  for (int a = 0; a < 3; ++a) {
    tensor.strides[a] = stride(a);
    tensor.order[a] = static_cast<uint8_t>(order[a]);
  }
  tensor.steps[inner] = 1;
  tensor.steps[middle] = static_cast<uint32_t>(middle_step);
  tensor.steps[last] = static_cast<uint32_t>(last_step);
  tensor.vecs = divide_by(ceil_div(length + gap, n));
  tensor.segments = divide_by(tensor.is_flat ? 1 : axes[middle].size);
  // A tile begins inside a vector, and ends inside one.
  const int64_t bytes = (covered + 2 * (n - 1)) * item;
  tensor.bytes = static_cast<uint32_t>(ceil_div<int64_t>(bytes, kAccessBytes) * kAccessBytes);
  return tensor;
}

}  // namespace detail
}  // namespace gpuopt::scan
