// The element-wise engine's kernels: they walk the operands of any problem and call a functor on
// the values. A functor works in a compute type C (f32 for the half types, common/types.cuh):
//
//   template <typename C> struct Mul {
//     static constexpr int kInputs = 2;
//     __device__ C operator()(C a, C b) const { return a * b; }
//   };
//
// An overload for __half2 or __nv_bfloat162 serves packs of that type. Write one only where it
// gives the same bits as the f32 arithmetic.
#pragma once

#include <type_traits>
#include <utility>

#include "common/index.h"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "elementwise/elementwise_plan.h"

namespace gpuopt::elementwise {

// ---------------------------------------------------------------- values -> values

template <typename T>
struct PairOf {
  struct None {};
  using type = None;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};

template <typename F, typename X, size_t... I>
__device__ __forceinline__ auto call(const F& f, const X* inputs, std::index_sequence<I...>) {
  return f(inputs[I]...);
}

template <typename F, typename X, typename Indices>
constexpr bool kTakes = false;
template <typename F, typename X, size_t... I>
constexpr bool kTakes<F, X, std::index_sequence<I...>> =
    std::is_invocable_r_v<X, const F&, decltype((void)I, X{})...>;

template <typename F, typename T, int N>
__device__ __forceinline__ Pack<T, N> apply(const F& f, const Pack<T, N>* inputs) {
  using Inputs = std::make_index_sequence<F::kInputs>;
  using Pair = typename PairOf<T>::type;
  Pack<T, N> out;
  if constexpr (N % 2 == 0 && kTakes<F, Pair, Inputs>) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      Pair x[F::kInputs];
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) x[k] = {inputs[k].values[i], inputs[k].values[i + 1]};
      const Pair y = call(f, x, Inputs{});
      out.values[i] = y.x;
      out.values[i + 1] = y.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      compute_t<T> x[F::kInputs];
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) x[k] = to_compute(inputs[k].values[i]);
      out.values[i] = from_compute<T>(call(f, x, Inputs{}));
    }
  }
  return out;
}

// ---------------------------------------------------------------- kVector

template <int kOperands>
struct VectorArgs {
  void* data[kOperands];
  int64_t numel;
};

template <typename F, typename T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads)
    vector_kernel(const F f, const VectorArgs<F::kInputs + 1> args) {
  constexpr int N = kPackSize<T>;
  const int64_t packs = args.numel / N;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kPacks) + threadIdx.x;
  T* const out = static_cast<T*>(args.data[0]);

  // All loads of a thread are issued before the first value is used.
  Pack<T, N> in[kPacks][F::kInputs];
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack < packs) {
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) {
        in[u][k] = load_pack<T, N>(static_cast<const T*>(args.data[k + 1]) + pack * N);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack < packs) store_pack(out + pack * N, apply<F, T, N>(f, in[u]));
  }

  // The last values that fill no pack: one thread each, in the last block.
  const int64_t tail = packs * N + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < args.numel) {
    Pack<T, 1> x[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      x[k].values[0] = static_cast<const T*>(args.data[k + 1])[tail];
    }
    out[tail] = apply<F, T, 1>(f, x).values[0];
  }
}

// ---------------------------------------------------------------- strided operands

template <int kOperands>
struct StridedArgs {
  void* data[kOperands];
  DType dtypes[kOperands];
  bool linear[kOperands];
  DType dtype;
  int num_dims;
  uint32_t numel;
  FastDiv sizes[kMaxDims];
  int64_t strides[kOperands][kMaxDims];
};

// Adds the offsets of dimensions first_dim.. at linear index `rest` over them.
template <int kOperands>
__device__ __forceinline__ void add_outer_offsets(const StridedArgs<kOperands>& args, int first_dim,
                                                  uint32_t rest, int64_t (&offsets)[kOperands]) {
  for (int d = first_dim; d < args.num_dims; ++d) {
    const uint32_t coordinate = d == args.num_dims - 1 ? rest : args.sizes[d].divmod(rest);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] += coordinate * args.strides[k][d];
  }
}

template <int kOperands>
__device__ __forceinline__ void find_offsets(const StridedArgs<kOperands>& args, uint32_t index,
                                             int64_t (&offsets)[kOperands]) {
  uint32_t rest = index;
  const uint32_t column = args.num_dims == 1 ? index : args.sizes[0].divmod(rest);
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets[k] = column * args.strides[k][0];
  add_outer_offsets(args, 1, rest, offsets);
}

// `count` values from `address` on, `stride` apart.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_strided(const T* address, int64_t stride, int count) {
  if (count == N) {
    if (stride == 1) {
      if constexpr (sizeof(T) * N == kPackBytes) return load_pack_unaligned(address);
    }
    if (stride == 0) {
      const T value = *address;
      Pack<T, N> pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.values[i] = value;
      return pack;
    }
  }
  Pack<T, N> pack{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) pack.values[i] = address[i * stride];
  }
  return pack;
}

// ---------------------------------------------------------------- kPacked

// Packs that run on from row to row of a dense, aligned output.
template <typename F, typename T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  constexpr int N = kPackSize<T>;
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t from = (int64_t{blockIdx.x} * kPacks + u) * (kThreads * N) + threadIdx.x * N;
    if (from >= args.numel) return;
    const auto index = static_cast<uint32_t>(from);
    const int count = min(static_cast<uint32_t>(N), args.numel - index);
    const uint32_t inner = args.sizes[0].divisor;
    const bool in_one_row = index - args.sizes[0].div(index) * inner + count <= inner;

    int64_t offsets[F::kInputs + 1];
    find_offsets(args, index, offsets);
    Pack<T, N> in[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const T* const data = static_cast<const T*>(args.data[k + 1]);
      if (args.linear[k + 1]) {
        in[k] = load_strided<T, N>(data + index, 1, count);
      } else if (in_one_row) {
        in[k] = load_strided<T, N>(data + offsets[k + 1], args.strides[k + 1][0], count);
      }
    }
    if (!in_one_row) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i >= count) break;
        find_offsets(args, index + i, offsets);
#pragma unroll
        for (int k = 0; k < F::kInputs; ++k) {
          if (args.linear[k + 1]) continue;
          in[k].values[i] = static_cast<const T*>(args.data[k + 1])[offsets[k + 1]];
        }
      }
    }

    const Pack<T, N> result = apply<F, T, N>(f, in);
    T* const out = static_cast<T*>(args.data[0]) + index;
    if (count == N) {
      store_pack(out, result);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < count) out[i] = result.values[i];
      }
    }
  }
}

// Rows apart: each row is cut where its output crosses 16-byte boundaries, so that all packs but
// its first and last are stored whole, whatever the row's alignment.
template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    packed_rows_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                       const FastDiv packs_per_row, const uint32_t packs) {
  constexpr int N = kPackSize<T>;
  uint32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= packs) return;
  const uint32_t pack = packs_per_row.divmod(row);

  int64_t offsets[F::kInputs + 1] = {};
  add_outer_offsets(args, 1, row, offsets);
  T* out = static_cast<T*>(args.data[0]) + offsets[0];
  const auto shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) / sizeof(T) % N);
  const RowSpan span = row_span(pack, shift, N, args.sizes[0].divisor);
  const int count = span.end - span.begin;

  Pack<T, N> in[F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const int64_t stride = args.strides[k + 1][0];
    const T* const data = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1];
    in[k] = load_strided<T, N>(data + span.begin * stride, stride, count);
  }
  const Pack<T, N> result = apply<F, T, N>(f, in);
  out += span.begin;
  if (count == N) {
    store_pack(out, result);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) out[i] = result.values[i];
    }
  }
}

// ---------------------------------------------------------------- kTiled

// A square tile in shared memory, written along one dimension (j) and read along the other (i)
// without bank conflicts. Packed: 16-byte chunks of row i are stored at chunk ^ (i / N % 8), so that
// 8 lanes that read one column of neighbouring packs hit 8 different groups of 4 banks.
// Value by value: rows are padded by one bank.
template <typename T, bool kPackedTiles>
struct Tile {
  static constexpr int N = kPackedTiles ? kPackSize<T> : 1;
  static constexpr int kSide = sizeof(T) == 1 && kPackedTiles ? 128 : sizeof(T) <= 4 ? 64 : 32;
  static constexpr int kPad = kPackedTiles ? 0 : (sizeof(T) < 4 ? 4 / sizeof(T) : 1);
  static constexpr int kPacksPerSide = kSide / N;
  static constexpr int kBytes = kSide * (kSide + kPad) * sizeof(T);
  static_assert(!kPackedTiles || kPacksPerSide % 8 == 0, "the swizzle permutes groups of 8 chunks");

  static __device__ __forceinline__ int at(int i, int j) {
    if constexpr (kPackedTiles) {
      return i * kSide + (((j / N) ^ (i / N % 8)) * N) + j % N;
    } else {
      return i * (kSide + kPad) + j;
    }
  }
};

struct TileGrid {
  FastDiv tiles_i;  // along dimension 0
  FastDiv tiles_j;  // along dimension 1, the one the turned inputs are contiguous along
};

template <typename F, typename T, bool kPackedTiles, int kThreads>
__global__ void __launch_bounds__(kThreads)
    tiled_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                 const TileGrid grid, const uint32_t turned) {
  using Layout = Tile<T, kPackedTiles>;
  constexpr int N = Layout::N, kSide = Layout::kSide;
  constexpr int kSteps = kSide * Layout::kPacksPerSide / kThreads;
  static_assert(kSteps * kThreads == kSide * Layout::kPacksPerSide);
  extern __shared__ uint4 shared[];

  uint32_t rest = blockIdx.x;
  const uint32_t i0 = grid.tiles_i.divmod(rest) * kSide;
  const uint32_t j0 = grid.tiles_j.divmod(rest) * kSide;
  const uint32_t size_i = args.sizes[0].divisor, size_j = args.sizes[1].divisor;
  int64_t offsets[F::kInputs + 1] = {};
  if (args.num_dims > 2) add_outer_offsets(args, 2, rest, offsets);

  // Where step s of this thread reads along j (turned inputs) ...
  const auto read_i = [](int s) {
    return (threadIdx.x + s * kThreads) / Layout::kPacksPerSide;
  };
  const auto read_j = [](int s) {
    return (threadIdx.x + s * kThreads) % Layout::kPacksPerSide * N;
  };
  // ... and where it writes along i: 8 packs of a row, then the next row, for whole 128-byte lines
  // (value by value: a whole row).
  constexpr int kLine = kPackedTiles ? 8 : Layout::kPacksPerSide;
  const auto write_i = [](int s) {
    const int slot = threadIdx.x + s * kThreads;
    return (slot / (kLine * kSide) * kLine + slot % kLine) * N;
  };
  const auto write_j = [](int s) { return (threadIdx.x + s * kThreads) / kLine % kSide; };

  Pack<T, N> in[kSteps][F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const T* const data = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1];
    const int64_t stride_i = args.strides[k + 1][0], stride_j = args.strides[k + 1][1];
    if (turned >> k & 1) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = i0 + read_i(s), j = j0 + read_j(s);
        if (i < size_i && j < size_j) {
          in[s][k] = load_pack<T, N>(data + i * stride_i + j * stride_j);
        }
      }
    } else {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = i0 + write_i(s), j = j0 + write_j(s);
        if (i < size_i && j < size_j) {
          in[s][k] = load_strided<T, N>(data + i * stride_i + j * stride_j, stride_i, N);
        }
      }
    }
  }

#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    if (!(turned >> k & 1)) continue;
    T* const tile = reinterpret_cast<T*>(shared) +
                    __popc(turned & ((1u << k) - 1)) * (Layout::kBytes / sizeof(T));
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      store_pack(tile + Layout::at(read_i(s), read_j(s)), in[s][k]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    if (!(turned >> k & 1)) continue;
    const T* const tile = reinterpret_cast<const T*>(shared) +
                          __popc(turned & ((1u << k) - 1)) * (Layout::kBytes / sizeof(T));
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int e = 0; e < N; ++e) in[s][k].values[e] = tile[Layout::at(write_i(s) + e, write_j(s))];
    }
  }

  T* const out = static_cast<T*>(args.data[0]) + offsets[0];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t i = i0 + write_i(s), j = j0 + write_j(s);
    if (i < size_i && j < size_j) {
      store_pack(out + i + j * args.strides[0][1], apply<F, T, N>(f, in[s]));
    }
  }
}

// ---------------------------------------------------------------- kGeneral

// Conversions as ATen's copies make them: through the compute type, rounded to T.
template <typename T, typename S>
__device__ __forceinline__ T convert(S value) {
  using C = compute_t<T>;
  const auto x = to_compute(value);
  using X = std::remove_const_t<decltype(x)>;
  if constexpr (std::is_same_v<X, C>) {
    return from_compute<T>(x);
  } else if constexpr (requires(C c) { c.re; }) {
    using R = decltype(C::re);
    if constexpr (requires(X c) { c.re; }) {
      return from_compute<T>(C{static_cast<R>(x.re), static_cast<R>(x.im)});
    } else {
      return from_compute<T>(C{static_cast<R>(x), R{0}});
    }
  } else if constexpr (requires(X c) { c.re; }) {
    return from_compute<T>(static_cast<C>(x.re));  // not reached: promotion never drops im
  } else {
    return from_compute<T>(static_cast<C>(x));
  }
}

template <typename Body>
__device__ __forceinline__ void with_stored_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kBool:
      return body(Bool{});
    case DType::kUInt8:
      return body(uint8_t{});
    case DType::kInt8:
      return body(int8_t{});
    case DType::kInt16:
      return body(int16_t{});
    case DType::kInt32:
      return body(int32_t{});
    case DType::kInt64:
      return body(int64_t{});
    case DType::kFloat16:
      return body(__half{});
    case DType::kBFloat16:
      return body(__nv_bfloat16{});
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
    case DType::kComplex32:
      return body(Complex<__half>{});
    case DType::kComplex64:
      return body(Complex<float>{});
    case DType::kComplex128:
      return body(Complex<double>{});
  }
}

template <typename F, typename T, int kThreads, int kSteps>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kSteps) + threadIdx.x;
  int64_t offsets[kSteps][F::kInputs + 1];
  Pack<T, 1> in[kSteps][F::kInputs];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t index = first + s * kThreads;
    find_offsets(args, static_cast<uint32_t>(min(index, int64_t{args.numel} - 1)), offsets[s]);
  }
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    with_stored_type(args.dtypes[k + 1], [&](auto type) {
      using S = decltype(type);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        in[s][k].values[0] = convert<T>(static_cast<const S*>(args.data[k + 1])[offsets[s][k + 1]]);
      }
    });
  }
  Pack<T, 1> result[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) result[s] = apply<F, T, 1>(f, in[s]);
  with_stored_type(args.dtypes[0], [&](auto type) {
    using S = decltype(type);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kThreads >= args.numel) break;
      S* const out = static_cast<S*>(args.data[0]) + offsets[s][0];
      if constexpr (std::is_same_v<T, uint8_t>) {
        // int8 shares uint8's arithmetic; its sign matters once the result is widened.
        *out = args.dtype == DType::kInt8
                   ? convert<S>(static_cast<int8_t>(result[s].values[0]))
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
