// For small numbers of bins and short rows, such as a histogram (privatized histograms). Each block
// adds a range of the entries in shared memory. It keeps several copies of the bins, so that
// threads of a warp that hit the same bin do not wait for each other. The sums of the blocks are
// then added to self in one order. If there are many outer indices, a block has several of them,
// which share the reads of the index.
//
// The copies of a bin lie side by side, in a bank each, so threads with different copies never have
// bank conflicts:
//
//   shared memory    bin 0           bin 1
//   [bin][copy]      0  1  ... 31    0  1  ... 31    32 copies: thread t adds to copy t % 32,
//   bank             0  1  ... 31    0  1  ... 31    and so always to bank t % 32
#pragma once

#include "common/async.cuh"
#include "index_add/device/index_add_launch.cuh"

namespace gpuopt::index_add {

template <typename T>
__device__ __forceinline__ void add_to_self(const BinArgs& args, uint32_t outer, uint32_t number,
                                            Sum<T> sum) {
  uint32_t bin = number;
  const uint32_t at = args.width.divmod(bin);
  T* self = static_cast<T*>(args.self) + outer_offsets(args.outer, outer).self +
            bin * args.bin_stride + at * args.self_inner_stride;
  *self = from_compute<T>(plus(to_compute(*self), sum));
}

// Sums the copies of each bin, for each outer index of the block. If there are several splits, the
// sum is stored for add_split_sums(), else it is added to self. All threads take part.
template <typename T, int R>
__device__ __forceinline__ void add_up_copies(const BinArgs& args, Sum<T>* bins,
                                              uint32_t first_outer, uint32_t split) {
  using S = Sum<T>;
  for (uint32_t bits = args.copy_bits; bits > kMaxBitsOfOneThread; --bits) {  // halve the copies
    const uint32_t half = 1u << (bits - 1);
    for (uint32_t i = threadIdx.x; i < args.bins * R << (bits - 1); i += kBinThreads) {
      S* sum = &bins[(i >> (bits - 1) << args.copy_bits) + (i & (half - 1))];
      *sum = plus(*sum, sum[half]);
    }
    __syncthreads();
  }
  const uint32_t copies = 1u << min(args.copy_bits, kMaxBitsOfOneThread);
  for (uint32_t i = threadIdx.x; i < args.bins * R; i += kBinThreads) {
    S sum = kNothing<S>;
    for (uint32_t c = 0; c < copies; ++c) {  // each lane begins at another bank
      sum = plus(sum, bins[(i << args.copy_bits) + (c + threadIdx.x) % copies]);
    }
    const uint32_t bin = i / R, outer = first_outer + i % R;
    if (outer >= args.outer_size) continue;
    if (args.splits.divisor == 1) {
      add_to_self<T>(args, outer, bin, sum);
    } else {
      const uint64_t row = uint64_t{outer} * args.splits.divisor + split;
      static_cast<S*>(args.split_sums)[row * args.bins + bin] = sum;
    }
  }
}

// Supports any strides. blockIdx numbers (group of R outer indices, split).
template <typename T, int R>
__global__ __launch_bounds__(kBinThreads, 1) void add_in_bins(const BinArgs args) {
  using S = Sum<T>;
  constexpr int kEntries = kBinValues / R > 2 ? kBinValues / R : 2;  // in flight per thread
  extern __shared__ uint4 shared_bins[];
  auto* bins = reinterpret_cast<S*>(shared_bins);  // [bin][outer][copy]
  launch_dependents();
  uint32_t first_outer = blockIdx.x;
  const uint32_t split = args.splits.divmod(first_outer);
  first_outer *= R;
  const uint32_t bin_bits = args.copy_bits + (R == 1 ? 0 : R == 2 ? 1 : 2);
  for (uint32_t i = threadIdx.x; i < args.bins << bin_bits; i += kBinThreads) bins[i] = kNothing<S>;
  __syncthreads();

  const auto alpha = from_scalar<S>(args.alpha);
  const uint32_t own_copy = threadIdx.x & ((1u << args.copy_bits) - 1);
  const T* sources[R];
  S* copies[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    // Threads with the same copy work on different outer indices at a time, hence in different
    // banks.
    const uint32_t own = (r + (threadIdx.x >> args.copy_bits)) % R;
    copies[r] = kept_in_register(bins + (own << args.copy_bits) + own_copy);
    // Past the last outer index, the last one is summed again and the sum is not used.
    const uint32_t outer = min(first_outer + own, args.outer_size - 1);
    sources[r] = static_cast<const T*>(args.source) + outer_offsets(args.outer, outer).source;
  }
  const uint32_t begin = split * args.split_values;
  const uint32_t end = min(args.values, begin + args.split_values);
  grid_dependency_wait();
  for (uint32_t first = begin + threadIdx.x; first < end; first += kBinThreads * kEntries) {
    uint32_t entries[kEntries], at[kEntries];
    int64_t bin[kEntries];
    T values[kEntries][R];
    const auto count =
        static_cast<int>(min((end - first - 1) / kBinThreads + 1, static_cast<uint32_t>(kEntries)));
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (i >= count) break;
      entries[i] = first + i * kBinThreads;
      at[i] = args.width.divmod(entries[i]);
      const int64_t from = entries[i] * args.entry_stride + at[i] * args.source_inner_stride;
#pragma unroll
      for (int r = 0; r < R; ++r) values[i][r] = sources[r][from];
    }
    args.index.load(entries, count, bin);
    args.index.check(count, bin);
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (i >= count) break;
      const uint32_t position = static_cast<uint32_t>(bin[i]) * args.width.divisor + at[i];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        add_in_shared(copies[r] + (position << bin_bits), scaled(to_compute(values[i][r]), alpha));
      }
    }
  }
  __syncthreads();
  add_up_copies<T, R>(args, bins, first_outer, split);
}

// Loads V neighbouring values, by accesses as wide as all of them, up to 16 bytes.
template <typename T, int V>
__device__ __forceinline__ void load_neighbours(const T* from, T (&values)[V]) {
  constexpr int N = V < kVecSize<T> ? V : kVecSize<T>;
#pragma unroll
  for (int i = 0; i < V; i += N) {
    const auto vec = load_vec<T, N>(from + i);
#pragma unroll
    for (int k = 0; k < N; ++k) values[i + k] = vec.values[k];
  }
}

// The bins and values of kBinVec neighbouring entries. I is the type of the index.
template <typename T, typename I>
struct Neighbours {
  I bins[kBinVec];
  T values[kBinVec];

  __device__ __forceinline__ void load(const I* index, const T* source) {
    load_neighbours(index, bins);
    load_neighbours(source, values);
  }
};

template <typename I>
__device__ __forceinline__ bool is_bin(const BinArgs& args, I bin) {
  return static_cast<std::make_unsigned_t<I>>(bin) < args.bins;
}

// The trap is never reached. It tells the compiler that no value has to survive the call of the
// assertion.
__device__ __forceinline__ void check(bool in_range) {
  if (in_range) return;
  assert(false && "index_add: index out of bounds");
  __trap();
}

// Requires entries that are neighbours in memory, in aligned vectors. blockIdx numbers (outer
// index, split).
template <typename T, typename I>
__global__ __launch_bounds__(kBinThreads, 1) void add_vecs_in_bins(const BinArgs args) {
  using S = Sum<T>;
  constexpr uint32_t kStep = kBinThreads * kBinVec;
  extern __shared__ uint4 shared_bins[];
  auto* bins = reinterpret_cast<S*>(shared_bins);  // [bin][copy]
  launch_dependents();
  uint32_t outer = blockIdx.x;
  const uint32_t split = args.splits.divmod(outer);
  const auto alpha = from_scalar<S>(args.alpha);
  const auto* index = static_cast<const I*>(args.index.values);
  const T* source = static_cast<const T*>(args.source) + outer_offsets(args.outer, outer).source;
  const uint32_t begin = min(args.values, split * args.split_values);
  const uint32_t end = min(args.values, begin + args.split_values);
  const uint32_t vecs_end = end - (end - begin) % kBinVec;
  uint32_t at = begin + threadIdx.x * kBinVec;
  grid_dependency_wait();
  Neighbours<T, I> next;
  if (at < vecs_end) next.load(index + at, source + at);
  for (uint32_t i = threadIdx.x; i < args.bins << args.copy_bits; i += kBinThreads) {
    bins[i] = kNothing<S>;
  }
  __syncthreads();

  S* own = kept_in_register(bins + (threadIdx.x & ((1u << args.copy_bits) - 1)));
  const auto add = [&](uint32_t bin, S sum) { add_in_shared(&own[bin << args.copy_bits], sum); };
  while (at < vecs_end) {
    const Neighbours<T, I> now = next;
    at += kStep;
    // In flight while the current values are added.
    if (at < vecs_end) next.load(index + at, source + at);
    bool in_range = true;
#pragma unroll
    for (int i = 0; i < kBinVec; ++i) in_range = in_range && is_bin(args, now.bins[i]);
    check(in_range);
    // Neighbours with the same bin become one addition. Otherwise additions queue up where all bins
    // are equal.
    auto bin = static_cast<uint32_t>(now.bins[0]);
    S sum = scaled(to_compute(now.values[0]), alpha);
#pragma unroll
    for (int i = 1; i < kBinVec; ++i) {
      const auto another = static_cast<uint32_t>(now.bins[i]);
      const S value = scaled(to_compute(now.values[i]), alpha);
      if (another != bin) add(bin, sum);
      sum = another != bin ? value : plus(sum, value);
      bin = another;
    }
    add(bin, sum);
  }
  if (vecs_end + threadIdx.x < end) {
    const I bin = index[vecs_end + threadIdx.x];
    check(is_bin(args, bin));
    add(static_cast<uint32_t>(bin), scaled(to_compute(source[vecs_end + threadIdx.x]), alpha));
  }
  __syncthreads();
  add_up_copies<T, 1>(args, bins, outer, split);
}

// blockIdx numbers (outer index, 32 bins). Each of the eight warps sums an eighth of the splits.
template <typename T>
__global__ __launch_bounds__(kBinSumsX* kBinSumsY) void add_split_sums(const BinArgs args) {
  using S = Sum<T>;
  __shared__ S sums[kBinSumsY][kBinSumsX];
  const uint32_t blocks = (args.bins - 1) / kBinSumsX + 1;
  const uint32_t outer = blockIdx.x / blocks;
  const uint32_t x = threadIdx.x % kBinSumsX, y = threadIdx.x / kBinSumsX;
  const uint32_t bin = blockIdx.x % blocks * kBinSumsX + x;
  launch_dependents();
  grid_dependency_wait();
  S sum = kNothing<S>;
  if (bin < args.bins) {
    const uint32_t splits = args.splits.divisor;
    const S* from = static_cast<const S*>(args.split_sums) + uint64_t{outer} * splits * args.bins;
#pragma unroll 4
    for (uint32_t s = y; s < splits; s += kBinSumsY) {
      sum = plus(sum, from[uint64_t{s} * args.bins + bin]);
    }
  }
  sums[y][x] = sum;
  __syncthreads();
  if (y > 0 || bin >= args.bins) return;
#pragma unroll
  for (int i = 1; i < kBinSumsY; ++i) sum = plus(sum, sums[i][x]);
  add_to_self<T>(args, outer, bin, sum);
}

template <typename T>
cudaError_t launch(const BinsPlan& plan, Workspace& workspace, cudaStream_t stream) {
  BinArgs args = plan.args;
  if (plan.split_bytes > 0) args.split_sums = workspace.allocate(plan.split_bytes);
  const auto start = [&](auto kernel) { return launch_kernel(kernel, plan.add, stream, args); };
  const auto add_in_shared_memory = [&] {
    if (plan.values > 1) {
      return args.index.is_long ? start(add_vecs_in_bins<T, int64_t>)
                                : start(add_vecs_in_bins<T, int32_t>);
    }
    return plan.outer_group == 1 ? start(add_in_bins<T, 1>) : start(add_in_bins<T, kBinOuterGroup>);
  };
  const cudaError_t error = add_in_shared_memory();
  if (error != cudaSuccess || plan.split_bytes == 0) return error;
  return launch_kernel(add_split_sums<T>, plan.add_up, stream, args);
}

}  // namespace gpuopt::index_add
