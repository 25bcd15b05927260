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

#include "common/async.cuh"
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
      for (int k = 0; k < F::kInputs; ++k)
        x[k] = Pair(inputs[k].values[i], inputs[k].values[i + 1]);
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
    if (pack >= packs) break;
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      in[u][k] = load_pack<T, N>(static_cast<const T*>(args.data[k + 1]) + pack * N);
    }
  }
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack >= packs) break;
    store_pack(out + pack * N, apply<F, T, N>(f, in[u]));
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

// ---------------------------------------------------------------- conversions

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
  } else {
    return from_compute<T>(static_cast<C>(x));
  }
}

// Calls body with a value of the stored type of dtype, where its category is in [kLow, kHigh] (the
// others don't occur, check_types(), and would only be compiled).
template <Category kLow, Category kHigh, typename Body>
__device__ __forceinline__ void with_stored_type(DType dtype, Body&& body) {
  const auto call = [&](auto type) {
    constexpr Category kOwn = kCategory<decltype(type)>;
    if constexpr (kOwn >= kLow && kOwn <= kHigh) body(type);
  };
  switch (dtype) {
    case DType::kBool:
      return call(Bool{});
    case DType::kUInt8:
      return call(uint8_t{});
    case DType::kInt8:
      return call(int8_t{});
    case DType::kInt16:
      return call(int16_t{});
    case DType::kInt32:
      return call(int32_t{});
    case DType::kInt64:
      return call(int64_t{});
    case DType::kFloat16:
      return call(__half{});
    case DType::kBFloat16:
      return call(__nv_bfloat16{});
    case DType::kFloat32:
      return call(float{});
    case DType::kFloat64:
      return call(double{});
    case DType::kComplex32:
      return call(Complex<__half>{});
    case DType::kComplex64:
      return call(Complex<float>{});
    case DType::kComplex128:
      return call(Complex<double>{});
  }
}

template <typename T, typename Body>
__device__ __forceinline__ void with_input_type(DType dtype, Body&& body) {
  with_stored_type<Category::kBool, kCategory<T>>(dtype, body);
}

template <typename T, typename Body>
__device__ __forceinline__ void with_output_type(DType dtype, Body&& body) {
  with_stored_type<kCategory<T>, Category::kComplex>(dtype, body);
}

// N neighbouring values, as 16-byte accesses when they fill some; `address` is aligned to N values.
template <typename S, int N>
__device__ __forceinline__ Pack<S, N> load_values(const S* address) {
  if constexpr (sizeof(S) * N <= kPackBytes) {
    return load_pack<S, N>(address);
  } else {
    constexpr int kPart = kPackBytes / sizeof(S);
    Pack<S, N> pack;
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      const auto part = load_pack<S, kPart>(address + i);
#pragma unroll
      for (int j = 0; j < kPart; ++j) pack.values[i + j] = part.values[j];
    }
    return pack;
  }
}

// ---------------------------------------------------------------- strided operands

// All offsets of a launch fit 32 bits (needs_split).
template <int kOperands>
struct StridedArgs {
  void* data[kOperands];
  DType dtypes[kOperands];
  bool linear[kOperands];
  DType dtype;
  int num_dims;
  uint32_t numel;
  FastDiv sizes[kMaxDims];
  uint32_t strides[kOperands][kMaxDims];
};

// Adds the offsets of dimensions first_dim.. at linear index `rest` over them.
template <int kOperands>
__device__ __forceinline__ void add_outer_offsets(const StridedArgs<kOperands>& args, int first_dim,
                                                  uint32_t rest, uint32_t (&offsets)[kOperands]) {
  for (int d = first_dim; d < args.num_dims; ++d) {
    const uint32_t coordinate = d == args.num_dims - 1 ? rest : args.sizes[d].divmod(rest);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] += coordinate * args.strides[k][d];
  }
}

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
__device__ __forceinline__ Pack<T, N> repeat(T value) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = value;
  return pack;
}

template <typename T, int N>
__device__ __forceinline__ void store_values(T* address, const Pack<T, N>& pack, int count) {
  if (count == N) {
    store_pack(address, pack);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) address[i] = pack.values[i];
  }
}

// ---------------------------------------------------------------- kRows

template <typename T, Access kAccess, int N = kPackSize<T>>
__device__ __forceinline__ Pack<T, N> load_row_pack(const void* data, DType dtype, uint32_t offset,
                                                    uint32_t available) {
  if constexpr (kAccess == Access::kConverted) {
    Pack<T, N> pack;
    with_input_type<T>(dtype, [&](auto type) {
      using S = decltype(type);
      const auto from = load_values<S, N>(static_cast<const S*>(data) + offset);
#pragma unroll
      for (int i = 0; i < N; ++i) pack.values[i] = convert<T>(from.values[i]);
    });
    return pack;
  } else if constexpr (kAccess == Access::kUnaligned) {
    return load_pack_unaligned(static_cast<const T*>(data) + offset, available);
  } else {
    return load_pack<T, N>(static_cast<const T*>(data) + offset);
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

// args.sizes[0] counts packs; a stride along dimension 0 is that of a pack, or 0 to repeat a value.
template <typename F, typename T, Access kAccess, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  constexpr int N = kPackSize<T>;
  const uint32_t packs = args.numel / N;
  const uint32_t packs_per_row = args.num_dims == 1 ? packs : args.sizes[0].divisor;
  const uint32_t first = blockIdx.x * (kThreads * kPacks) + threadIdx.x;
  uint32_t offsets[kPacks][F::kInputs + 1];
  Pack<T, N> in[kPacks][F::kInputs];
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const uint32_t pack = first + u * kThreads;
    if (pack >= packs) break;
    find_offsets(args, pack, offsets[u]);
    // Values of the row from this pack on.
    const uint32_t column =
        args.num_dims == 1 ? pack : pack - args.sizes[0].div(pack) * packs_per_row;
    const uint32_t available = (packs_per_row - column) * N;
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const void* const data = args.data[k + 1];
      const uint32_t offset = offsets[u][k + 1];
      if (args.strides[k + 1][0] == 0) {
        in[u][k] = repeat<T, N>(load_value<T, kAccess>(data, args.dtypes[k + 1], offset));
      } else {
        in[u][k] = load_row_pack<T, kAccess>(data, args.dtypes[k + 1], offset, available);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    if (first + u * kThreads >= packs) break;
    store_pack(static_cast<T*>(args.data[0]) + offsets[u][0], apply<F, T, N>(f, in[u]));
  }

  // A single row may end inside a pack: one thread each for the values left, in the last block.
  const uint32_t tail = packs * N + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < args.numel) {
    Pack<T, 1> x[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const uint32_t offset = args.strides[k + 1][0] == 0 ? 0 : tail;
      x[k].values[0] = load_value<T, kAccess>(args.data[k + 1], args.dtypes[k + 1], offset);
    }
    static_cast<T*>(args.data[0])[tail] = apply<F, T, 1>(f, x).values[0];
  }
}

// ---------------------------------------------------------------- kPacked

// `count` of the `available` values from `address` on, `stride` apart.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_strided(const T* address, uint32_t stride, int count,
                                                   uint32_t available) {
  if (count == N) {
    if (stride == 1) {
      return load_pack_unaligned(address, available);
    }
    if (stride == 0) return repeat<T, N>(*address);
  }
  Pack<T, N> pack{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) pack.values[i] = address[i * stride];
  }
  return pack;
}

// Packs that run on from row to row of a dense, aligned output.
template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  constexpr int N = kPackSize<T>;
  const int64_t from = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (from >= args.numel) return;
  const auto index = static_cast<uint32_t>(from);
  const int count = min(static_cast<uint32_t>(N), args.numel - index);

  uint32_t row = index;
  uint32_t column = args.sizes[0].divmod(row);
  const uint32_t inner = args.sizes[0].divisor;
  uint32_t row_offsets[F::kInputs + 1] = {};
  add_outer_offsets(args, 1, row, row_offsets);

  Pack<T, N> in[F::kInputs];
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
    // Value by value, every address known before the first value arrives. Rows follow each other by
    // the stride of dimension 1, until that wraps too: at most once, for the plan sends planes
    // smaller than a pack to kGeneral.
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

  uint32_t offsets[F::kInputs + 1] = {};
  add_outer_offsets(args, 1, row, offsets);
  T* out = static_cast<T*>(args.data[0]) + offsets[0];
  const auto shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) / sizeof(T) % N);
  const RowSpan span = row_span(pack, shift, N, args.sizes[0].divisor);
  const int count = span.end - span.begin;

  Pack<T, N> in[F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride = args.strides[k + 1][0];
    const T* const data = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1];
    in[k] = load_strided<T, N>(data + span.begin * stride, stride, count,
                               args.sizes[0].divisor - span.begin);
  }
  const Pack<T, N> result = apply<F, T, N>(f, in);
  store_values(out + span.begin, result, count);
}

// ---------------------------------------------------------------- kTiled

// A square tile in shared memory, written in packs along one dimension (j) and read value by value
// along the other (i), both without bank conflicts. Packed: pack c of row i lies at place
// c ^ (i / N % 8) of its row, so 8 lanes that read one column for 8 neighbouring output packs hit 8
// different groups of banks. Value by value: rows are padded by one bank.
template <typename T, bool kPackedTiles>
struct Tile {
  // Single bytes move in eights: sixteen of them unpacked would take too many registers.
  static constexpr uint32_t N = !kPackedTiles ? 1 : sizeof(T) == 1 ? 8 : kPackSize<T>;
  static constexpr uint32_t kSide = sizeof(T) == 2 && kPackedTiles ? 128 : sizeof(T) <= 4 ? 64 : 32;
  static constexpr uint32_t kPitch = kSide + (kPackedTiles ? 0 : sizeof(T) < 4 ? 4 / sizeof(T) : 1);
  static constexpr uint32_t kPacks = kSide / N;  // along a side
  static constexpr uint32_t kValues = kSide * kPitch;
  static constexpr int kBytes = kValues * sizeof(T);
  static_assert(!kPackedTiles || kPacks % 8 == 0, "packs are permuted in groups of 8");

  // Pack c of row i.
  static __device__ __forceinline__ uint32_t row_pack(uint32_t i, uint32_t c) {
    return i * kPitch + (kPackedTiles ? (c ^ (i / N % 8)) : c) * N;
  }
  // Column j of the rows p * N, p * N + 1, ...: the first; the others follow kPitch apart.
  static __device__ __forceinline__ uint32_t column(uint32_t p, uint32_t j) {
    return p * N * kPitch + (kPackedTiles ? (j / N) ^ (p % 8) : j / N) * N + j % N;
  }
};

// Tiles are numbered in groups of kTileGroup along j, so that the blocks in flight together cover
// a square of tiles and every operand is touched in runs of several tiles.
constexpr int kTileGroup = 16;
struct TileGrid {
  FastDiv plane;        // tiles in dimensions 0 (i) and 1 (j, along which turned inputs are dense)
  FastDiv group;        // tiles in a group
  FastDiv group_width;  // of them along j
  FastDiv last_width;   // the same for the last group of a plane
  uint32_t last_group;
  uint32_t turned;  // bit k: input k goes through shared memory
  uint32_t packed;  // bit k: input k is read along i in aligned packs, else value by value
};

template <typename F, typename T, bool kPackedTiles, int kThreads>
__global__ void __launch_bounds__(kThreads)
    tiled_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                 const TileGrid grid) {
  using Layout = Tile<T, kPackedTiles>;
  constexpr uint32_t N = Layout::N, kSide = Layout::kSide, kPacks = Layout::kPacks;
  constexpr int kSteps = kSide * kPacks / kThreads;
  static_assert(kSteps * kThreads == kSide * kPacks && kThreads % kPacks == 0);
  extern __shared__ uint4 shared[];

  uint32_t rest = blockIdx.x;
  uint32_t group = grid.plane.divmod(rest);
  uint32_t tile_i = grid.group.divmod(group);
  const FastDiv width = group == grid.last_group ? grid.last_width : grid.group_width;
  const uint32_t tile_j = group * kTileGroup + width.divmod(tile_i);
  const uint32_t i0 = tile_i * kSide, j0 = tile_j * kSide;
  const uint32_t size_i = args.sizes[0].divisor, size_j = args.sizes[1].divisor;
  uint32_t offsets[F::kInputs + 1] = {};
  if (args.num_dims > 2) add_outer_offsets(args, 2, rest, offsets);

  // Where step s of this thread reads turned inputs: pack read_c of row read_i(s) ...
  const uint32_t read_c = threadIdx.x % kPacks;
  const auto read_i = [](int s) { return threadIdx.x / kPacks + s * (kThreads / kPacks); };
  // ... and which output pack it writes: write_p(s) along i at write_j(s). Neighbouring threads
  // write 8 packs of a row, then the next row (value by value: a whole row).
  constexpr uint32_t kLine = kPackedTiles ? 8 : kPacks;
  const auto write_j = [](int s) { return (threadIdx.x + s * kThreads) / kLine % kSide; };
  const auto write_p = [](int s) {
    return (threadIdx.x + s * kThreads) / (kLine * kSide) * kLine + threadIdx.x % kLine;
  };

  const auto tile_of = [&grid](int k) {
    return reinterpret_cast<T*>(shared) + __popc(grid.turned & ((1u << k) - 1)) * Layout::kValues;
  };

  // First everything that is read in packs (value by value: everything), all in flight together.
  // Packs wait as words, which take half the registers of separate 16-bit values.
  using Words = Pack<uint32_t, sizeof(Pack<T, N>) / sizeof(uint32_t)>;
  using Waiting = std::conditional_t<kPackedTiles, Words, Pack<T, N>>;
  Waiting waiting[kSteps][F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride_i = args.strides[k + 1][0], stride_j = args.strides[k + 1][1];
    const T* const data =
        static_cast<const T*>(args.data[k + 1]) + offsets[k + 1] + i0 * stride_i + j0 * stride_j;
    if (grid.turned >> k & 1) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = read_i(s), j = read_c * N;
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        const T* const from = data + i * stride_i + j * stride_j;
        if constexpr (kPackedTiles) {
          copy_async<T, N>(tile_of(k) + Layout::row_pack(i, read_c), from);
        } else {
          waiting[s][k].values[0] = *from;
        }
      }
    } else if (!kPackedTiles || (grid.packed >> k & 1)) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = write_p(s) * N, j = write_j(s);
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        waiting[s][k] = *reinterpret_cast<const Waiting*>(data + i * stride_i + j * stride_j);
      }
    }
  }
  if constexpr (kPackedTiles) {
    wait_for_copies();
  } else {
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (!(grid.turned >> k & 1)) continue;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        tile_of(k)[Layout::row_pack(read_i(s), read_c)] = waiting[s][k].values[0];
      }
    }
  }
  __syncthreads();

  T* const out = static_cast<T*>(args.data[0]) + offsets[0] + i0 + j0 * args.strides[0][1];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t i = write_p(s) * N, j = write_j(s);
    if (i0 + i >= size_i || j0 + j >= size_j) continue;
    Pack<T, N> in[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (grid.turned >> k & 1) {
        const T* const column = tile_of(k) + Layout::column(write_p(s), j);
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = column[e * Layout::kPitch];
      } else if (!kPackedTiles || (grid.packed >> k & 1)) {
        in[k] = *reinterpret_cast<const Pack<T, N>*>(&waiting[s][k]);
      } else {
        const uint32_t stride_i = args.strides[k + 1][0];
        const T* const from = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1] +
                              (i0 + i) * stride_i + (j0 + j) * args.strides[k + 1][1];
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = from[e * stride_i];
      }
    }
    store_pack(out + i + j * args.strides[0][1], apply<F, T, N>(f, in));
  }
}

// ---------------------------------------------------------------- kGeneral

template <typename F, typename T, int kThreads, int kSteps>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kSteps) + threadIdx.x;
  uint32_t offsets[kSteps][F::kInputs + 1];
  Pack<T, 1> in[kSteps][F::kInputs];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t index = first + s * kThreads;
    find_offsets(args, static_cast<uint32_t>(min(index, int64_t{args.numel} - 1)), offsets[s]);
  }
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    with_input_type<T>(args.dtypes[k + 1], [&](auto type) {
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
  with_output_type<T>(args.dtypes[0], [&](auto type) {
    using S = decltype(type);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kThreads >= args.numel) break;
      S* const out = static_cast<S*>(args.data[0]) + offsets[s][0];
      if constexpr (std::is_same_v<T, uint8_t>) {
        // int8 shares uint8's arithmetic; its sign matters once the result is widened.
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
