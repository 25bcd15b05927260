// Kernels for contiguous rows, which are read in 16-byte vectors.
#pragma once

#include "dot/device/dot_kernel.cuh"

namespace gpuopt::dot {

// Sums the dot products of vectors first + u * step for u < kUnroll. Indices from `vecs` on are
// left out. load(vec, valid) returns vector `vec` of both operands. All loads are in flight before
// the first vector is used.
template <typename T, int kUnroll, typename Load>
__device__ __forceinline__ sum_t<T> dot_of_group(int64_t first, uint32_t step, int64_t vecs,
                                                 bool conjugates, Load load) {
  using V = sum_t<T>;
  const auto left = static_cast<uint32_t>(min(vecs - first, int64_t{kMaxIndex32}));
  decltype(load(first, true)) loaded[kUnroll];
  V sums[kUnroll];
#pragma unroll
  for (uint32_t u = 0; u < kUnroll; ++u) loaded[u] = load(first + u * step, u * step < left);
#pragma unroll
  for (uint32_t u = 0; u < kUnroll; ++u) {
    const V sum = dot_of<T>(loaded[u].self(), loaded[u].tensor(), conjugates);
    sums[u] = u * step < left ? sum : V{};
  }
  return sum_in_pairs(sums);
}

struct AlignedVecs {
  uint4 a, b;
  __device__ const uint4& self() const { return a; }
  __device__ const uint4& tensor() const { return b; }
};

// Threads of a block of line_kernel, at most. Sums of 16 bytes need more registers than 1024
// threads leave. They are never added atomically, which alone uses 1024 threads.
template <typename T>
constexpr int kMostThreadsOf = sizeof(sum_t<T>) > 8 ? kMostThreads / 2 : kMostThreads;

// Path "line": one row, aligned in both operands. This kernel is separate from rows_kernel because
// small dot products are mostly launch and prologue.
template <typename T, int kUnroll>
__global__ void __launch_bounds__(kMostThreadsOf<T>)
    line_kernel(const __grid_constant__ LineArgs args) {
  using V = sum_t<T>;
  launch_dependents();
  grid_dependency_wait();
  const auto* self = static_cast<const uint4*>(args.self);
  const auto* tensor = static_cast<const uint4*>(args.tensor);

  // Load the values after the last vector, so that they are in flight together with the first
  // vectors.
  const bool has_tail = threadIdx.x < args.tail && blockIdx.x + 1 == gridDim.x;
  T tail_self = {}, tail_tensor = {};
  if (has_tail) {
    tail_self = reinterpret_cast<const T*>(self + args.vecs)[threadIdx.x];
    tail_tensor = reinterpret_cast<const T*>(tensor + args.vecs)[threadIdx.x];
  }

  V value = {};
  // A warp reads kUnroll * 32 neighbouring vectors, so the offsets between a thread's vectors are
  // constants. 2^12 values in f32 take 1.4 us, and 1.8 us if a thread's vectors lie a grid apart
  // (H200).
  const uint32_t group = blockDim.x * kUnroll;
  const uint32_t position = threadIdx.x / kWarp * (kWarp * kUnroll) + threadIdx.x % kWarp;
  for (int64_t first = int64_t{blockIdx.x} * group + position; first < args.vecs;
       first += int64_t{gridDim.x} * group) {
    value = value + dot_of_group<T, kUnroll>(
                        first, kWarp, args.vecs, args.conjugate_self, [&](int64_t vec, bool valid) {
                          return AlignedVecs{load_16_bytes(self + vec, valid, /*once=*/true),
                                             load_16_bytes(tensor + vec, valid, /*once=*/true)};
                        });
  }
  if (has_tail) {
    value = multiply_add(conjugate(to_compute(tail_self), args.conjugate_self),
                         to_compute(tail_tensor), value);
  }
  value = sum_block(value);
  if (threadIdx.x == 0) {
    emit<T>(args.to, args.target, 0, blockIdx.x, gridDim.x, value, args.conjugate_out);
  }
}

template <typename T>
struct ShiftedVecs {
  uint4 a, low, high;
  uint32_t shift;
  __device__ const uint4& self() const { return a; }
  __device__ uint4 tensor() const {
    uint4 words;
    const auto vec = shift_vecs<T>(low, high, shift);
    memcpy(&words, &vec, sizeof(words));
    return words;
  }
};

// Path "rows": contiguous rows that begin at any address. A block has x rows and y threads along
// each. Vectors follow self's alignment. With kShifted, the matching values of tensor lie in two
// aligned vectors, otherwise in one.
template <typename T, bool kShifted>
__global__ void __launch_bounds__(kThreads, kBlocksOf<T> - 1)
    rows_kernel(const __grid_constant__ Args args) {
  using V = sum_t<T>;
  constexpr int N = kVecSize<T>, kUnroll = kShifted ? kShiftedUnroll : kVecUnroll;
  launch_dependents();
  grid_dependency_wait();
  uint32_t tile = blockIdx.x;
  const uint32_t split = args.splits.divmod(tile), splits = args.splits.divisor;
  const uint32_t lane = threadIdx.x & (args.y - 1);
  const int64_t row = int64_t{tile} * args.x + threadIdx.x / args.y;

  V value = {};
  if (row < args.rows) {
    const T* self = static_cast<const T*>(args.self) + row * args.self_row_stride;
    const T* tensor = static_cast<const T*>(args.tensor) + row * args.tensor_row_stride;
    const auto before =
        static_cast<int64_t>(-reinterpret_cast<uintptr_t>(self) % kAccessBytes / sizeof(T));
    const int64_t head = before < args.size ? before : args.size;
    const int64_t after = args.size - head;
    const auto* vecs_of_self = reinterpret_cast<const uint4*>(self + head);
    const auto position = reinterpret_cast<uintptr_t>(tensor + head);
    const auto* vecs_of_tensor =
        reinterpret_cast<const uint4*>(position & ~uintptr_t{kAccessBytes - 1});
    const auto shift = static_cast<uint32_t>(position & (kAccessBytes - 1));
    // The second of tensor's two vectors must not reach past the end of the row.
    int64_t vecs = after / N;
    if (kShifted && shift != 0) vecs = (after + shift / sizeof(T)) / N - 1;
    vecs = vecs < 0 ? 0 : vecs;

    for (int64_t first = int64_t{split} * args.y * kUnroll + lane; first < vecs;
         first += int64_t{splits} * args.y * kUnroll) {
      value = value + dot_of_group<T, kUnroll>(
                          first, args.y, vecs, args.conjugate_self, [&](int64_t vec, bool valid) {
                            const uint4 a = load_16_bytes(vecs_of_self + vec, valid, /*once=*/true);
                            const uint4 low =
                                load_16_bytes(vecs_of_tensor + vec, valid, /*once=*/true);
                            if constexpr (kShifted) {
                              const uint4 high = load_16_bytes(vecs_of_tensor + vec + 1,
                                                               valid && shift != 0, /*once=*/true);
                              return ShiftedVecs<T>{a, low, high, shift};
                            } else {
                              return AlignedVecs{a, low};
                            }
                          });
    }
    // The values before the first vector and after the last.
    const auto left = static_cast<uint32_t>(args.size - vecs * N);
    for (uint32_t i = split * args.y + lane; i < left; i += splits * args.y) {
      const int64_t at = i < head ? i : vecs * N + i;
      value = multiply_add(conjugate(to_compute(self[at]), args.conjugate_self),
                           to_compute(tensor[at]), value);
    }
  }

  // Sum the threads of a row: within warps by shuffles, then in shared memory.
  if (args.y <= kWarp) {
    value = sum_lanes(value, args.y);
  } else {
    __shared__ V sums[kThreads / kWarp];
    value = sum_lanes(value, kWarp);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
    __syncthreads();
    if (lane == 0) {
      for (uint32_t warp = 1; warp < args.y / kWarp; ++warp) {
        value = value + sums[threadIdx.x / kWarp + warp];
      }
    }
  }
  if (lane == 0 && row < args.rows) {
    emit<T>(args.to, args.target, row, split, splits, value, args.conjugate_out);
  }
}

}  // namespace gpuopt::dot
