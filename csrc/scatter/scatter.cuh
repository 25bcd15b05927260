// The kernel of few entries. Each block has some bins. It looks for their entries in the index,
// sorts them by bin, and reduces each bin in the order of its entries:
//
//   index            7  2  7  5  2  7  7        a block with bins 2 to 5
//   entries found    1:2   3:5   4:2            in order, by ballots of its warps
//   sorted           2: 1 4 | 5: 3              one pass of a radix sort whose digit is the bin
//   written          2, 3, 4 and 5              3 and 4 are zeros, so nothing fills `out` before
//
// Every result is written once, and its order depends on the index alone.
#pragma once

#include <limits>

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
    const bool is_first_nan = value != value && values[i] == values[i];
    if (entries[i] < 0 || is_beyond || is_first_nan) values[i] = value, entries[i] = entry;
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

// Which lanes of a warp have an entry of the same bin as this lane. All lanes take part.
struct Alike {
  uint32_t before, count;  // lower lanes among them, and all
  bool is_last;

  __device__ __forceinline__ explicit Alike(uint32_t bin) {
    const uint32_t lanes = __match_any_sync(0xffffffffu, bin);
    before = __popc(lanes & ((1u << (threadIdx.x % 32)) - 1));
    count = __popc(lanes);
    is_last = before + 1 == count;
  }
};

// The entries of a block's bins, sorted by bin and, in a bin, by position.
struct Found {
  static constexpr uint32_t kNone = ~0u;

  uint32_t begins[kMaxRows + 1];  // of each bin in `sorted`
  // Of each warp and bin: how many entries the warp has found, then where its next one goes.
  uint16_t places[kWarps][kMaxRows];
  uint16_t long_bins[kMaxRows];
  uint32_t num_long;
  uint32_t warp_sums[kWarps];

  // Writes the entries that this warp finds in its part of the index, with their bins, and returns
  // how many.
  __device__ __forceinline__ static uint32_t list(const Args& args, int64_t first_bin,
                                                  uint32_t begin, uint32_t* listed) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t end = min(begin + args.warp_entries, args.entries);
    uint32_t entries[kLoads];
    int64_t bins[kLoads];
    int valid = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      entries[i] = begin + i * 32 + lane;
      if (entries[i] < end) valid = i + 1;
    }
    args.index.load(entries, valid, bins);
    args.index.check(valid, bins);
    uint32_t count = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (i * 32 >= args.warp_entries) break;
      const bool is_found = i < valid && bins[i] >= first_bin && bins[i] < first_bin + args.rows;
      const uint32_t lanes = __ballot_sync(0xffffffffu, is_found);
      if (is_found) {
        listed[count + __popc(lanes & ((1u << lane) - 1))] =
            static_cast<uint32_t>(bins[i] - first_bin) << 16 | entries[i];
      }
      count += __popc(lanes);
    }
    return count;
  }

  __device__ __forceinline__ void clear(uint32_t rows) {
    for (uint32_t row = threadIdx.x % 32; row < rows; row += 32) places[threadIdx.x / 32][row] = 0;
    if (threadIdx.x == 0) num_long = 0;
  }

  // The word of this lane in `listed`, or kNone.
  __device__ __forceinline__ static uint32_t word_of(const uint32_t* listed, uint32_t from,
                                                     uint32_t count) {
    const uint32_t at = from + threadIdx.x % 32;
    return at < count ? listed[at] : kNone;
  }

  __device__ __forceinline__ void count(const uint32_t* listed, uint32_t count) {
    uint16_t* counts = places[threadIdx.x / 32];
    for (uint32_t from = 0; from < count; from += 32) {
      const uint32_t word = word_of(listed, from, count);
      const Alike alike(word >> 16);
      if (word != kNone && alike.is_last) counts[word >> 16] += static_cast<uint16_t>(alike.count);
      __syncwarp();
    }
  }

  // Sums the counts of lower bins and of earlier warps. A thread has a bin. All threads take part.
  __device__ __forceinline__ void sum_counts(const Args& args) {
    const uint32_t warp = threadIdx.x / 32, row = threadIdx.x;
    uint32_t counts[kWarps] = {}, sum = 0;
    if (row < args.rows) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += counts[w] = places[w][row];
    }
    if (sum > kMostSlices * args.shares) {
      long_bins[atomicAdd(&num_long, 1)] = static_cast<uint16_t>(row);
    }
    const uint32_t up_to_here = warp_sum_up(sum);
    if (threadIdx.x % 32 == 31) warp_sums[warp] = up_to_here;
    __syncthreads();
    uint32_t place = up_to_here - sum;
    for (uint32_t w = 0; w < warp; ++w) place += warp_sums[w];
    begins[row] = place;
    if (row < args.rows) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        places[w][row] = static_cast<uint16_t>(place);
        place += counts[w];
      }
    }
    if (row == kMaxRows - 1) begins[kMaxRows] = place;
  }

  __device__ __forceinline__ void place(const uint32_t* listed, uint32_t count, uint16_t* sorted) {
    uint16_t* next = places[threadIdx.x / 32];
    for (uint32_t from = 0; from < count; from += 32) {
      const uint32_t word = word_of(listed, from, count);
      const Alike alike(word >> 16);
      const uint32_t at = word == kNone ? 0 : next[word >> 16] + alike.before;
      __syncwarp();
      if (word != kNone) {
        sorted[at] = static_cast<uint16_t>(word);
        if (alike.is_last) next[word >> 16] = static_cast<uint16_t>(at + 1);
      }
      __syncwarp();
    }
  }

  // Sorts the entries that each warp has listed. All threads take part.
  __device__ __forceinline__ void sort(const Args& args, const uint32_t* listed, uint32_t count_,
                                       uint16_t* sorted) {
    clear(args.rows);
    __syncwarp();
    count(listed, count_);
    __syncthreads();
    sum_counts(args);
    __syncthreads();
    place(listed, count_, sorted);
    __syncthreads();
  }
};

// ---------------------------------------------------------------- the kernel

// A block has `rows` bins and `lanes` units of each slice. A thread has a unit of some slices of a
// bin: `shares` threads of a warp share a bin, and all threads of the block a long one. Parts are
// added in the order of their entries.
template <typename T, int V, typename State>
__global__ __launch_bounds__(kThreads,
                             kMinBlocks) void reduce_few(const __grid_constant__ Args args) {
  // The entries that warps have listed, where the states of long bins come later; then those
  // entries sorted.
  extern __shared__ uint4 scatter_memory[];
  __shared__ Found found;
  auto* states = reinterpret_cast<State*>(scatter_memory);
  auto* sorted = reinterpret_cast<uint16_t*>(reinterpret_cast<char*>(scatter_memory) +
                                             listed_bytes(args.warp_entries));
  const uint32_t column = blockIdx.x / args.row_blocks;
  const int64_t first_bin = int64_t{blockIdx.x - column * args.row_blocks} * args.rows;
  const int64_t batch = column / args.tiles;
  const uint32_t part = threadIdx.x / args.lanes, lane = threadIdx.x - part * args.lanes;
  const int64_t feature =
      (int64_t{column - static_cast<uint32_t>(batch) * args.tiles} * args.lanes + lane) * V;
  const bool has_unit = feature < args.features;
  grid_dependency_wait();
  launch_dependents();
  const uint32_t warp_begin = threadIdx.x / 32 * args.warp_entries;
  uint32_t* listed = reinterpret_cast<uint32_t*>(scatter_memory) + warp_begin;
  const uint32_t count = Found::list(args, first_bin, warp_begin, listed);
  const bool is_empty = !__syncthreads_or(static_cast<int>(count));
  if (!is_empty) found.sort(args, listed, count, sorted);

  const T* src = static_cast<const T*>(args.src) + batch * args.batch_stride + feature;
  // Reduces part `number` of `parts` equal parts of a bin's entries.
  const auto reduce = [&](uint32_t begin, uint32_t end, uint32_t number, uint32_t parts) {
    State state;
    state.start(args);
    if (!has_unit) return state;
    const uint32_t share = (end - begin + parts - 1) / parts;
    begin = min(begin + number * share, end);
    end = min(begin + share, end);
    for (uint32_t i = begin; i < end; i += kUnroll) {
      Vec<T, V> slices[kUnroll];
      uint32_t entries[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u >= end) break;
        entries[u] = sorted[i + u];
        slices[u] = load_vec<T, V>(src + entries[u] * args.entry_stride);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u < end) state.add(slices[u], entries[u]);
      }
    }
    return state;
  };
  const auto store = [&](const State& state, uint32_t row, uint32_t length) {
    const int64_t bin = batch * args.index.bins + first_bin + row;
    if (has_unit) state.store(args, length, bin * args.features + feature);
  };
  const auto rows = static_cast<uint32_t>(min(int64_t{args.rows}, args.index.bins - first_bin));
  const uint32_t team = part / args.shares, teams = kThreads / (args.lanes * args.shares);
  const uint32_t number = part - team * args.shares;
  if (is_empty) {
    State nothing;
    nothing.start(args);
    for (uint32_t row = part; row < rows; row += kThreads / args.lanes) store(nothing, row, 0);
    return;
  }
  for (uint32_t first = 0; first < rows; first += teams) {
    const uint32_t row = min(first + team, uint32_t{kMaxRows});
    const uint32_t begin = found.begins[row];
    uint32_t end = row < rows ? found.begins[row + 1] : begin;
    const bool is_long = end - begin > kMostSlices * args.shares;
    if (is_long) end = begin;
    State state = reduce(begin, end, number, args.shares);
    for (uint32_t step = 1; step < args.shares; step *= 2) {
      const State next = shuffle_from(state, (threadIdx.x + step * args.lanes) % 32);
      if (number % (2 * step) == 0) state.add(next);
    }
    if (row < rows && number == 0 && !is_long) store(state, row, end - begin);
  }
  const uint32_t parts = kThreads / args.lanes;
  for (uint32_t i = 0; i < found.num_long; ++i) {
    const uint32_t row = found.long_bins[i];
    const uint32_t begin = found.begins[row], end = found.begins[row + 1];
    State state = reduce(begin, end, part, parts);
    for (uint32_t step = 1; step < parts; step *= 2) {
      states[threadIdx.x] = state;
      __syncthreads();
      if (part % (2 * step) == 0) state.add(states[threadIdx.x + step * args.lanes]);
      __syncthreads();
    }
    if (part == 0) store(state, row, end - begin);
  }
}

}  // namespace gpuopt::scatter
