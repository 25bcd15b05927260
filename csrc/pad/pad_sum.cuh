// The gradients of padding: copies of what was not padded, and sums where an element was repeated.
#pragma once

#include "common/launch.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"
#include "pad/pad_copy.cuh"
#include "pad/pad_sum_plan.h"

namespace gpuopt::pad {

// The indices of the padded tensor that map to one index are numbered. Some numbers may stand for
// none.
__device__ __forceinline__ int count_copies(Mode mode, const SumDim& dim, int i) {
  if (i >= dim.single_first && i < dim.single_last) return 1;
  if (mode != Mode::kReplicate) return 3;
  const int begin = i == 0 ? 0 : max(i + dim.before, 0);
  const int last = i + 1 == dim.size.divisor ? dim.padded - 1 : min(i + dim.before, dim.padded - 1);
  return max(last + 1 - begin, 0);
}

// Returns a negative number for none.
__device__ __forceinline__ int copy_of(Mode mode, const SumDim& dim, int i, int k) {
  const int middle = i + dim.before, size = static_cast<int>(dim.size.divisor);
  if (mode == Mode::kReplicate) return (i == 0 ? 0 : max(middle, 0)) + k;
  int found = middle;
  if (mode == Mode::kCircular && k > 0) {
    found = k == 1 ? middle - size : middle + size;
  } else if (k == 1) {
    found = i > 0 ? dim.before - i : -1;
  } else if (k == 2) {
    found = i < size - 1 ? dim.before + 2 * (size - 1) - i : -1;
  }
  return found < dim.padded ? found : -1;
}

// Calls f with the offset of each row of the gradient that maps to a row of `out`, in a fixed
// order.
template <int d, typename F>
__device__ __forceinline__ void for_each_row(const SumArgs& args, const int (&index)[kMaxSumDims],
                                             int offset, F f) {
  if constexpr (d == 0) {
    f(offset);
  } else {
    const int count = count_copies(args.mode, args.dims[d], index[d]);
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const int copy = copy_of(args.mode, args.dims[d], index[d], k);
      if (copy >= 0) for_each_row<d - 1>(args, index, offset + copy * args.dims[d].stride, f);
    }
  }
}

// A row of `out`: its indices, and the number of rows of the gradient that may map to it.
struct RowIndex {
  int index[kMaxSumDims] = {};
  int copies = 1;

  __device__ __forceinline__ RowIndex(const SumArgs& args, uint32_t row) {
#pragma unroll
    for (int d = 1; d < kMaxSumDims; ++d) {
      index[d] = static_cast<int>(args.dims[d].size.divmod(row));
      copies *= count_copies(args.mode, args.dims[d], index[d]);
    }
  }
};

// The sum of all copies of an element except for the border of a replication.
template <typename T>
__device__ __forceinline__ compute_t<T> sum_of(const SumArgs& args, const RowIndex& row, int i) {
  const SumDim& inner = args.dims[0];
  const bool replicates = args.mode == Mode::kReplicate;
  compute_t<T> sum = 0;
  for_each_row<kMaxSumDims - 1>(args, row.index, 0, [&](int offset) {
    T values[3] = {};  // all loads are in flight before one is added
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      int at = replicates ? i + inner.before : copy_of(args.mode, inner, i, k);
      if (k > 0 && replicates) at = -1;
      const bool valid = 0 <= at && at < inner.padded;
      if (valid) values[k] = static_cast<const T*>(args.grad)[offset + at];
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) sum += to_compute(values[k]);
  });
  return sum;
}

// A part of the border of a replication: every `step`-th element from `begin` on.
template <typename T>
__device__ __forceinline__ compute_t<T> sum_of_border(const SumArgs& args, const RowIndex& row,
                                                      int begin, int end, int step) {
  compute_t<T> sum = 0;
  if (begin < end) {
    for_each_row<kMaxSumDims - 1>(args, row.index, 0, [&](int offset) {
      for (int i = begin; i < end; i += step) {
        sum += to_compute(static_cast<const T*>(args.grad)[offset + i]);
      }
    });
  }
  return sum;
}

// Replaces the elements of a tile that have several copies, or may have. A group of threads has
// both ends of a row. Rows to which several rows of the gradient map are noted first, and then all
// threads share their elements.
template <typename T>
struct Sums {
  using Args = SumArgs;

  static __device__ __forceinline__ void apply(const SumArgs& args, const Tile& tile,
                                               char* shared) {
    __shared__ uint32_t noted[kNotedRows];
    __shared__ uint32_t count;
#pragma unroll 1
    for (int begin = 0; begin <= tile.rows; begin += kNotedRows) {
      if (threadIdx.x == 0) count = 0;
      __syncthreads();
      add_ends(args, tile, shared, begin, noted, &count);
      __syncthreads();
      // A tile within a row has a part of it.
      const bool is_part = tile.rows == 0;
      const uint32_t size = is_part ? tile.end / kItem : args.dims[0].size.divisor;
      for (uint32_t k = threadIdx.x; k < count * size; k += kCopyThreads) {
        uint32_t number = k, i = k + tile.position / kItem;
        if (!is_part) i = args.dims[0].size.divmod(number);
        const uint32_t r = is_part ? 0 : noted[number];
        put_sum(args, tile, shared, static_cast<int>(r), static_cast<int>(i));
      }
      __syncthreads();
    }
  }

 private:
  static constexpr int kItem = sizeof(T);

  // Element 0 of a row in the tile.
  static __device__ __forceinline__ int origin_of(const SumArgs& args, const Tile& tile, int r) {
    return r * static_cast<int>(args.dims[0].size.divisor) - tile.position / kItem;
  }

  static __device__ __forceinline__ void add_ends(const SumArgs& args, const Tile& tile,
                                                  char* shared, int begin, uint32_t* noted,
                                                  uint32_t* count) {
    const SumDim& inner = args.dims[0];
    const auto size = static_cast<int>(inner.size.divisor);
    const int lane = static_cast<int>(threadIdx.x) % args.lanes, groups = kCopyThreads / args.lanes;
    const int end = min(begin + kNotedRows, tile.rows + 1);
#pragma unroll 1
    for (int from = begin; from < end; from += groups) {
      const int r = from + static_cast<int>(threadIdx.x) / args.lanes;
      const RowIndex row(args, tile.row + r);
      // The elements that the tile has.
      const int origin = origin_of(args, tile, r);
      const int first = max(-origin, 0), last = min(size, tile.end / kItem - origin);
      const bool is_noted = r < end && row.copies > 1;
      if (is_noted && lane == 0) noted[atomicAdd(count, 1u)] = static_cast<uint32_t>(r);
      const bool has_ends = r < end && !is_noted;
      compute_t<T> borders[2] = {};
      if (args.mode == Mode::kReplicate) {
        const int begins[] = {0, size + inner.before};
        const int ends[] = {min(inner.before, inner.padded), inner.padded};
        const bool has[] = {has_ends && first == 0, has_ends && last == size};
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          borders[b] =
              sum_of_border<T>(args, row, begins[b] + lane, has[b] ? ends[b] : 0, args.lanes);
          for (int apart = args.lanes / 2; apart > 0; apart /= 2) {
            borders[b] += shuffle_xor(borders[b], apart);
          }
        }
      }
      if (!has_ends) continue;
      const int left = min(inner.single_first, last);
      const int right = max(max(inner.single_last, left), first);
      const int before = max(left - first, 0), elements = before + max(last - right, 0);
      for (int k = lane; k < elements; k += args.lanes) {
        const int i = k < before ? first + k : right + k - before;
        compute_t<T> sum = sum_of<T>(args, row, i);
        if (i == 0) sum += borders[0];
        if (i == size - 1) sum += borders[1];
        reinterpret_cast<T*>(shared)[origin + i] = from_compute<T>(sum);
      }
    }
  }

  static __device__ __forceinline__ void put_sum(const SumArgs& args, const Tile& tile,
                                                 char* shared, int r, int i) {
    const SumDim& inner = args.dims[0];
    const auto size = static_cast<int>(inner.size.divisor);
    const int to = origin_of(args, tile, r) + i;
    if (to < 0 || to >= tile.end / kItem) return;
    const RowIndex row(args, tile.row + r);
    compute_t<T> sum = sum_of<T>(args, row, i);
    if (args.mode == Mode::kReplicate) {
      if (i == 0) sum += sum_of_border<T>(args, row, 0, min(inner.before, inner.padded), 1);
      if (i == size - 1) {
        sum += sum_of_border<T>(args, row, size + inner.before, inner.padded, 1);
      }
    }
    reinterpret_cast<T*>(shared)[to] = from_compute<T>(sum);
  }
};

}  // namespace gpuopt::pad
