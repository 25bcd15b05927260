// Shared by the kernels of scans: loads and stores of units, and scans within a warp. scan_layout.h
// defines the terms (row, unit, tile).
#pragma once

#include "common/convert.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "scan/device/scan_operators.cuh"
#include "scan/scan_args.h"
#include "scan/scan_tuning.h"

namespace gpuopt::scan {

// Converts values. Two of fp16 or bf16 take one instruction, and it is much faster than two for one
// value each.
template <typename T, int N, typename V>
__device__ __forceinline__ Vec<T, N> convert_all(const V (&values)[N]) {
  Vec<T, N> vec;
  constexpr bool kPairs = N % 2 == 0 && std::is_same_v<V, float>;
#pragma unroll
  for (int v = 0; v < N; v += kPairs ? 2 : 1) {
    if constexpr (kPairs && std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[v], values[v + 1]);
      vec.values[v] = pair.x;
      vec.values[v + 1] = pair.y;
    } else if constexpr (kPairs && std::is_same_v<T, __half>) {
      const __half2 pair = __floats2half2_rn(values[v], values[v + 1]);
      vec.values[v] = pair.x;
      vec.values[v + 1] = pair.y;
    } else {
      vec.values[v] = convert<T>(values[v]);
      if constexpr (kPairs) vec.values[v + 1] = convert<T>(values[v + 1]);
    }
  }
  return vec;
}

// Stands for stored types that are known only at run time, as Args::in_dtype and out_dtype.
struct AnyType {};

// Offsets in the tensors. Kernels of operators with one input leave the last two unused.
struct Offsets {
  int64_t in = 0, out = 0, second = 0, initial = 0;

  // The offsets of a position in the row that begins here.
  template <typename Op>
  __device__ __forceinline__ Offsets at(const Args& args, int64_t position) const {
    Offsets offsets = *this;
    offsets.in += position * args.in_stride;
    offsets.out += position * args.out_stride;
    if constexpr (Op::kInputs == 2) offsets.second += position * args.second_stride;
    return offsets;
  }
};

// The values of a unit that belong to a row or chunk, in the order of memory: begin to end - 1.
struct Part {
  int begin = 0, end = 0;

  template <int N>
  __device__ __forceinline__ bool is_whole() const {
    return begin == 0 && end == N;
  }
};

// The offsets of the beginning of a row.
template <typename Op>
__device__ __forceinline__ Offsets row_offsets(const KernelDims& dims, uint32_t row) {
  Offsets offsets;
#pragma unroll 1
  for (int d = 0; d < dims.count; ++d) {
    const uint32_t digit = d + 1 < dims.count ? dims.sizes[d].divmod(row) : row;
    offsets.in += digit * dims.in_strides[d];
    offsets.out += digit * dims.out_strides[d];
    if constexpr (Op::kInputs == 2) {
      offsets.second += digit * dims.second_strides[d];
      offsets.initial += digit * dims.initial_strides[d];
    }
  }
  return offsets;
}

// ---------------------------------------------------------------- loads and stores

template <typename Op, typename In, int N>
constexpr auto raw_unit() {
  if constexpr (std::is_same_v<In, AnyType>) {
    return Vec<typename Op::Stored, 1>{};
  } else if constexpr (Op::kInputs == 2) {
    struct Both {
      Vec<In, N> first, second;
    };
    return Both{};
  } else {
    return Vec<In, N>{};
  }
}

// A unit in registers, as it lies in memory. Values of a run-time type are converted when they are
// loaded.
template <typename Op, typename In, int N>
using RawUnit = decltype(raw_unit<Op, In, N>());

// How the values of an operator are stored. `In` is the type in memory, `Mid` the type that each
// value is converted to first, which is also the type of the result. N is the number of values of a
// unit.
template <typename Op, typename In, typename Mid, int N, bool kPartial = false>
struct Memory {
  using V = typename Op::Stored;
  using Input = typename Op::Input;
  static constexpr bool kTwo = Op::kInputs == 2;
  static constexpr bool kAny = std::is_same_v<In, AnyType>;
  static_assert(!kAny || (N == 1 && !kTwo));

  using Raw = RawUnit<Op, In, N>;

  // Loads U units. valid[u] says how many values of a unit exist, from its first: all or none,
  // unless kPartial. All loads are in flight before the first value is used.
  template <int U>
  __device__ __forceinline__ static void load(const Args& args, const Offsets (&offsets)[U],
                                              const int (&valid)[U], Raw (&units)[U]) {
    if constexpr (kAny) {
      // Two at a time: the widest types would fill the registers otherwise.
#pragma unroll
      for (int u = 0; u < U; u += 2) {
        const int next = u + 1 < U ? u + 1 : u;
        dispatch_stored(args.in_dtype, [&](auto type) {
          using S = decltype(type);
          const S* in = static_cast<const S*>(args.in);
          S first{}, second{};
          if (valid[u] > 0) first = in[offsets[u].in];
          if (valid[next] > 0) second = in[offsets[next].in];
          units[u].values[0] = convert<V>(convert<Mid>(first));
          units[next].values[0] = convert<V>(convert<Mid>(second));
        });
      }
    } else if constexpr (kTwo) {
      const In* second = static_cast<const In*>(args.second);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        load_whole(static_cast<const In*>(args.in) + offsets[u].in, valid[u], units[u].first);
      }
      if (N > 1 && args.second_is_one) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
          if (valid[u] > 0) units[u].second.values[0] = second[offsets[u].second];
#pragma unroll
          for (int v = 1; v < N; ++v) units[u].second.values[v] = units[u].second.values[0];
        }
      } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
          load_whole(second + offsets[u].second, valid[u], units[u].second);
        }
      }
      if constexpr (kPartial) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
          load_part(static_cast<const In*>(args.in) + offsets[u].in, valid[u], units[u].first);
          if (!args.second_is_one) {
            load_part(second + offsets[u].second, valid[u], units[u].second);
          }
        }
      }
    } else {
      const In* in = static_cast<const In*>(args.in);
#pragma unroll
      for (int u = 0; u < U; ++u) load_whole(in + offsets[u].in, valid[u], units[u]);
      if constexpr (kPartial) {
#pragma unroll
        for (int u = 0; u < U; ++u) load_part(in + offsets[u].in, valid[u], units[u]);
      }
    }
  }

  // Reverses the values of a unit if the scan is reversed. Later, values have the order of the
  // scan.
  __device__ __forceinline__ static void into_order(const Args& args, Raw& unit) {
    if constexpr (N > 1) {
      if (!args.reverse) return;
      if constexpr (kTwo) {
        reverse(unit.first);
        reverse(unit.second);
      } else {
        reverse(unit);
      }
    }
  }

  // Value v of a unit. A value that does not exist may be anything: no result depends on it, since
  // it lies behind the end of its row or in a row that does not exist.
  __device__ __forceinline__ static Input input(const Op& op, const Raw& unit, int v) {
    if constexpr (kAny) {
      return unit.values[v];
    } else if constexpr (kTwo) {
      return op.pair(widened(unit.second.values[v]), widened(unit.first.values[v]));
    } else {
      return widened(unit.values[v]);
    }
  }

  // Puts the row's initial value into its first input. `initial` is an offset.
  __device__ __forceinline__ static Input started(const Op& op, const Args& args, Input input,
                                                  bool is_first, int64_t initial) {
    if constexpr (kTwo) {
      if (is_first && args.initial != nullptr) {
        const In value = static_cast<const In*>(args.initial)[initial];
        return op.start(input, widened(value));
      }
    }
    return input;
  }

  // Loads the values of a unit that belong to a row, one by one. Values outside the row keep their
  // old contents. If the whole row has one factor, it is copied to every value, because Stage
  // reads value 0.
  __device__ __forceinline__ static void load_one_by_one(const Args& args, const Offsets& offsets,
                                                         const Part& part, Raw& unit) {
    if constexpr (!kAny) {
      const In* in = static_cast<const In*>(args.in) + offsets.in;
      const In* second = static_cast<const In*>(args.second) + offsets.second;
#pragma unroll
      for (int v = 0; v < N; ++v) {
        if constexpr (kTwo) {
          if (args.second_is_one && part.begin < part.end) unit.second.values[v] = second[0];
        }
        if (v < part.begin || v >= part.end) continue;
        if constexpr (kTwo) {
          unit.first.values[v] = in[v];
          if (!args.second_is_one) unit.second.values[v] = second[v];
        } else {
          unit.values[v] = in[v];
        }
      }
    }
  }

  // Stores the results of a unit, given in the order of the scan.
  __device__ __forceinline__ static void store(const Args& args, int64_t offset, const Part& part,
                                               const V (&results)[N]) {
    store_part(args, offset, part, results, args.reverse);
  }

  // Stores results that are given in the order of memory. `valid` is N, or 0 to store nothing.
  __device__ __forceinline__ static void store_in_order(const Args& args, int64_t offset, int valid,
                                                        const V (&results)[N]) {
    store_part(args, offset, {0, valid}, results, false);
  }

 private:
  __device__ __forceinline__ static void store_part(const Args& args, int64_t offset,
                                                    const Part& part, const V (&results)[N],
                                                    bool reversed) {
    if constexpr (kAny && std::is_integral_v<V>) {
      if (part.end > 0) store_integer(args, offset, results[0]);
    } else {
      Mid* out = static_cast<Mid*>(args.out) + offset;
      Vec<Mid, N> vec = convert_all<Mid, N>(results);
      if (N > 1 && reversed) reverse(vec);
      if (part.is_whole<N>()) {
        if constexpr (N > 1) {
          store_whole(out, vec);
        } else {
          store_vec(out, vec);
        }
      } else if constexpr (kPartial) {
#pragma unroll
        for (int v = 0; v < N; ++v) {
          if (v >= part.begin && v < part.end) out[v] = vec.values[v];
        }
      }
    }
  }

  // Converts a stored value by way of Mid. Without the special case, the compiler would round
  // values of bf16 to bf16.
  __device__ __forceinline__ static V widened(In value) {
    if constexpr (std::is_same_v<In, Mid>) {
      return convert<V>(value);
    } else {
      return convert<V>(convert<Mid>(value));
    }
  }

  template <typename T>
  __device__ __forceinline__ static void reverse(Vec<T, N>& vec) {
#pragma unroll
    for (int v = 0; v < N / 2; ++v) {
      const T other = vec.values[v];
      vec.values[v] = vec.values[N - 1 - v];
      vec.values[N - 1 - v] = other;
    }
  }

  // Loads a unit whose values all exist.
  __device__ __forceinline__ static void load_whole(const In* from, int valid, Vec<In, N>& unit) {
    if constexpr (sizeof(unit) == kAccessBytes && N > 1) {
      unit = vec_of<In>(load_16_bytes(from, valid == N, /*once=*/false));
    } else {
      if (valid == N) unit = load_vec<In, N>(from);
    }
  }

  // Loads the values of a unit that exist, unless they are all or none.
  __device__ __forceinline__ static void load_part(const In* from, int valid, Vec<In, N>& unit) {
    if (valid == 0 || valid == N) return;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      if (v < valid) unit.values[v] = from[v];
    }
  }

  __device__ __forceinline__ static void store_integer(const Args& args, int64_t offset, V value) {
    const auto put = [&](auto type) {
      using T = decltype(type);
      static_cast<T*>(args.out)[offset] = static_cast<T>(value);
    };
    switch (args.out_dtype) {
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
  }
};

// Units of a row that a thread has in flight, for each input.
template <typename Op, typename In, typename Mid, int N>
constexpr int kUnits =
    (N > 1 || (!std::is_same_v<In, AnyType> && sizeof(Mid) == kAccessBytes) ? kVecUnits
                                                                            : kSingleUnits) /
    Op::kInputs;

// ---------------------------------------------------------------- scans within a warp

// The inclusive scan over the units of a warp, one per lane. A lane combines with the lanes below
// whose last values are at most `reach` values before its own last value. `reach` must be less than
// `length`.
template <int N, typename Op>
__device__ __forceinline__ typename Op::Value scan_lanes(const Op& op, typename Op::Value total,
                                                         uint32_t reach,
                                                         uint32_t length = kWarp * N + 1) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    if (distance * N >= length) break;
    const auto before = shuffle_up(total, distance);
    if (lane >= distance && distance * N <= reach) total = op.combine(before, total);
  }
  return total;
}

}  // namespace gpuopt::scan
