// The kernels of the element-wise engine. A kernel walks the operands of a problem and calls a
// functor on their values. Each path has its kernels here, except tiles
// (elementwise_tiled.cuh).
#pragma once

#include <type_traits>

#include "common/index.h"
#include "common/launch.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "elementwise/device/elementwise_values.cuh"
#include "elementwise/elementwise_args.h"

namespace gpuopt::elementwise {

// ---------------------------------------------------------------- vector

template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    vector_kernel(const F f, const VectorArgs<F::kInputs + 1> args) {
  constexpr int N = kVecSize<T>, kVecs = kThreadVecs;
  const int64_t vecs = args.numel / N;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kVecs) + threadIdx.x;
  T* const out = static_cast<T*>(args.data[0]);
  grid_dependency_wait();
  // All loads of a thread are issued before the first value is used.
  Vec<T, N> in[kVecs][F::kInputs];
#pragma unroll
  for (int u = 0; u < kVecs; ++u) {
    const int64_t vec = first + u * kThreads;
    if (vec >= vecs) break;
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      in[u][k] = load_vec<T, N>(static_cast<const T*>(args.data[k + 1]) + vec * N);
    }
  }
  launch_dependents();
#pragma unroll
  for (int u = 0; u < kVecs; ++u) {
    const int64_t vec = first + u * kThreads;
    if (vec >= vecs) break;
    store_vec(out + vec * N, apply<F, T, N>(f, in[u]));
  }

  // Store the values after the last whole vector: one per thread, in the last block.
  const int64_t tail = vecs * N + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < args.numel) {
    Vec<T, 1> x[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      x[k].values[0] = static_cast<const T*>(args.data[k + 1])[tail];
    }
    out[tail] = apply<F, T, 1>(f, x).values[0];
  }
}

// ---------------------------------------------------------------- strided operands

// Adds the offsets in dimensions first_dim and above. `rest` is the linear index over those
// dimensions.
template <int kOperands>
__device__ __forceinline__ void add_outer_offsets(const StridedArgs<kOperands>& args, int first_dim,
                                                  uint32_t rest, uint32_t (&offsets)[kOperands]) {
  for (int d = first_dim; d < args.num_dims; ++d) {
    const uint32_t coordinate = d == args.num_dims - 1 ? rest : args.sizes[d].divmod(rest);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] += coordinate * args.strides[k][d];
  }
}

// The offset of every operand at linear index `index`.
template <int kOperands>
__device__ __forceinline__ void find_offsets(const StridedArgs<kOperands>& args, uint32_t index,
                                             uint32_t (&offsets)[kOperands]) {
  uint32_t rest = index;
  const uint32_t column = args.num_dims == 1 ? index : args.sizes[0].divmod(rest);
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets[k] = column * args.strides[k][0];
  add_outer_offsets(args, 1, rest, offsets);
}

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> repeat(T value) {
  Vec<T, N> vec;
#pragma unroll
  for (int i = 0; i < N; ++i) vec.values[i] = value;
  return vec;
}

// Stores the first `count` values of a vector. `address` is aligned to a vector if count is N.
template <typename T, int N>
__device__ __forceinline__ void store_values(T* address, const Vec<T, N>& vec, int count) {
  if (count == N) {
    store_vec(address, vec);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) address[i] = vec.values[i];
  }
}

// ---------------------------------------------------------------- rows

template <typename T, Access kAccess, int N = kVecSize<T>>
__device__ __forceinline__ Vec<T, N> load_row_vec(const void* data, DType dtype, uint32_t offset,
                                                  uint32_t available) {
  if constexpr (kAccess == Access::kConverted) {
    Vec<T, N> vec;
    with_input_type<T>(dtype, [&](auto type) {
      using S = decltype(type);
      const auto from = load_values<S, N>(static_cast<const S*>(data) + offset);
#pragma unroll
      for (int i = 0; i < N; ++i) vec.values[i] = convert<T>(from.values[i]);
    });
    return vec;
  } else if constexpr (kAccess == Access::kUnaligned) {
    return load_vec_unaligned(static_cast<const T*>(data) + offset, available);
  } else {
    return load_vec<T, N>(static_cast<const T*>(data) + offset);
  }
}

template <typename T, Access kAccess>
__device__ __forceinline__ T load_value(const void* data, DType dtype, uint32_t offset) {
  if constexpr (kAccess == Access::kConverted) {
    T value;
    with_input_type<T>(dtype, [&](auto type) {
      value = convert<T>(static_cast<const decltype(type)*>(data)[offset]);
    });
    return value;
  } else {
    return static_cast<const T*>(data)[offset];
  }
}

// Output rows are whole, aligned vectors, so a thread's vector lies in one row. args.sizes[0]
// counts vectors. args.strides[k][0] is the distance between vectors, or 0 for an input that
// repeats one value along the row.
template <typename F, typename T, Access kAccess, int kThreads, int kVecs>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  constexpr int N = kVecSize<T>;
  const uint32_t vecs = args.numel / N;
  const uint32_t vecs_per_row = args.num_dims == 1 ? vecs : args.sizes[0].divisor;
  const uint32_t first = blockIdx.x * (kThreads * kVecs) + threadIdx.x;
  uint32_t offsets[kVecs][F::kInputs + 1];
  Vec<T, N> in[kVecs][F::kInputs];
  launch_next();
  grid_dependency_wait();
#pragma unroll
  for (int u = 0; u < kVecs; ++u) {
    const uint32_t vec = first + u * kThreads;
    if (vec >= vecs) break;
    find_offsets(args, vec, offsets[u]);
    // Values from here to the end of the row. An unaligned load must not read beyond them.
    const uint32_t column = args.num_dims == 1 ? vec : vec - args.sizes[0].div(vec) * vecs_per_row;
    const uint32_t available = (vecs_per_row - column) * N;
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const void* const data = args.data[k + 1];
      const uint32_t offset = offsets[u][k + 1];
      if (args.strides[k + 1][0] == 0) {
        in[u][k] = repeat<T, N>(load_value<T, kAccess>(data, args.dtypes[k + 1], offset));
      } else {
        in[u][k] = load_row_vec<T, kAccess>(data, args.dtypes[k + 1], offset, available);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kVecs; ++u) {
    if (first + u * kThreads >= vecs) break;
    store_vec(static_cast<T*>(args.data[0]) + offsets[u][0], apply<F, T, N>(f, in[u]));
  }

  // A problem of a single row may end inside a vector. Store the values that are left: one per
  // thread, in the last block.
  const uint32_t tail = vecs * N + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < args.numel) {
    Vec<T, 1> x[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const uint32_t offset = args.strides[k + 1][0] == 0 ? 0 : tail;
      x[k].values[0] = load_value<T, kAccess>(args.data[k + 1], args.dtypes[k + 1], offset);
    }
    static_cast<T*>(args.data[0])[tail] = apply<F, T, 1>(f, x).values[0];
  }
}

// ---------------------------------------------------------------- packed

// Loads `count` values that lie `stride` elements apart, from `address` on. The row has `available`
// values from there.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load_strided(const T* address, uint32_t stride, int count,
                                                  uint32_t available) {
  if (count == N) {
    if (stride == 1) {
      return load_vec_unaligned(address, available);
    }
    if (stride == 0) return repeat<T, N>(*address);
  }
  Vec<T, N> vec{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) vec.values[i] = address[i * stride];
  }
  return vec;
}

// The output is dense and aligned. A thread stores one of its vectors, which may cross from one row
// into the next.
template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  constexpr int N = kVecSize<T>;
  launch_next();
  const int64_t from = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (from >= args.numel) return;
  const auto index = static_cast<uint32_t>(from);
  const int count = min(static_cast<uint32_t>(N), args.numel - index);

  uint32_t row = index;
  uint32_t column = args.sizes[0].divmod(row);
  const uint32_t inner = args.sizes[0].divisor;
  uint32_t row_offsets[F::kInputs + 1] = {};
  add_outer_offsets(args, 1, row, row_offsets);
  grid_dependency_wait();

  // Load a vector of each input that is linear, or of all inputs if the vector lies in one row.
  Vec<T, N> in[F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const T* const data = static_cast<const T*>(args.data[k + 1]);
    const uint32_t stride = args.strides[k + 1][0];
    if (args.linear[k + 1]) {
      in[k] = load_strided<T, N>(data + index, 1, count, args.numel - index);
    } else if (column + count <= inner) {
      in[k] = load_strided<T, N>(data + row_offsets[k + 1] + column * stride, stride, count,
                                 inner - column);
    }
  }
  if (column + count > inner) {
    // The vector crosses rows: load the other inputs value by value. All addresses are computed
    // before the first value arrives, so the loads are in flight together. Within a plane
    // (dimensions 0 and 1) the next row is one stride of dimension 1 away. A vector leaves its
    // plane at most once, because smaller planes take the general path.
    uint32_t plane = row;
    const uint32_t row_in_plane = args.num_dims == 2 ? row : args.sizes[1].divmod(plane);
    const uint32_t rows = args.sizes[1].divisor - row_in_plane;
    uint32_t next_plane[F::kInputs + 1] = {};
    if (column + count > rows * inner) add_outer_offsets(args, 2, plane + 1, next_plane);
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (args.linear[k + 1]) continue;
      RowWalk walk{args.strides[k + 1][0],
                   args.strides[k + 1][1],
                   inner,
                   inner - column,
                   rows,
                   row_offsets[k + 1],
                   row_offsets[k + 1] + column * args.strides[k + 1][0],
                   next_plane[k + 1]};
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < count) in[k].values[i] = static_cast<const T*>(args.data[k + 1])[walk.offset];
        walk.step();
      }
    }
  }
  store_values(static_cast<T*>(args.data[0]) + index, apply<F, T, N>(f, in), count);
}

// Each row is split where its output crosses a 16-byte boundary. Every vector except the first and
// the last of a row is then stored whole, whatever the row's alignment. A thread handles one
// vector.
template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    packed_rows_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                       const FastDiv vecs_per_row, const uint32_t vecs) {
  constexpr int N = kVecSize<T>;
  launch_next();
  uint32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= vecs) return;
  const uint32_t vec = vecs_per_row.divmod(row);

  uint32_t offsets[F::kInputs + 1] = {};
  add_outer_offsets(args, 1, row, offsets);
  T* out = static_cast<T*>(args.data[0]) + offsets[0];
  const auto shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) / sizeof(T) % N);
  const RowSpan span = row_span(vec, shift, N, args.sizes[0].divisor);
  const int count = span.end - span.begin;
  grid_dependency_wait();

  Vec<T, N> in[F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride = args.strides[k + 1][0];
    const T* const data = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1];
    in[k] = load_strided<T, N>(data + span.begin * stride, stride, count,
                               args.sizes[0].divisor - span.begin);
  }
  const Vec<T, N> result = apply<F, T, N>(f, in);
  store_values(out + span.begin, result, count);
}

// ---------------------------------------------------------------- general

// A thread handles kSteps values, kThreads apart. Loads are not predicated: threads past the end
// load the last element and do not store it.

// kOneType: all operands have type T, so there is no switch over the types of memory.
template <typename F, typename T, int kThreads, int kSteps, bool kOneType>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  const uint32_t first = blockIdx.x * (kThreads * kSteps) + threadIdx.x;
  uint32_t offsets[kSteps][F::kInputs + 1];
  Vec<T, 1> in[kSteps][F::kInputs];
  launch_next();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    // Counts are less than 2^31, so the sum fits 32 bits.
    find_offsets(args, min(first + s * kThreads, args.numel - 1), offsets[s]);
  }
  grid_dependency_wait();
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const auto load = [&](auto type) {
      using S = decltype(type);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const S value = static_cast<const S*>(args.data[k + 1])[offsets[s][k + 1]];
        if constexpr (kOneType) {
          in[s][k].values[0] = value;
        } else {
          in[s][k].values[0] = convert<T>(value);
        }
      }
    };
    if constexpr (kOneType) {
      load(T{});
    } else {
      with_input_type<T>(args.dtypes[k + 1], load);
    }
  }
  Vec<T, 1> result[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) result[s] = apply<F, T, 1>(f, in[s]);
  if constexpr (kOneType) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kThreads >= args.numel) break;
      static_cast<T*>(args.data[0])[offsets[s][0]] = result[s].values[0];
    }
    return;
  }
  with_output_type<T>(args.dtypes[0], [&](auto type) {
    using S = decltype(type);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kThreads >= args.numel) break;
      S* const out = static_cast<S*>(args.data[0]) + offsets[s][0];
      if constexpr (std::is_same_v<T, uint8_t>) {
        // int8 shares the arithmetic of uint8. Its sign matters when the result is widened.
        *out = args.dtype == DType::kInt8 ? convert<S>(static_cast<int8_t>(result[s].values[0]))
                                          : convert<S>(result[s].values[0]);
      } else if constexpr (std::is_unsigned_v<T>) {
        *out = convert<S>(static_cast<std::make_signed_t<T>>(result[s].values[0]));
      } else {
        *out = convert<S>(result[s].values[0]);
      }
    }
  });
}

}  // namespace gpuopt::elementwise
