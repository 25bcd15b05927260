// The kernel of few entries. Each block has some bins. It looks for their entries in the index,
// sorts them by bin, and reduces each bin in the order of its entries:
//
//   index            7  2  7  5  2  7  7        a block with bins 2 to 5
//   words found      2:4   2:1   5:3            bin and position, in any order
//   sorted           2:1   2:4 | 5:3
//   written          2, 3, 4 and 5              3 and 4 are zeros, so nothing fills `out` before
//
// Every result is written once. The order of its additions depends on the index and the number of
// SMs, unless a block has many entries and the caller allows any order.
#pragma once

#include "common/index_reader.cuh"
#include "common/launch.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "scatter/scatter.h"

namespace gpuopt::scatter {

// ---------------------------------------------------------------- what is computed of a bin

template <typename T, int V>
struct SumState {
  using C = compute_t<T>;
  C values[V];

  __device__ __forceinline__ void start(const Args&) {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = 0;
  }
  __device__ __forceinline__ void add(const Vec<T, V>& slice, uint32_t) {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] += to_compute(slice.values[i]);
  }
  // `next` has later entries.
  __device__ __forceinline__ void add(const SumState& next) {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] += next.values[i];
  }
  __device__ __forceinline__ void store(const Args& args, uint32_t count, int64_t at) const {
    const C divisor = args.is_mean && count > 1 ? static_cast<C>(count) : C{1};
    Vec<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[i] = from_compute<T>(divisor == C{1} ? values[i] : values[i] / divisor);
    }
    store_vec(static_cast<T*>(args.out) + at, result);
  }
};

// A NaN is the maximum and the minimum. The first of equal values counts.
template <typename T, int V>
struct ExtremumState {
  using C = compute_t<T>;
  C values[V];
  int32_t entries[V];
  bool is_min;

  __device__ __forceinline__ void start(const Args& args) {
    is_min = args.is_min;
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = 0, entries[i] = -1;
  }
  __device__ __forceinline__ void add(int i, C value, int32_t entry) {
    const bool is_beyond = is_min ? value < values[i] : value > values[i];
    const bool is_nan = value != value, was_nan = values[i] != values[i];
    const bool is_earlier = (value == values[i] || (is_nan && was_nan)) && entry < entries[i];
    if (entries[i] < 0 || is_beyond || (is_nan && !was_nan) || is_earlier) {
      values[i] = value, entries[i] = entry;
    }
  }
  __device__ __forceinline__ void add(const Vec<T, V>& slice, uint32_t entry) {
#pragma unroll
    for (int i = 0; i < V; ++i) add(i, to_compute(slice.values[i]), static_cast<int32_t>(entry));
  }
  __device__ __forceinline__ void add(const ExtremumState& next) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (next.entries[i] >= 0) add(i, next.values[i], next.entries[i]);
    }
  }
  __device__ __forceinline__ void store(const Args& args, uint32_t, int64_t at) const {
    Vec<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = from_compute<T>(values[i]);
    store_vec(static_cast<T*>(args.out) + at, result);
    if (args.arg == nullptr) return;
#pragma unroll
    for (int i = 0; i < V; ++i) args.arg[at + i] = entries[i];
  }
};

// ---------------------------------------------------------------- the entries of a block

// The entries of a block's bins. An entry is a word: its bin, counted from the block's first one,
// in the high half, and its position in the low half. So words sort by bin, then by position.
struct Found {
  uint32_t count;
  uint32_t begins[kMaxRows + 1];  // of each bin among the sorted entries
  uint16_t entries[kMaxEntries];  // sorted

  // Appends the words of the entries to `words`, in any order.
  __device__ __forceinline__ void list(const Args& args, int64_t first_bin, uint32_t* words) {
    const uint32_t lane = threadIdx.x % 32;
    // All lanes of a warp take part in the same rounds.
    for (uint32_t from = threadIdx.x - lane; from < args.entries; from += kThreads * kLoads) {
      uint32_t entries[kLoads];
      int64_t bins[kLoads];
      int valid = 0;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        entries[i] = from + i * kThreads + lane;
        if (entries[i] < args.entries) valid = i + 1;
      }
      args.index.load(entries, valid, bins);
      args.index.check(valid, bins);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const bool is_found = i < valid && bins[i] >= first_bin && bins[i] < first_bin + args.rows;
        const uint32_t lanes = __ballot_sync(0xffffffffu, is_found);
        if (lanes == 0) continue;
        uint32_t at = lane == 0 ? atomicAdd(&count, __popc(lanes)) : 0;
        at = __shfl_sync(0xffffffffu, at, 0) + __popc(lanes & ((1u << lane) - 1));
        if (is_found) {
          words[at] = static_cast<uint32_t>(bins[i] - first_bin) << 16 | entries[i];
        }
      }
    }
  }

  // Sorts at most kMostRanked words. A word's position is the number of lower ones, and so is where
  // a bin begins.
  __device__ __forceinline__ void rank(const uint32_t* words) {
    const uint32_t word = threadIdx.x < count ? words[threadIdx.x] : 0, row = threadIdx.x << 16;
    uint32_t position = 0, begin = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < count; ++i) position += words[i] < word, begin += words[i] < row;
    if (threadIdx.x < count) entries[position] = static_cast<uint16_t>(word);
    begins[threadIdx.x] = begin;
    if (threadIdx.x == 0) begins[kMaxRows] = count;
  }

  // Groups the words by bin, in any order: counts them, and gives each the next position of its
  // bin.
  __device__ __forceinline__ void group(const uint32_t* words) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ uint32_t of_warps[kThreads / 32];
    // Adds 1 to begins[bin] for each word. Words of a warp with one bin are added at once.
    const auto for_words = [&](auto&& take) {
#pragma unroll 1
      for (uint32_t from = threadIdx.x - lane; from < count; from += kThreads) {
        const uint32_t word = from + lane < count ? words[from + lane] : ~0u, row = word >> 16;
        const uint32_t alike = __match_any_sync(0xffffffffu, row);
        const int first = __ffs(static_cast<int>(alike)) - 1;
        uint32_t at = 0;
        if (word != ~0u && static_cast<int>(lane) == first) {
          at = atomicAdd(&begins[row], __popc(alike));
        }
        at = __shfl_sync(0xffffffffu, at, first);
        if (word != ~0u) take(word, at + __popc(alike & ((1u << lane) - 1)));
      }
    };
    begins[threadIdx.x] = 0;
    __syncthreads();
    for_words([](uint32_t, uint32_t) {});
    __syncthreads();
    const uint32_t length = begins[threadIdx.x];
    uint32_t end = length;
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += before;
    }
    if (lane == 31) of_warps[warp] = end;
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = 0; i < warp; ++i) end += of_warps[i];
    begins[threadIdx.x] = end - length;
    __syncthreads();
    for_words([&](uint32_t word, uint32_t at) { entries[at] = static_cast<uint16_t>(word); });
    __syncthreads();
    begins[threadIdx.x] = end - length;
    if (threadIdx.x == 0) begins[kMaxRows] = count;
  }

  // Sorts the words by a bitonic network (K. E. Batcher, "Sorting networks and their applications",
  // 1968), and searches where each bin begins.
  __device__ __forceinline__ void sort(uint32_t* words) {
    uint32_t size = 2 * kMostRanked;
    while (size < count) size *= 2;
    for (uint32_t i = count + threadIdx.x; i < size; i += kThreads) words[i] = ~0u;
    for (uint32_t length = 2; length <= size; length *= 2) {
      for (uint32_t distance = length / 2; distance > 0; distance /= 2) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < size / 2; i += kThreads) {
          const uint32_t low = 2 * i - (i & (distance - 1)), high = low + distance;
          const uint32_t a = words[low], b = words[high];
          if ((a > b) == ((low & length) == 0)) words[low] = b, words[high] = a;
        }
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      entries[i] = static_cast<uint16_t>(words[i]);
    }
    uint32_t low = 0;
    for (uint32_t high = count; low < high;) {
      const uint32_t middle = (low + high) / 2;
      if (words[middle] < threadIdx.x << 16) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[threadIdx.x] = low;
    if (threadIdx.x == 0) begins[kMaxRows] = count;
  }
};

// ---------------------------------------------------------------- the kernel

// Slices that a thread has in flight. Large states leave registers for fewer.
template <typename State>
constexpr int kUnroll = sizeof(State) > 64   ? 2
                        : sizeof(State) > 16 ? 3
                                             : 4;

// A block has `rows` bins. Its threads have a unit each of some slices of a bin: neighbouring
// threads of a warp share a bin, and all threads of the block a long one. Parts are added in the
// order of their entries.
template <typename T, int V, typename State>
__global__ __launch_bounds__(kThreads,
                             kMinBlocks) void reduce_few(const __grid_constant__ Args args) {
  static_assert(sizeof(State) <= kStateBytes);
  extern __shared__ uint4 scatter_memory[];
  __shared__ Found found;
  auto* words = reinterpret_cast<uint32_t*>(scatter_memory);
  auto* states = reinterpret_cast<State*>(scatter_memory);  // of long bins, after the words
  const uint32_t lanes = 1u << args.lanes_log2, shares = 1u << args.shares_log2;
  const uint32_t part = threadIdx.x >> args.lanes_log2, lane = threadIdx.x & (lanes - 1);
  uint32_t column = blockIdx.x;
  const int64_t first_bin = int64_t{args.row_blocks.divmod(column)} * args.rows;
  const int64_t feature = (int64_t{args.tiles.divmod(column)} * lanes + lane) * V;
  const int64_t batch = column;
  const bool has_unit = feature < args.features;
  if (threadIdx.x == 0) found.count = 0;
  __syncthreads();
  grid_dependency_wait();
  launch_dependents();
  found.list(args, first_bin, words);
  __syncthreads();
  if (found.count <= kMostRanked) {
    found.rank(words);
  } else if (args.in_order) {
    found.sort(words);
  } else {
    found.group(words);
  }
  __syncthreads();

  const T* src = static_cast<const T*>(args.src) + batch * args.batch_stride + feature;
  // Reduces part `number` of 2^parts_log2 equal parts of a bin's entries.
  const auto reduce = [&](uint32_t begin, uint32_t end, uint32_t number, int parts_log2) {
    State state;
    state.start(args);
    if (!has_unit || begin == end) return state;
    const uint32_t share = ((end - begin - 1) >> parts_log2) + 1;
    begin = min(begin + number * share, end);
    end = min(begin + share, end);
    for (uint32_t i = begin; i < end; i += kUnroll<State>) {
      Vec<T, V> slices[kUnroll<State>];
#pragma unroll
      for (int u = 0; u < kUnroll<State>; ++u) {
        if (i + u >= end) break;
        slices[u] = load_vec<T, V>(src + found.entries[i + u] * args.entry_stride);
      }
#pragma unroll
      for (int u = 0; u < kUnroll<State>; ++u) {
        if (i + u < end) state.add(slices[u], found.entries[i + u]);
      }
    }
    return state;
  };
  const auto store = [&](const State& state, uint32_t row, uint32_t length) {
    const int64_t bin = batch * args.index.bins + first_bin + row;
    if (has_unit) state.store(args, length, bin * args.features + feature);
  };
  const auto rows = static_cast<uint32_t>(min(int64_t{args.rows}, args.index.bins - first_bin));
  const uint32_t team = part >> args.shares_log2, number = part & (shares - 1);
  const uint32_t teams = kThreads >> (args.lanes_log2 + args.shares_log2);
  bool has_long = false;
  for (uint32_t first = 0; first < rows; first += teams) {
    const uint32_t row = first + team;
    const uint32_t begin = row < rows ? found.begins[row] : 0;
    const uint32_t end = row < rows ? found.begins[row + 1] : 0;
    const bool is_long = end - begin > kMostSlices << args.shares_log2;
    has_long = has_long || is_long;
    State state;
    if (__any_sync(0xffffffffu, begin < end && !is_long)) {
      state = reduce(begin, is_long ? begin : end, number, args.shares_log2);
      for (uint32_t step = 1; step < shares; step *= 2) {
        const State next = shuffle_from(state, (threadIdx.x + step * lanes) % 32);
        if (number % (2 * step) == 0) state.add(next);
      }
    } else {
      state.start(args);
    }
    if (row < rows && number == 0 && !is_long) store(state, row, end - begin);
  }
  if (!__syncthreads_or(has_long)) return;
  const int parts_log2 = kThreadsLog2 - args.lanes_log2;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t begin = found.begins[row], end = found.begins[row + 1];
    if (end - begin <= kMostSlices << args.shares_log2) continue;
    State state = reduce(begin, end, part, parts_log2);
    for (uint32_t step = 1; step * lanes < 32; step *= 2) {
      const State next = shuffle_from(state, (threadIdx.x + step * lanes) % 32);
      if (part % (2 * step) == 0) state.add(next);
    }
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x % 32 < lanes) states[warp * lanes + lane] = state;
    __syncthreads();
    if (part == 0) {
      for (uint32_t next = 1; next < kThreads / 32; ++next) state.add(states[next * lanes + lane]);
      store(state, row, end - begin);
    }
    __syncthreads();
  }
}

}  // namespace gpuopt::scatter
