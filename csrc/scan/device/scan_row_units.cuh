// The units of a row: where they lie in a tile, their values, and how they are loaded.
//
// If kShifted, a row may begin and end inside of a vector. The values of this vector that belong to
// the row are moved one by one. Units are aligned in the result. In path kRows, the rows of an
// input may be skewed, that is, begin elsewhere in a vector. A unit is then cut out of two vectors:
//
//   result         | .  .  .  a0 | a1 a2 a3 a4 | a5 a6 ...
//   skewed input   | .  .  a0 a1 | a2 a3 a4 a5 | a6 ...
#pragma once

#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

// Where the units of a thread lie in a tile of a row. A thread has args.units of them.
template <typename Op, int N, bool kShifted>
struct RowUnits {
  const Args& args;
  const Offsets& row;
  int lead;  // values of the first vector that are not of the row: 0 unless kShifted
  int64_t tile;

  // The position in its row of the first value of a unit, in the order of the scan.
  __device__ __forceinline__ int64_t position(uint32_t u) const {
    const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int64_t first =
        (tile * blockDim.x + warp * kWarp) * (args.units * N) + (u * kWarp + lane) * N;
    return kShifted ? first - lead : first;
  }
  // The position of its first value in the order of memory.
  __device__ __forceinline__ int64_t in_memory(uint32_t u) const {
    const int64_t first = position(u);
    return args.reverse ? args.length - N - first : first;
  }
  __device__ __forceinline__ Part part(uint32_t u) const {
    if (u >= args.units) return {};
    if (!kShifted) return {0, position(u) < args.length ? N : 0};
    const int64_t first = in_memory(u), left = args.length - first;
    return {static_cast<int>(first < 0 ? -first : 0),
            static_cast<int>(max(int64_t{0}, min(int64_t{N}, left)))};
  }
  __device__ __forceinline__ Offsets offsets(uint32_t u) const {
    return row.at<Op>(args, in_memory(u));
  }
  // Which value of a unit is the first of the row, in the order of the scan, or -1.
  __device__ __forceinline__ int head(uint32_t u) const {
    return u == 0 && tile == 0 && threadIdx.x == 0 ? lead : -1;
  }
};

// RowUnits::lead of a row.
template <typename Mid, int N, bool kShifted>
__device__ __forceinline__ int lead_of(const Args& args, const Offsets& row) {
  if (!kShifted) return 0;
  const int64_t begin = reinterpret_cast<intptr_t>(args.out) / sizeof(Mid) + row.out;
  return static_cast<int>((args.reverse ? -(begin + args.length) : begin) & (N - 1));
}

// By how many values the units of each input lie behind aligned vectors.
struct Skew {
  int in = 0, second = 0;

  __device__ __forceinline__ bool any() const { return (in | second) != 0; }
};

// The skew of a row. `first`: where a unit begins in it, in the order of memory.
template <typename Op, typename In, int N>
__device__ __forceinline__ Skew skew_of(const Args& args, const Offsets& row, int64_t first) {
  const auto behind = [&](const void* data, int64_t offset) {
    const auto address = reinterpret_cast<uintptr_t>(static_cast<const In*>(data) + offset);
    return static_cast<int>(address / sizeof(In) % N);
  };
  Skew skew{behind(args.in, row.in + first), 0};
  if constexpr (Op::kInputs == 2) {
    if (!args.second_is_one) skew.second = behind(args.second, row.second + first);
  }
  return skew;
}

// The N values from value `skip` of two neighbouring vectors.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> cut_out(const Vec<T, N>& low, const Vec<T, N>& high,
                                             int skip) {
  uint4 words[2] = {};
  auto* bytes = reinterpret_cast<unsigned char*>(words);
  memcpy(bytes, &low, sizeof(low));
  memcpy(bytes + sizeof(low), &high, sizeof(high));
  const auto found = shift_vecs<unsigned char>(words[0], words[1], skip * sizeof(T));
  Vec<T, N> values;
  memcpy(&values, &found, sizeof(values));
  return values;
}

// A unit of a row whose values have the order of the scan.
template <typename Op, typename In, typename Mid, int N, bool kShifted>
struct RowUnit {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N, kShifted>;

  typename M::Raw raw;
  int head;         // RowUnits::head. The values before it are not of the row
  int64_t initial;  // offset of the row's initial value

  __device__ __forceinline__ typename Op::Input input(const Op& op, const Args& args, int v) const {
    const auto own = M::input(op, raw, v);
    return v == 0 || kShifted ? M::started(op, args, own, v == head, initial) : own;
  }
  __device__ __forceinline__ V value(const Op& op, const typename Op::Input& input, int v) const {
    if (!kShifted) return op.value(input, v == 0 && head == 0);
    return v < head ? op.identity() : op.value(input, v == head);
  }
  __device__ __forceinline__ V total(const Op& op, const Args& args) const {
    V total = value(op, input(op, args, 0), 0);
#pragma unroll
    for (int v = 1; v < N; ++v) total = op.combine(total, value(op, input(op, args, v), v));
    return total;
  }

  // Stores the results. `before` is the result of everything before the unit.
  __device__ __forceinline__ void store(const Op& op, const Args& args, int64_t offset,
                                        const Part& part, V before) const {
    typename Op::Stored results[N];
    V local = op.identity(), previous = before;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const auto in = input(op, args, v);
      const V own = value(op, in, v);
      local = v == 0 || Op::kInTurn ? own : op.combine(local, own);
      const V after = op.combine(Op::kInTurn ? previous : before, local);
      results[v] = op.result(previous, after, in, args.exclusive);
      previous = after;
    }
    M::store(args, offset, part, results);
  }
};

// Loads the parts of units that are of a row.
template <typename M, int N, bool kShifted, int U>
__device__ __forceinline__ void load_parts(const Args& args, const Offsets (&offsets)[U],
                                           const Part (&parts)[U], typename M::Raw (&units)[U]) {
  int valid[U];
#pragma unroll
  for (int u = 0; u < U; ++u) valid[u] = parts[u].template is_whole<N>() ? N : 0;
  M::load(args, offsets, valid, units);
  if constexpr (kShifted) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (valid[u] == 0) M::load_one_by_one(args, offsets[u], parts[u], units[u]);
    }
  }
}

// Loads the units of a row that may be skewed. Those whose vectors do not lie in the row are loaded
// one by one.
template <typename Op, typename M, int N, int U>
__device__ __forceinline__ void load_skewed(const Args& args, const RowUnits<Op, N, true>& place,
                                            const Skew& skew, typename M::Raw (&units)[U]) {
  Offsets offsets[U];
  int valid[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t first = place.in_memory(u);
    const bool is_whole = skew.any() ? first >= N && first + 2 * N <= args.length
                                     : place.part(u).template is_whole<N>();
    valid[u] = is_whole ? N : 0;
    offsets[u] = place.offsets(u);
    offsets[u].in -= skew.in;
    offsets[u].second -= skew.second;
  }
  M::load(args, offsets, valid, units);
  if (skew.any()) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      offsets[u].in += skew.in > 0 ? N : 0;
      offsets[u].second += skew.second > 0 ? N : 0;
    }
    typename M::Raw next[U];  // other lanes have loaded these vectors
    M::load(args, offsets, valid, next);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if constexpr (Op::kInputs == 2) {
        units[u].first = cut_out(units[u].first, next[u].first, skew.in);
        units[u].second = cut_out(units[u].second, next[u].second, skew.second);
      } else {
        units[u] = cut_out(units[u], next[u], skew.in);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (valid[u] == 0) M::load_one_by_one(args, place.offsets(u), place.part(u), units[u]);
  }
}

}  // namespace gpuopt::scan
