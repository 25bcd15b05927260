// For a small number of entries that repeat for many outer indices, or for one outer index if sums
// must be reproducible. One block sorts the entries by bin, once for all outer indices. Then each
// block keeps the rows of some outer indices, its lines, in shared memory. It sums them in sorted
// order, segment by segment. This is a segmented scan: all threads have the same number of entries,
// whether bins are hit alike or one bin by all entries. It needs no atomics, and its order depends
// on the number of entries alone.
//
//   sorted bins    0 0 1 1 | 1 1 1 1 | 1 2 2 4    "|" separates the entries of threads
//   thread         0         1         2
//   stores         bin 0     -         bins 1, 2, 4    bins that end among its entries
//   rest           1 1       1 1 1 1   -               entries after the last end
//   add_rests()    adds the rests of threads 0 and 1 to the sum of bin 1
#pragma once

#include "common/warp.cuh"
#include "index_add/device/index_add_launch.cuh"

namespace gpuopt::index_add {

// A sorted entry is a 32-bit word. Bits 0 to 14 are the slot of its values in shared memory. Bit 15
// marks the last entry of a bin. Bits 16 to 31 are the bin.
constexpr uint32_t kSlotMask = 0x7fff, kEndOfBin = 0x8000;
constexpr int kBinShift = 16;

// The slot of entries 2 * pair and 2 * pair + 1 of a line. If the index is sorted already,
// neighbouring threads read entries 16 apart at a time. This permutation puts such entries in
// different banks.
__device__ __forceinline__ uint32_t slot_of_pair(uint32_t pair) { return pair ^ (pair >> 3 & 7); }

// Writes the order 4 words per thread at a time, with the words of neighbouring threads side by
// side. Words past the last entry have no effect, since they follow the end of the last bin.
inline __device__ void write_order(const OrderArgs& args, const uint32_t* keys) {
  for (uint32_t i = threadIdx.x; i < args.thread_entries * kLineThreads; i += kOrderThreads) {
    const uint32_t thread = i / 4 % kLineThreads, four = i / 4 / kLineThreads;
    const uint32_t at = thread * args.thread_entries + four * 4 + i % 4;
    uint32_t word = 0;
    if (at < args.entries) {
      word = keys[at];
      const bool ends = at + 1 == args.entries || (keys[at + 1] ^ word) >> kBinShift != 0;
      word |= ends ? kEndOfBin : 0;
    }
    args.order[i] = word;
  }
}

// Stable least-significant-digit radix sort by one block. A warp ranks a range of the entries, 32
// at a time. It finds the lanes with equal digits by one ballot per bit, as in
// index_sort_tile.cuh.
template <typename I>
__global__ __launch_bounds__(kOrderThreads) void order_entries(const OrderArgs args) {
  constexpr uint32_t kWarps = kOrderThreads / kWarp, kDigits = 1 << kOrderDigitBits;
  static_assert(kWarps == kWarp && kDigits == kWarp);  // a warp sums the counts of a digit
  constexpr uint32_t kPitch = kWarps + 1;              // no bank conflicts
  extern __shared__ uint4 line_memory[];
  auto* keys = reinterpret_cast<uint32_t*>(line_memory);
  __shared__ uint32_t counts[kDigits * kPitch];
  __shared__ uint32_t totals[kDigits];
  // In this order, because add_lines loads the source before it waits for this kernel.
  grid_dependency_wait();
  launch_dependents();
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t steps = (args.entries - 1) / kOrderThreads + 1;
  const uint32_t begin = warp * steps * kWarp + lane;
  // Load the index.
  uint32_t own[kOrderItems];
  bool in_range = true;
#pragma unroll
  for (uint32_t j = 0; j < kOrderItems; ++j) {
    const uint32_t entry = begin + j * kWarp;
    if (j >= steps || entry >= args.entries) break;
    const I bin = static_cast<const I*>(args.index.values)[entry * args.index.stride];
    in_range = in_range && bin >= 0 && bin < args.index.bins;
    own[j] = static_cast<uint32_t>(bin) << kBinShift | (slot_of_pair(entry / 2) * 2 + entry % 2);
  }
  if (!in_range) {
    assert(false && "index_add: index out of bounds");
    __trap();
  }
  for (uint32_t pass = 0; pass < args.passes; ++pass) {
    const uint32_t shift = kBinShift + pass * kOrderDigitBits;
    for (uint32_t i = threadIdx.x; i < kDigits * kPitch; i += kOrderThreads) counts[i] = 0;
    __syncthreads();
    // Rank the entries of each warp by the digit.
    uint32_t ranks[kOrderItems / 2] = {};  // two per word, to save registers for entries
#pragma unroll
    for (uint32_t j = 0; j < kOrderItems; ++j) {
      if (j >= steps) break;
      const bool valid = begin + j * kWarp < args.entries;
      const uint32_t digit = valid ? own[j] >> shift & (kDigits - 1) : 0;
      const uint32_t key = valid ? digit : kDigits;
      uint32_t equals = 0xffffffffu;
#pragma unroll
      for (int bit = 0; bit <= kOrderDigitBits; ++bit) equals &= lanes_with_same(key, 1u << bit);
      const uint32_t before = __popc(equals & ((1u << lane) - 1));
      uint32_t* count = &counts[digit * kPitch + warp];
      ranks[j / 2] |= (*count + before) << (j % 2 * 16);
      __syncwarp();
      if (valid && before == 0) *count += __popc(equals);
      __syncwarp();
    }
    __syncthreads();
    // Sum the counts of lower digits and of earlier warps.
    uint32_t* count = &counts[warp * kPitch + lane];  // of digit `warp`, in warp `lane`
    const uint32_t up_to_own = warp_sum_up(*count);
    if (lane == kWarp - 1) totals[warp] = up_to_own;
    __syncthreads();
    const uint32_t total = totals[lane];
    const uint32_t lower = __shfl_sync(0xffffffffu, warp_sum_up(total) - total, warp);
    *count = lower + up_to_own - *count;
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < kOrderItems; ++j) {
      if (j >= steps || begin + j * kWarp >= args.entries) break;
      keys[counts[(own[j] >> shift & (kDigits - 1)) * kPitch + warp] +
           (ranks[j / 2] >> (j % 2 * 16) & 0xffff)] = own[j];
    }
    __syncthreads();
    if (pass + 1 == args.passes) break;
#pragma unroll
    for (uint32_t j = 0; j < kOrderItems; ++j) {
      if (j >= steps || begin + j * kWarp >= args.entries) break;
      own[j] = keys[begin + j * kWarp];
    }
  }
  write_order(args, keys);
}

// Copies R rows into shared memory, with the R values of an entry side by side. load(row, pair)
// returns two neighbouring values of a row.
template <typename T, int R, typename Load>
__device__ __forceinline__ void stage_lines(const LineArgs& args, const T* const (&sources)[R],
                                            Vec<T, R>* cells, Load&& load) {
  constexpr int kPairs = kLinePairs<R>;
  const uint32_t pairs = args.entries / 2;
  for (uint32_t first = threadIdx.x; first < pairs; first += kLineThreads * kPairs) {
    Vec<T, 2> loaded[kPairs][R];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t pair = first + i * kLineThreads;
      if (pair >= pairs) break;
#pragma unroll
      for (int r = 0; r < R; ++r) loaded[i][r] = load(sources[r], pair);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t pair = first + i * kLineThreads;
      if (pair >= pairs) break;
      Vec<T, 2 * R> both;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        both.values[r] = loaded[i][r].values[0];
        both.values[R + r] = loaded[i][r].values[1];
      }
      store_vec(cells[slot_of_pair(pair) * 2].values, both);
    }
  }
  if (args.entries % 2 != 0 && threadIdx.x == kLineThreads - 1) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      cells[slot_of_pair(pairs) * 2].values[r] = sources[r][2 * pairs * args.entry_stride];
    }
  }
}

template <typename S, int R>
__device__ __forceinline__ Vec<S, R> nothing() {
  Vec<S, R> sums;
#pragma unroll
  for (int r = 0; r < R; ++r) sums.values[r] = kNothing<S>;
  return sums;
}

template <typename S, int R>
__device__ __forceinline__ Vec<S, R> plus(const Vec<S, R>& a, const Vec<S, R>& b) {
  Vec<S, R> sums;
#pragma unroll
  for (int r = 0; r < R; ++r) sums.values[r] = plus(a.values[r], b.values[r]);
  return sums;
}

// Sums the sorted entries of the thread. The sums of bins that end among them go to `sums`, and the
// sum of entries after the last end goes to `rest`. Returns the first bin that ends, or kNoBin.
constexpr uint32_t kNoBin = ~0u;
template <typename T, int R>
__device__ __forceinline__ uint32_t sum_own_entries(const LineArgs& args, const Vec<T, R>* cells,
                                                    Vec<Sum<T>, R>* sums, Vec<Sum<T>, R>& rest) {
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  const uint4* order = args.order + threadIdx.x;
  uint32_t first_bin = kNoBin;
  uint4 next = *order;
  for (uint32_t e = 0; e < args.thread_entries; e += 4) {
    const uint32_t words[4] = {next.x, next.y, next.z, next.w};
    order += kLineThreads;
    if (e + 4 < args.thread_entries) next = *order;
    Vec<T, R> own[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = cells[words[i] & kSlotMask];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        rest.values[r] = plus(rest.values[r], scaled(to_compute(own[i].values[r]), alpha));
      }
      if ((words[i] & kEndOfBin) == 0) continue;
      const uint32_t bin = words[i] >> kBinShift;
      sums[bin] = rest;
      rest = nothing<Sum<T>, R>();
      if (first_bin == kNoBin) first_bin = bin;
    }
  }
  return first_bin;
}

// Adds the rests that earlier threads have of a bin to the sum of the thread where it ends, earlier
// entries first. This is a segmented scan over the rests of a warp, then over the warps.
template <typename S, int R>
__device__ __forceinline__ void add_rests(uint32_t first_bin, Vec<S, R> rest, Vec<S, R>* sums) {
  constexpr uint32_t kWarps = kLineThreads / kWarp;
  __shared__ Vec<S, R> rests[kWarps];
  __shared__ bool any_end[kWarps];
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  bool ends = first_bin != kNoBin;  // earlier rests are of other bins
#pragma unroll
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const Vec<S, R> before = shuffle_up(rest, distance);
    const bool ended = shuffle_up(ends, distance);
    if (lane < distance || ends) continue;
    rest = plus(before, rest);
    ends = ended;
  }
  if (lane == kWarp - 1) {
    rests[warp] = rest;
    any_end[warp] = ends;
  }
  Vec<S, R> before = shuffle_up(rest, 1);
  bool ended = shuffle_up(ends, 1);
  if (lane == 0) {
    before = nothing<S, R>();
    ended = false;
  }
  __syncthreads();
  if (first_bin == kNoBin) return;
  for (uint32_t w = warp; w > 0 && !ended; --w) {
    before = plus(rests[w - 1], before);
    ended = any_end[w - 1];
  }
  sums[first_bin] = plus(before, sums[first_bin]);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
constexpr int kMostLineBlocks = 2;  // 1024 threads on an SM
#else
constexpr int kMostLineBlocks = 3;
#endif
template <int R>
constexpr int kLineBlocks =
    kLineBlocksPerSm<R> < kMostLineBlocks ? kLineBlocksPerSm<R> : kMostLineBlocks;

// blockIdx numbers groups of R outer indices.
template <typename T, int R>
__global__ __launch_bounds__(kLineThreads, kLineBlocks<R>) void add_lines(const LineArgs args) {
  using S = Sum<T>;
  extern __shared__ uint4 line_memory[];
  auto* sums = reinterpret_cast<Vec<S, R>*>(line_memory);  // [bin]
  // [entry] in the order of slots, after the sums
  auto* cells = reinterpret_cast<Vec<T, R>*>(
      line_memory + (args.bins * sizeof(Vec<S, R>) + sizeof(uint4) - 1) / sizeof(uint4));
  // Load the lines into shared memory.
  const uint32_t first_outer = blockIdx.x * R;
  {
    const T* sources[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {  // past the end, the last one is summed again
      const uint32_t outer = min(first_outer + r, args.outer_size - 1);
      sources[r] = static_cast<const T*>(args.source) + outer_offsets(args.outer, outer).source;
    }
    if (args.pairs) {
      stage_lines(args, sources, cells,
                  [](const T* source, uint32_t pair) { return load_vec<T, 2>(source + 2 * pair); });
    } else {
      stage_lines(args, sources, cells, [&](const T* source, uint32_t pair) {
        const T* first = source + 2 * pair * args.entry_stride;
        return Vec<T, 2>{{first[0], first[args.entry_stride]}};
      });
    }
  }
  for (uint32_t i = threadIdx.x; i < args.bins; i += kLineThreads) sums[i] = nothing<S, R>();
  __syncthreads();
  // Sum the segments, in the order that the previous kernel found.
  grid_dependency_wait();
  launch_dependents();
  Vec<S, R> rest = nothing<S, R>();
  const uint32_t first_bin = sum_own_entries<T, R>(args, cells, sums, rest);
  add_rests(first_bin, rest, sums);
  __syncthreads();

  // Add the sums to self.
  T* self[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const uint32_t outer = min(first_outer + r, args.outer_size - 1);
    self[r] = static_cast<T*>(args.self) + outer_offsets(args.outer, outer).self;
  }
  for (uint32_t bin = threadIdx.x; bin < args.bins; bin += kLineThreads) {
    const Vec<S, R> own = sums[bin];
    T values[R];
#pragma unroll
    for (int r = 0; r < R; ++r) values[r] = self[r][bin * args.bin_stride];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (first_outer + r >= args.outer_size) break;
      self[r][bin * args.bin_stride] = from_compute<T>(plus(to_compute(values[r]), own.values[r]));
    }
  }
}

template <typename T>
cudaError_t launch(const LinesPlan& plan, Workspace& workspace, cudaStream_t stream) {
  OrderArgs order = plan.order;
  order.order = static_cast<uint32_t*>(workspace.allocate(plan.order_bytes));
  LineArgs args = plan.args;
  args.order = reinterpret_cast<const uint4*>(order.order);
  const cudaError_t error =
      launch_kernel(order.index.is_long ? order_entries<int64_t> : order_entries<int32_t>,
                    plan.sort, stream, order);
  if (error != cudaSuccess) return error;
  return launch_kernel(
      plan.outer_group == 1 ? add_lines<T, 1> : add_lines<T, line_values(sizeof(T))>, plan.add,
      stream, args);
}

}  // namespace gpuopt::index_add
