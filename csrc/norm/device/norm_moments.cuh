// Mean and squared deviations of values that come in tiles. They are merged, because the difference
// of a mean square and a squared mean would lose all digits of a small variance.
#pragma once

#include "norm/device/norm_group.cuh"

namespace gpuopt::norm {

template <typename C>
struct Moments {
  C count = 0, mean = 0;
  C squares = 0;  // the sum of squared deviations from the mean

  // T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", 1983.
  __device__ __forceinline__ void add(const Moments& other) {
    if (other.count == 0) return;
    const C all = count + other.count, delta = other.mean - mean, share = other.count / all;
    mean += delta * share;
    squares += other.squares + delta * delta * count * share;
    count = all;
  }
};

// Merges the moments of all threads of a block, which have `count` values together. All threads get
// the same bits. `shared` has 2 * kMaxWarps values.
template <typename C>
__device__ __forceinline__ Moments<C> merge(const Group& block, Moments<C> part, C count,
                                            C* shared) {
  C sum[1] = {part.count * part.mean};
  add_up(block, sum, shared);
  Moments<C> all{count, sum[0] / count};
  const C delta = part.mean - all.mean;
  C squares[1] = {part.squares + part.count * delta * delta};
  add_up(block, squares, shared + kMaxWarps);
  all.squares = squares[0];
  return all;
}

}  // namespace gpuopt::norm
