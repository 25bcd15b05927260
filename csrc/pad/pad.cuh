// The kernels of padding, rolling and concatenation, and of the gradients of padding.
#pragma once

#include "common/any_vec.cuh"
#include "common/floats.cuh"
#include "common/launch.cuh"
#include "common/row_origin.cuh"
#include "pad/pad_plan.h"

namespace gpuopt::pad {

// ---------------------------------------------------------------- copies

// A vector of `out`, and the run from which bytes of it are read.
struct Position {
  uint32_t row;
  int byte;  // of the row. Negative if the vector begins in a row before
  int run = 0;
  bool inside = true;  // whether the row has bytes of a source

  __device__ __forceinline__ void find_run(const CopyArgs& args) {
    while (run + 1 < args.runs && byte >= args.run[run].last) ++run;
  }

  // Moves on to the next run. Returns whether the vector has bytes of it.
  __device__ __forceinline__ bool move_on(const CopyArgs& args) {
    if (++run == args.runs) {
      run = 0;
      byte -= static_cast<int>(args.row_bytes.divisor);
      if (++row >= args.rows) return false;
      inside = true;
    }
    return args.run[run].begin - byte < kAccessBytes;
  }

  // The offset of the row in the source, in bytes.
  __device__ __forceinline__ int64_t find_row(const CopyArgs& args) {
    uint32_t rest = row;
    int64_t offset = 0;
#pragma unroll
    for (int d = 0; d < kMaxOuter; ++d) {
      if (d >= args.outers) break;
      const Outer& dim = args.outer[d];
      const int at = static_cast<int>(dim.padded.divmod(rest)) - dim.before, last = dim.size - 1;
      int i = at;
      if (args.mode == Mode::kReflect) {
        i = last - abs(last - abs(at));
      } else if (args.mode == Mode::kReplicate) {
        i = min(max(at, 0), last);
      } else if (args.mode == Mode::kCircular) {
        i = at < 0 ? at + dim.size : at > last ? at - dim.size : at;
      }
      inside = inside && 0 <= i && i <= last;
      offset += i * args.run[run].strides[d];
    }
    return offset;
  }
};

// Elements of kItem bytes in reverse order.
template <int kItem>
__device__ __forceinline__ uint4 reversed(const uint4& v) {
  if constexpr (kItem == 16) return v;
  if constexpr (kItem == 8) return {v.z, v.w, v.x, v.y};
  const auto word = [](uint32_t w) {
    return kItem == 4 ? w : __byte_perm(w, 0, kItem == 2 ? 0x1032 : 0x0123);
  };
  return {word(v.w), word(v.z), word(v.y), word(v.x)};
}

// The first element in all positions.
template <int kItem>
__device__ __forceinline__ uint4 repeated(const uint4& v) {
  if constexpr (kItem == 16) return v;
  if constexpr (kItem == 8) return {v.x, v.y, v.x, v.y};
  const uint32_t w = kItem == 4 ? v.x : __byte_perm(v.x, 0, kItem == 2 ? 0x1010 : 0);
  return {w, w, w, w};
}

// The bytes of a vector of `out` that are from one run, and where they lie.
struct Part {
  int first, last;

  __device__ __forceinline__ Part(const Run& run, const Position& at)
      : first(max(run.begin - at.byte, 0)),
        last(at.inside ? min(run.last - at.byte, kAccessBytes) : 0) {}
};

// Starts to load the bytes of a run. If all runs go forward, kItem is 0.
template <int kItem>
__device__ __forceinline__ void load(AnyVec& vec, const CopyArgs& args, Position& at) {
  const Run& run = args.run[at.run];
  const char* from = run.data + at.find_row(args);
  const Part part(run, at);
  const int moved = at.byte - run.begin;
  if (kItem == 0 || run.step > 0) {
    vec.load(from + moved, part.first, part.last, run.end);
  } else if (run.step < 0) {
    vec.load(from - moved - (kAccessBytes - kItem), kAccessBytes - part.last,
             kAccessBytes - part.first, run.end);
  } else {
    vec.load(from, 0, part.first < part.last ? kItem : 0, run.end);
  }
}

// Puts the bytes into a vector of `out`.
template <int kItem>
__device__ __forceinline__ uint4 put(AnyVec& loaded, const CopyArgs& args, const Position& at,
                                     const uint4& words) {
  const Run& run = args.run[at.run];
  const Part part(run, at);
  uint4 vec = loaded.get(run.end);
  if constexpr (kItem > 0) {
    if (run.step < 0) vec = reversed<kItem>(vec);
    if (run.step == 0) vec = repeated<kItem>(vec);
  }
  if (part.first == 0 && part.last == kAccessBytes) return vec;
  if (part.first >= part.last) return words;
  return join_bytes(words, join_bytes(vec, words, part.last), part.first);
}

// A thread stores aligned vectors of `out`. The bytes of most vectors are from one run:
//
//   constant padding      | . . . a a a a a | a a a a a . . . | . . . b b b b b |   before = after
//   = 3 reflection            | 3 2 1 0 1 2 3 4 | 5 6 7 8 9 8 7 6 | ...                 3 runs of a
//   row concatenation         | a a a b b b b b | b b a a a b b b |                     2 runs of a
//   row
//
// The loads of all vectors of a thread are in flight before further runs are read.
template <int kItem>
__global__ __launch_bounds__(kThreads, 4) void copy_runs(const __grid_constant__ CopyArgs args) {
  constexpr uint32_t kBlockBytes = kThreads * kVectors * kAccessBytes;
  const uint64_t first = uint64_t{blockIdx.x} * kBlockBytes;
  const auto end = static_cast<uint32_t>(min(args.bytes - first, uint64_t{kBlockBytes}));
  const RowOrigin origin(args.row_bytes, first);
  const uint32_t (&constant)[4] = args.fill.words;
  const uint4 fill{constant[0], constant[1], constant[2], constant[3]};
  Position at[kVectors];
  AnyVec loaded[kVectors];
  grid_dependency_wait();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const uint32_t number = (threadIdx.x + u * kThreads) * kAccessBytes;
    uint32_t row = origin.position + number;
    at[u].byte = static_cast<int>(args.row_bytes.divmod(row));
    at[u].row = static_cast<uint32_t>(origin.row) + row;
    at[u].inside = number < end;
    at[u].find_run(args);
    load<kItem>(loaded[u], args, at[u]);
  }
  launch_next();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const uint32_t number = (threadIdx.x + u * kThreads) * kAccessBytes;
    if (number >= end) break;
    uint4 words = put<kItem>(loaded[u], args, at[u], fill);
#pragma unroll 1
    while (at[u].move_on(args)) {
      AnyVec next;
      load<kItem>(next, args, at[u]);
      words = put<kItem>(next, args, at[u], words);
    }
    char* to = args.out + first + number;
    if (end - number >= kAccessBytes) {
      *reinterpret_cast<uint4*>(to) = words;
    } else {
      const uint32_t bytes[] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < kAccessBytes; ++i) {
        if (i < end - number) to[i] = static_cast<char>(bytes[i / 4] >> (8 * (i % 4)));
      }
    }
  }
}

// ---------------------------------------------------------------- gradients

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

// Calls f with the offset of each element of the gradient that maps to an index, or of its row for
// kInnermost = 1. The order is fixed.
template <int d, int kInnermost, typename F>
__device__ __forceinline__ void for_each_copy(const SumArgs& args, const int (&index)[kMaxSumDims],
                                              int offset, F f) {
  if constexpr (d < kInnermost) {
    f(offset);
  } else {
    const int count = count_copies(args.mode, args.dims[d], index[d]);
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const int copy = copy_of(args.mode, args.dims[d], index[d], k);
      if (copy >= 0) {
        for_each_copy<d - 1, kInnermost>(args, index, offset + copy * args.dims[d].stride, f);
      }
    }
  }
}

__device__ __forceinline__ void find_index(const SumArgs& args, uint32_t number,
                                           int (&index)[kMaxSumDims]) {
#pragma unroll
  for (int d = 0; d < kMaxSumDims; ++d) {
    index[d] = static_cast<int>(args.dims[d].size.divmod(number));
  }
}

// A thread computes a vector of `out`. Vectors of the gradient are added where each element of the
// row has one copy. Other elements, and elements of the next row, are computed one by one.
template <typename T>
__global__ __launch_bounds__(kThreads) void sum_copies(const __grid_constant__ SumArgs args) {
  constexpr int N = kVecSize<T>;
  const uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * N;
  grid_dependency_wait();
  launch_next();
  if (first >= args.total) return;
  const SumDim& inner = args.dims[0];
  const auto* grad = reinterpret_cast<const T*>(args.grad);
  int index[kMaxSumDims];
  find_index(args, first, index);
  const int from = index[0] + inner.before;
  const int begin = max(0, -from);
  const int last =
      min(min(N, static_cast<int>(inner.size.divisor) - index[0]), inner.padded - from);
  compute_t<T> sums[N] = {};
  for_each_copy<kMaxSumDims - 1, 1>(args, index, 0, [&](int row) {
    AnyVec loaded;
    loaded.load(grad + row + from, begin * static_cast<int>(sizeof(T)),
                last * static_cast<int>(sizeof(T)), args.grad_end);
    const auto vec = vec_of<T>(loaded.get(args.grad_end));
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (begin <= e && e < last) sums[e] += to_compute(vec.values[e]);
    }
  });
  if (index[0] < inner.single_first || index[0] + N > inner.single_last) {
#pragma unroll 1
    for (int e = 0; e < N; ++e) {
      const int i = index[0] + e;
      if ((inner.single_first <= i && i < inner.single_last) || first + e >= args.total) continue;
      int other[kMaxSumDims];
      find_index(args, first + e, other);
      compute_t<T> sum = 0;
      for_each_copy<kMaxSumDims - 1, 0>(args, other, 0,
                                        [&](int at) { sum += to_compute(grad[at]); });
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] = k == e ? sum : sums[k];
    }
  }
  Vec<T, N> result;
#pragma unroll
  for (int e = 0; e < N; ++e) result.values[e] = from_compute<T>(sums[e]);
  T* to = static_cast<T*>(args.out) + first;
  if (args.total - first >= N) {
    store_whole(to, result);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (first + e < args.total) to[e] = result.values[e];
    }
  }
}

}  // namespace gpuopt::pad
