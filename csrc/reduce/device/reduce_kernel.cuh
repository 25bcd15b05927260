// Shared by the kernels of the reduction engine: loads of units, and stores of results.
// reduce_config.h defines the terms (output, unit, split).
#pragma once

#include <cstring>

#include "common/convert.cuh"
#include "common/index.h"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "reduce/reduce_args.h"
#include "reduce/reduce_types.h"

namespace gpuopt::reduce {

// Stands for a stored type that is known only at run time, as Args::in_dtype.
struct AnyType {};

template <typename In>
constexpr int kUnrollOf = values_in_flight(!std::is_same_v<In, AnyType>, sizeof(In));

// Blocks of a kernel that an SM must hold. kBlocks leaves 64 registers per thread. A switch over
// types, or 64 bytes of partial results per thread, need more, so fewer blocks are required.
template <typename In, typename V, int kValues>
constexpr int kBlocksOf =
    std::is_same_v<In, AnyType> || sizeof(V) * kValues >= 64 ? kBlocks / 2 : kBlocks;

// ---------------------------------------------------------------- offsets

// The offset of the element with linear index `linear` within the dimensions from `first` on, and
// before `end`.
__device__ __forceinline__ int64_t in_offset(const KernelDims& dims, int first, int end,
                                             uint32_t linear) {
  int64_t offset = 0;
#pragma unroll 1
  for (int d = first; d < end; ++d) {
    const uint32_t digit = d + 1 < end ? dims.sizes[d].divmod(linear) : linear;
    offset += digit * dims.in_strides[d];
  }
  return offset;
}
__device__ __forceinline__ int64_t in_offset(const KernelDims& dims, int first, uint32_t linear) {
  return in_offset(dims, first, dims.count, linear);
}

__device__ __forceinline__ int64_t out_offset(const Args& args, uint32_t output) {
  if (args.linear_out) return output;
  int64_t offset = 0;
#pragma unroll 1
  for (int d = 0; d < args.kept.count; ++d) {
    const uint32_t digit = d + 1 < args.kept.count ? args.kept.sizes[d].divmod(output) : output;
    offset += digit * args.kept.out_strides[d];
  }
  return offset;
}

// ---------------------------------------------------------------- results

// Calls put() with a value of the output's type, which must be a type that V accumulates for.
template <typename V, typename Put>
__device__ __forceinline__ void with_out_type(DType dtype, Put&& put) {
  if constexpr (std::is_same_v<V, float>) {
    if (dtype == DType::kFloat16) return put(__half{});
    if (dtype == DType::kBFloat16) return put(__nv_bfloat16{});
    put(float{});
  } else if constexpr (std::is_same_v<V, Complex<float>>) {
    if (dtype == DType::kComplex32) return put(Complex<__half>{});
    put(Complex<float>{});
  } else if constexpr (std::is_integral_v<V>) {
    switch (dtype) {
      case DType::kBool:
        return put(Bool{});
      case DType::kUInt8:
      case DType::kInt8:
        return put(int8_t{});
      case DType::kInt16:
        return put(int16_t{});
      case DType::kInt32:
        return put(int32_t{});
      default:
        return put(int64_t{});
    }
  } else {
    put(V{});
  }
}

template <typename Op>
__device__ __forceinline__ void store(const Op& op, const Args& args, uint32_t output,
                                      typename Op::Value value) {
  using V = typename Op::Value;
  const V result = op.finish(value);
  const int64_t offset = out_offset(args, output);
  with_out_type<V>(args.out_dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(args.out)[offset] = convert<T>(result);
  });
}

// The workspace slot of one split's partial result for an output.
template <typename V>
__device__ __forceinline__ V* slot_of(const Args& args, uint32_t output, uint32_t split) {
  return static_cast<V*>(args.workspace) + int64_t{args.first_slot + split} * args.outputs + output;
}

// Writes an output's result, or a split's partial result to the workspace.
template <typename Op>
__device__ __forceinline__ void emit(const Op& op, const Args& args, uint32_t output,
                                     uint32_t split, typename Op::Value value) {
  if (args.workspace == nullptr) {
    store(op, args, output, value);
  } else {
    *slot_of<typename Op::Value>(args, output, split) = value;
  }
}

// Writes kCount neighbouring outputs. With `packed`, they are an aligned vector in memory.
template <int kCount, typename Op>
__device__ __forceinline__ void emit_vec(const Op& op, const Args& args, uint32_t output,
                                         uint32_t split, bool packed,
                                         const typename Op::Value* values) {
  using V = typename Op::Value;
  if (args.workspace != nullptr) {
    V* slot = slot_of<V>(args, output, split);
#pragma unroll
    for (int v = 0; v < kCount; ++v) slot[v] = values[v];
  } else if (kCount > 1 && packed) {
    const int64_t offset = out_offset(args, output);
    with_out_type<V>(args.out_dtype, [&](auto type) {
      using T = decltype(type);
      constexpr int kMost = kAccessBytes / static_cast<int>(sizeof(T));
      constexpr int kPart = kCount < kMost ? kCount : kMost;
      T* out = static_cast<T*>(args.out) + offset;
#pragma unroll
      for (int i = 0; i < kCount; i += kPart) {
        Vec<T, kPart> vec;
#pragma unroll
        for (int v = 0; v < kPart; ++v) vec.values[v] = convert<T>(op.finish(values[i + v]));
        store_vec(out + i, vec);
      }
    });
  } else {
#pragma unroll
    for (int v = 0; v < kCount; ++v) store(op, args, output + v, values[v]);
  }
}

// ---------------------------------------------------------------- combining

// Combines values in pairs, so that the rounding error grows with the logarithm of their number.
template <int kCount, typename Op>
__device__ __forceinline__ typename Op::Value combine_all(const Op& op,
                                                          const typename Op::Value* values) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    return op.combine(combine_all<kCount / 2>(op, values),
                      combine_all<kCount - kCount / 2>(op, values + kCount / 2));
  }
}

// Combines the values of the lanes whose indices differ only in bits `low` to `high` / 2. Both are
// powers of two. All lanes get the result.
template <typename Op>
__device__ __forceinline__ typename Op::Value combine_lanes(const Op& op, typename Op::Value value,
                                                            uint32_t low, uint32_t high) {
#pragma unroll
  for (uint32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    if (mask >= low && mask < high) {
      value = op.combine(value, shuffle_xor(value, static_cast<int>(mask)));
    }
  }
  return value;
}

// ---------------------------------------------------------------- loading

// How a unit of kValues neighbouring values is read.
enum class Read {
  kAligned,    // the address is a multiple of the unit's size
  kUnaligned,  // a 16-byte vector at any address: one aligned load, or two
  kShifted,    // an aligned vector. It is left out if it begins before the input or ends after it
  kSpread,     // value by value. Spread says where they lie
};

// How far the values of a unit lie from its offset, for Read::kSpread.
template <Read kRead, int kValues>
struct Spread {};
template <int kValues>
struct Spread<Read::kSpread, kValues> {
  int64_t offsets[kValues];
};

// Loads up to kUnroll units, where valid[u] is set, and combines them element by element in pairs.
// Calls consume() with the kValues results. All loads are in flight before the first value is used.
template <typename In, typename Mid, int kValues, int kUnroll, Read kRead, typename Op,
          typename Consume>
__device__ __forceinline__ void load_units(const Op& op, const Args& args,
                                           const int64_t (&offsets)[kUnroll],
                                           const bool (&valid)[kUnroll], Consume&& consume,
                                           const Spread<kRead, kValues>& spread = {}) {
  using V = typename Op::Value;
  if constexpr (std::is_same_v<In, AnyType>) {
    static_assert(kValues == 1);
    dispatch_stored(args.in_dtype, [&](auto type) {
      using S = decltype(type);
      S raw[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (valid[u]) raw[u] = static_cast<const S*>(args.in)[offsets[u]];
      }
      V values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        values[u] = valid[u] ? convert<V>(convert<Mid>(raw[u])) : op.identity();
      }
      const V total = combine_all<kUnroll>(op, values);
      consume(&total);
    });
  } else {
    const auto use = [&](const Vec<In, kValues>(&vecs)[kUnroll]) {
      V totals[kValues];
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        V values[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          values[u] = valid[u] ? convert<V>(vecs[u].values[v]) : op.identity();
        }
        totals[v] = combine_all<kUnroll>(op, values);
      }
      consume(totals);
    };
    const In* in = static_cast<const In*>(args.in);
    Vec<In, kValues> vecs[kUnroll];
    if constexpr (kRead == Read::kUnaligned) {
      // If the second aligned vector of any unit would reach past the end of the input, all units
      // are read value by value.
      bool inside = true;
      uintptr_t blocks[kUnroll];
      uint32_t shifts[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const auto address = reinterpret_cast<uintptr_t>(in + offsets[u]);
        shifts[u] = static_cast<uint32_t>(address % kAccessBytes);
        blocks[u] = address - shifts[u];
        const uintptr_t end = blocks[u] + (shifts[u] == 0 ? 1 : 2) * kAccessBytes;
        inside = inside && (!valid[u] || end <= reinterpret_cast<uintptr_t>(in + args.reach));
      }
      if (inside) {
        uint4 low[kUnroll], high[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const auto* block = reinterpret_cast<const uint4*>(blocks[u]);
          low[u] = load_16_bytes(block, valid[u], args.read_once);
          high[u] = load_16_bytes(block + 1, valid[u] && shifts[u] != 0, args.read_once);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) vecs[u] = shift_vecs<In>(low[u], high[u], shifts[u]);
      } else {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (int v = 0; v < kValues; ++v) {
            if (valid[u]) vecs[u].values[v] = in[offsets[u] + v];
          }
        }
      }
    } else if constexpr (kRead == Read::kSpread) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          if (valid[u]) vecs[u].values[v] = in[offsets[u] + spread.offsets[v]];
        }
      }
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if constexpr (sizeof(In) * kValues == kAccessBytes) {
          vecs[u] = vec_of<In>(load_16_bytes(in + offsets[u], valid[u], args.read_once));
        } else {
          if (valid[u]) vecs[u] = load_vec<In, kValues>(in + offsets[u]);
        }
      }
    }
    use(vecs);
  }
}

// Walks one split's units of an output. The output's units lie in one row (outer_units == 1), begin
// at `base` and are args.inner_stride values apart. Groups of kUnroll * lanes units are dealt to
// the splits in turn, so that blocks that run at the same time read neighbouring memory.
template <typename In, typename Mid, int kValues, int kUnroll, Read kRead, typename Op,
          typename Consume>
__device__ __forceinline__ void walk_row(const Op& op, const Args& args, int64_t base,
                                         int64_t units, uint32_t lane, uint32_t lanes,
                                         uint32_t split, Consume&& consume,
                                         const Spread<kRead, kValues>& spread = {}) {
  const int64_t group = int64_t{kUnroll} * lanes;
  const int64_t step = lanes * args.inner_stride;
  const auto inside = [&](int64_t offset) {
    return kRead != Read::kShifted || (offset >= 0 && offset + kValues <= args.reach);
  };
  int64_t offsets[kUnroll];
  bool valid[kUnroll];
  int64_t begin = split * group;
  for (; begin + group <= units; begin += args.splits.divisor * group) {
    const int64_t first = base + (begin + lane) * args.inner_stride;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      offsets[u] = first + u * step;
      valid[u] = inside(offsets[u]);
    }
    load_units<In, Mid, kValues, kUnroll, kRead>(op, args, offsets, valid, consume, spread);
  }
  if (begin >= units) return;
  const int64_t first = base + (begin + lane) * args.inner_stride;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    offsets[u] = first + u * step;
    valid[u] = begin + lane + u * int64_t{lanes} < units && inside(offsets[u]);
  }
  load_units<In, Mid, kValues, kUnroll, kRead>(op, args, offsets, valid, consume, spread);
}

// As walk_row, for an output whose units lie in several rows. position(row_offset, inner, valid)
// returns the offset of unit `inner` in the row at row_offset, and may clear `valid`.
template <typename In, typename Mid, int kValues, int kUnroll, Read kRead, typename Op,
          typename Position, typename Consume>
__device__ __forceinline__ void walk_rows(const Op& op, const Args& args, int64_t base,
                                          uint32_t lane, uint32_t lanes, uint32_t split,
                                          Position&& position, Consume&& consume,
                                          const Spread<kRead, kValues>& spread = {}) {
  const auto units = static_cast<uint32_t>(args.units);
  const uint32_t group = kUnroll * lanes;
  for (uint32_t first = split * group; first < units; first += args.splits.divisor * group) {
    int64_t offsets[kUnroll];
    bool valid[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * lanes >= units) {  // for all threads
        valid[u] = false;
        offsets[u] = base;
        continue;
      }
      uint32_t outer = first + lane + u * lanes;
      valid[u] = outer < units;
      const uint32_t inner = args.inner_units.divmod(outer);
      offsets[u] = position(base + in_offset(args.reduced, 1, outer), inner, valid[u]);
    }
    load_units<In, Mid, kValues, kUnroll, kRead>(op, args, offsets, valid, consume, spread);
  }
}

}  // namespace gpuopt::reduce
