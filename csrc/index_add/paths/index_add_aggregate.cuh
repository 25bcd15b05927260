// Atomic additions by tiles of rows. If many entries name one bin, their additions queue up at its
// address. So a block looks in shared memory for bins that several rows of its tile name. A warp
// sums the rows of each such bin and adds the sum once: aggregated atomics (A. Adinets, "CUDA Pro
// Tip: Optimized Filtering with Warp-Aggregated Atomics", 2014) over the rows of a block. If no bin
// is named that often, each row is added by itself.
//
// Times in us on an H200 (torch 2.11, 2026-11-23, rows marked * 2026-11-24). "other": sorted or
// with frequent bins apart. "plain": one vector reduction per vector and nothing else. f32 rows of
// more than 128 bytes were measured with blocks of kAtomicThreads threads.
//                                         uniform                 Zipf 1.1
//                                         tiles   other   plain   tiles   other   plain
//   (131072,64) += (2^20,64) f16 *         78.0    98.8    77.4    92.7   146.5     422
//   (65536,64) += (2^18,64) bf16 *         27.4       -    26.8    37.0       -     111
//   (65536,1024) += (16384,1024) bf16 *    34.2       -    33.8    28.7       -    42.7
//   (65536,32) += (2^19,32) bf16           31.5    32.3    25.3    36.4   131.4   167.3
//   (65536,64) += (2^18,64) f32            44.9    61.8    43.7    63.5    84.2   242.2
//   (65536,16) += (2^20,16) f32            45.7    49.0    43.1    53.4    73.4   312.5
//   (65536,16) += (65536,16) f32            5.4     6.9     3.0     5.9    31.7    28.8
//   (50257,64) += (16384,64) f32            5.1     6.4     2.9     5.0    56.2    17.9
//   (65536,128) += (65536,128) f32         31.5    45.2    30.4    32.5    62.1    85.9
//   (65536,256) += (131072,256) bf16       53.5    64.0    50.2    56.5   105.7   184.9
//   (50257,1024) += (16384,1024) bf16      36.2    33.9    33.4    33.1    46.7    47.9
//   (262144,64) += (2^20,64) bf16          99.1   104.8    94.4    97.1   147.6   417.4
#pragma once

#include "common/warp.cuh"
#include "index_add/paths/index_add_atomic.cuh"

namespace gpuopt::index_add {

// Rows of a tile whose bins a thread loads, in a block of kThreads threads.
template <int kThreads>
constexpr int kThreadRows =
    kThreads == kFewRowsThreads ? 1 : kAtomicUnroll / static_cast<int>(kMinTileUnits);

// Rows of one bin that are summed: list[first] to list[first + count - 1].
struct TileSegment {
  uint32_t bin;
  uint16_t first, count;
};

// The tables of a block in shared memory: tile_shared_bytes() bytes.
struct TileTables {
  static constexpr uint32_t kNoBin = ~0u;
  static constexpr uint16_t kAlone = 0xffff;
  uint32_t slots, slot_bits;
  uint32_t* slot_bins;    // [slots]: bin; later where its rows begin in the list
  uint32_t* slot_counts;  // [slots]: rows of the bin
  uint32_t* bins;         // [rows]: bin of the row
  TileSegment* segments;  // [rows / kAggregateFrom]
  uint16_t* row_slots;    // [rows]: slot of the bin; later kAlone if the row is added by itself
  uint16_t* row_ranks;    // [rows]: rank among the rows of the same bin
  uint16_t* list;         // [rows]: rows, with the rows of a bin side by side

  __device__ TileTables(void* memory, const TileArgs& tile) {
    slots = 1u << tile.slot_bits;
    slot_bits = tile.slot_bits;
    slot_bins = static_cast<uint32_t*>(memory);
    slot_counts = slot_bins + slots;
    segments = reinterpret_cast<TileSegment*>(slot_counts + slots);
    bins = reinterpret_cast<uint32_t*>(segments + tile.rows / kAggregateFrom);
    row_slots = reinterpret_cast<uint16_t*>(bins + tile.rows);
    row_ranks = row_slots + tile.rows;
    list = row_ranks + tile.rows;
  }

  __device__ __forceinline__ void clear() {
    for (uint32_t i = threadIdx.x; i < slots; i += blockDim.x) {
      slot_bins[i] = kNoBin;
      slot_counts[i] = 0;
    }
  }

  // Returns the slot of `bin`, and claims a free one if it has none. Open addressing: at least half
  // of the slots stay free.
  __device__ __forceinline__ uint32_t claim(uint32_t bin) {
    for (uint32_t slot = bin * 2654435761u >> (32 - slot_bits);; slot = (slot + 1) % slots) {
      const uint32_t before = atomicCAS(&slot_bins[slot], kNoBin, bin);
      if (before == kNoBin || before == bin) return slot;
    }
  }

  // Counts the rows of each bin. Sets `repeated` if a bin has kAggregateFrom rows or more.
  template <int kThreads>
  __device__ __forceinline__ void count(uint32_t rows, bool* repeated) {
#pragma unroll
    for (int i = 0; i < kThreadRows<kThreads>; ++i) {
      const uint32_t row = threadIdx.x + i * kThreads;
      if (row >= rows) break;
      const uint32_t slot = claim(bins[row]);
      const uint32_t rank = atomicAdd(&slot_counts[slot], 1u);
      row_slots[row] = static_cast<uint16_t>(slot);
      row_ranks[row] = static_cast<uint16_t>(rank);
      if (rank + 1 >= kAggregateFrom) *repeated = true;
    }
  }

  // Lists the rows of bins with kAggregateFrom rows or more. All threads of the block call it, and
  // it ends with a barrier.
  __device__ __forceinline__ void list_segments(uint32_t rows, uint32_t* num_listed,
                                                uint32_t* num_segments) {
    for (uint32_t row = threadIdx.x; row < rows; row += blockDim.x) {
      const uint32_t count = slot_counts[row_slots[row]];
      if (row_ranks[row] > 0 || count < kAggregateFrom) continue;
      const uint32_t first = atomicAdd(num_listed, count);
      slot_bins[row_slots[row]] = first;
      segments[atomicAdd(num_segments, 1u)] = {bins[row], static_cast<uint16_t>(first),
                                               static_cast<uint16_t>(count)};
    }
    __syncthreads();
    for (uint32_t row = threadIdx.x; row < rows; row += blockDim.x) {
      const uint32_t slot = row_slots[row];
      if (slot_counts[slot] < kAggregateFrom) {
        row_slots[row] = kAlone;
      } else {
        list[slot_bins[slot] + row_ranks[row]] = static_cast<uint16_t>(row);
      }
    }
    __syncthreads();
  }
};

// blockIdx numbers the tiles of a row, then the tiles below, then outer indices. A tile has at most
// kAtomicThreads * kAtomicUnroll units. A block of fewer threads loads them in several batches.
// Slower or no faster, in us on an H200: five blocks per SM, which spill (85 against 80,
// (131072,64) += (2^20,64) in f16); one or two vectors per thread (Zipf 1.1: 206 and 165 against
// 110). Keeping rows in shared memory is as fast as reading them again.
//
// kAnywhere: units begin at any address, and the last unit of a row may be partial. Half types
// that are added to their own type only. `To` is the type of self.
template <typename T, int V, int kThreads, bool kAnywhere, typename To>
__global__ __launch_bounds__(kThreads, (kAnywhere ? 2 : 4) * kAtomicThreads /
                                           kThreads) void add_aggregated(const AtomicArgs args,
                                                                         const TileArgs tile) {
  using S = Sum<T>;
  extern __shared__ uint4 tile_memory[];
  __shared__ uint32_t num_listed, num_segments;
  __shared__ bool repeated;
  TileTables tables(tile_memory, tile);

  uint32_t outer = blockIdx.x;
  const uint32_t first_unit = tile.columns.divmod(outer) * args.units.divisor;
  const uint32_t units = min(args.units.divisor, tile.row_units - first_unit);
  const uint32_t first = tile.per_outer.divmod(outer) * tile.rows;
  const uint32_t rows = min(tile.rows, args.entries - first);
  const Offsets offsets = outer_offsets(args.outer, outer);
  const T* source = static_cast<const T*>(args.source) + offsets.source +
                    first * args.entry_stride + first_unit * V;
  To* self = static_cast<To*>(args.self) + offsets.self + first_unit * V;

  // Load the bins of the tile and the first batch of vectors.
  uint32_t entries[kThreadRows<kThreads>];
  int64_t bins[kThreadRows<kThreads>];
#pragma unroll
  for (int i = 0; i < kThreadRows<kThreads>; ++i) entries[i] = first + threadIdx.x + i * kThreads;
  const int count =
      threadIdx.x < rows ? static_cast<int>((rows - threadIdx.x - 1) / kThreads + 1) : 0;
  grid_dependency_wait();
  args.index.load(entries, count, bins);
  const auto* source_end = reinterpret_cast<const char*>(tile.source_end);
  const auto values_of = [&](uint32_t unit) {
    return static_cast<int>(min(tile.row_values - (first_unit + unit) * V, uint32_t{V}));
  };
  using Loaded = std::conditional_t<kAnywhere, AnyVec, RawVec<T, V>>;
  const auto load_unit = [&](Loaded& vec, uint32_t row, uint32_t unit) {
    const T* from = source + row * args.entry_stride + unit * V;
    if constexpr (kAnywhere) {
      vec.load(from, 0, static_cast<int>(sizeof(T)) * values_of(unit), source_end);
    } else {
      vec.load(from);
    }
  };
  const auto values_in = [&](Loaded& vec, uint32_t unit) {
    if constexpr (kAnywhere) {
      const int bytes = static_cast<int>(sizeof(T)) * values_of(unit);
      return vec_of<T>(join_bytes(vec.get(source_end), uint4{}, bytes));
    } else {
      return converted<To>(vec.values());
    }
  };
  const auto add_unit = [&](uint32_t bin, uint32_t unit, const Vec<To, V>& vec) {
    To* to = self + bin * args.bin_stride + unit * V;
    if constexpr (kAnywhere) {
      atomic_add_anywhere(to, vec, values_of(unit), reinterpret_cast<const T*>(args.first_byte),
                          reinterpret_cast<const T*>(args.end_byte));
    } else {
      atomic_add_vec(to, vec);
    }
  };
  Loaded vecs[kAtomicUnroll];
  uint32_t unit_rows[kAtomicUnroll], own_units[kAtomicUnroll];
  const auto load_batch = [&](int batch) {
#pragma unroll
    for (int u = 0; u < kAtomicUnroll; ++u) {
      unit_rows[u] = threadIdx.x + (batch * kAtomicUnroll + u) * kThreads;
      own_units[u] = args.units.divmod(unit_rows[u]);
      if (own_units[u] >= units) unit_rows[u] = rows;
      if (unit_rows[u] < rows) load_unit(vecs[u], unit_rows[u], own_units[u]);
    }
  };
  load_batch(0);
  launch_dependents();
  tables.clear();
  args.index.check(count, bins);
#pragma unroll
  for (int i = 0; i < kThreadRows<kThreads>; ++i) {
    if (i < count) tables.bins[threadIdx.x + i * kThreads] = static_cast<uint32_t>(bins[i]);
  }
  if (threadIdx.x == 0) {
    num_listed = num_segments = 0;
    repeated = false;
  }
  __syncthreads();
  // Count the rows of each bin, and list the bins that are summed.
  tables.template count<kThreads>(rows, &repeated);
  __syncthreads();
  if (repeated) tables.list_segments(rows, &num_listed, &num_segments);

  // Add the rows that are alone, batch by batch.
  const auto alpha = from_scalar<S>(args.alpha);
#pragma unroll 1
  for (int batch = 1;; ++batch) {
#pragma unroll
    for (int u = 0; u < kAtomicUnroll; ++u) {
      const uint32_t row = unit_rows[u];
      if (row >= rows || (repeated && tables.row_slots[row] != TileTables::kAlone)) continue;
      Sums<To, V> sums;
      sums.add(values_in(vecs[u], own_units[u]), alpha);
      add_unit(tables.bins[row], own_units[u], sums.rounded());
    }
    if (batch == kAtomicThreads / kThreads) break;
    load_batch(batch);
  }
  if (!repeated) return;

  // A warp sums a segment. Its groups of lanes take rows in turn, and read them again from the
  // cache.
  uint32_t lanes = 1;
  while (lanes < args.units.divisor) lanes *= 2;
  const uint32_t lane = threadIdx.x % kWarp, unit = lane % lanes;
  for (uint32_t s = threadIdx.x / kWarp; s < num_segments; s += kThreads / kWarp) {
    const TileSegment segment = tables.segments[s];
    Sums<To, V> sums;
    if (unit < units) {
#pragma unroll 4
      for (uint32_t i = lane / lanes; i < segment.count; i += kWarp / lanes) {
        Loaded vec;
        load_unit(vec, tables.list[segment.first + i], unit);
        sums.add(values_in(vec, unit), alpha);
      }
    }
    for (uint32_t mask = lanes; mask < kWarp; mask *= 2) {
      sums.add(shuffle_xor(sums, static_cast<int>(mask)));
    }
    if (lane >= lanes || unit >= units) continue;
    bool more = true;
    while (more) add_unit(segment.bin, unit, sums.take(more));
  }
}

template <typename T, bool kAnywhere, typename To>
cudaError_t launch_tiles(const TilesPlan& plan, cudaStream_t stream) {
  return launch_kernel(plan.shape.threads == kFewRowsThreads
                           ? add_aggregated<T, kVecSize<T>, kFewRowsThreads, kAnywhere, To>
                           : add_aggregated<T, kVecSize<T>, kAtomicThreads, kAnywhere, To>,
                       plan.shape, stream, plan.args, plan.tile);
}

template <typename T>
cudaError_t launch(const TilesPlan& plan, Workspace&, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, Bool> || kVecSize<T> > kMaxValues) {
    return cudaErrorInvalidValue;
  } else {
    if constexpr (kIsHalf<T>) {
      if (plan.wide_self) return launch_tiles<T, false, float>(plan, stream);
      if (plan.anywhere) return launch_tiles<T, true, T>(plan, stream);
    }
    return launch_tiles<T, false, T>(plan, stream);
  }
}

}  // namespace gpuopt::index_add
