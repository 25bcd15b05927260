// Sorts the index. One block sorts a small number of entries in shared memory, by all digits. With
// more entries, each digit is a pass of two launches. First, blocks count the digits in their range
// of the entries. Then they move each entry behind all entries with lower digits and all entries of
// earlier blocks with the same digit. Each block finds these positions by itself, from the counts
// of the other blocks, which are also summed by groups of blocks. No block waits for another, and
// no order depends on chance.
//
// An index that is in order already, as in a coalesced graph, is noticed in the first count. Its
// entries then go directly to the destination of the last pass.
//
// Every kernel lets its successor start only after its own wait for earlier kernels. So a kernel
// may read what the kernel two launches before it has written, or any earlier one, without waiting.
#include <type_traits>

#include "common/index.h"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "index_sort/index_sort.h"
#include "index_sort/index_sort_tile.cuh"

namespace gpuopt::index_sort {
namespace {

static_assert(kSortThreads == 2 * kDigits && kSortWarps == 32);
static_assert(kMaxSortBlocks == kSortGroup * kSortGroup);

__device__ __forceinline__ void zero(uint32_t* words, uint32_t count) {
  for (uint32_t i = blockIdx.x * kSortThreads + threadIdx.x; i < count;
       i += gridDim.x * kSortThreads) {
    words[i] = 0;
  }
}

__global__ __launch_bounds__(kSortThreads) void zero_counts(uint32_t* groups, uint32_t num_groups,
                                                            uint32_t* zeroed, uint32_t num_zeroed) {
  grid_dependency_wait();
  launch_dependents();
  zero(groups, num_groups);
  zero(zeroed, num_zeroed);
}

// Counts digits. The first pass also finds out whether the index is in order: lanes compare their
// entries with the entries of the next lane. The first threads of a block also compare the last
// entry of each warp with the entry after it.
__global__ __launch_bounds__(kSortThreads) void count_digits(const PassArgs args) {
  constexpr uint32_t kTile = kSortThreads * kMaxSortItems;
  static_assert(kTile / 32 <= kSortThreads);
  __shared__ uint32_t counts[kDigits];
  if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
  __syncthreads();
  const bool is_first = args.source.packed == nullptr;
  // Later passes wait for the kernel that moved the entries. The kernel before the first pass only
  // zeroes counts, and launches this one once it has waited for whatever wrote the index.
  if (!is_first) grid_dependency_wait();
  const uint32_t begin = blockIdx.x * args.block_entries;
  const uint32_t end = min(args.count, begin + args.block_entries);
  uint64_t entries[kMaxSortItems], sides[2] = {};
  const auto load = [&](uint32_t tile) {
    args.source.load(tile + threadIdx.x, kSortThreads, end, entries);
    const uint32_t last = tile + threadIdx.x * 32 + 31;
    const bool has_side = is_first && threadIdx.x < kTile / 32 && last < end;
    if (has_side) args.source.load(last, 1, args.count, sides);
  };
  load(begin);
  grid_dependency_wait();
  launch_dependents();
  if (!is_first && __ldcg(args.unsorted) == 0) return;
  bool in_order = true;
  for (uint32_t tile = begin; tile < end; tile += kTile) {
    const uint32_t first = tile + threadIdx.x;
    if (tile > begin) load(tile);
    if (is_first) {
      args.source.check(first, kSortThreads, end, entries);
      const bool ascend = args.source.ascend(entries);  // all lanes take part
      in_order = in_order && ascend && sides[0] <= sides[1];
    }
    args.source.to_entries(first, kSortThreads, end, entries);
#pragma unroll
    for (int i = 0; i < kMaxSortItems; ++i) {
      if (first + i * kSortThreads < end) atomicAdd(&counts[args.digit.of(entries[i])], 1u);
    }
  }
  if (!in_order) *args.unsorted = 1;
  __syncthreads();
  if (threadIdx.x < kDigits) {
    const uint32_t own = counts[threadIdx.x];
    args.counts[blockIdx.x * kDigits + threadIdx.x] = own;
    if (own > 0) atomicAdd(&args.groups[blockIdx.x / kSortGroup * kDigits + threadIdx.x], own);
  }
}

// Sets distances[digit] to the position in memory of the block's first entry of the digit. The
// first half of the threads sums the counts of groups of blocks. The second half sums the counts of
// earlier blocks in the own group.
__device__ __forceinline__ void find_positions(const PassArgs& args, uint32_t (&sums)[kSortWarps],
                                               uint32_t (&distances)[kDigits]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, digit = threadIdx.x % kDigits;
  const bool sums_groups = threadIdx.x < kDigits;
  const uint32_t group = blockIdx.x / kSortGroup;
  const uint32_t own = sums_groups ? group : blockIdx.x % kSortGroup;
  const uint32_t rows = sums_groups ? (gridDim.x - 1) / kSortGroup + 1 : own;
  const uint32_t* first =
      (sums_groups ? args.groups : args.counts + group * kSortGroup * kDigits) + digit;
  uint32_t row[kSortGroup];
#pragma unroll
  for (uint32_t r = 0; r < kSortGroup; ++r) row[r] = r < rows ? __ldcg(first + r * kDigits) : 0;
  uint32_t total = 0, before = 0;
#pragma unroll
  for (uint32_t r = 0; r < kSortGroup; ++r) {
    total += row[r];
    before += r < own ? row[r] : 0;
  }
  const uint32_t up_to_own = warp_sum_up(total);
  if (sums_groups && lane == 31) sums[warp] = up_to_own;
  if (!sums_groups) distances[digit] = before;
  __syncthreads();
  uint32_t lower = lane < warp && lane < kDigits / 32 ? sums[lane] : 0;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) lower += __shfl_xor_sync(0xffffffffu, lower, mask);
  if (sums_groups) distances[digit] += lower + up_to_own - total + before;
}

// If the index is in order, its entries go to `ordered`, the destination of the last pass, and to
// `also`. Later passes load from one of the two before they know that they have nothing to do.
template <int Items>
__global__ __launch_bounds__(kSortThreads) void move_entries(const PassArgs args, uint64_t* to,
                                                             uint64_t* ordered, uint64_t* also) {
  auto& shared = *reinterpret_cast<SortTile<Items>*>(sort_shared);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr uint32_t kTile = kSortThreads * Items;
  // A warp has neighbouring entries, so entries of a digit stay in the order of their positions.
  const uint32_t own = warp * (32 * Items) + lane;
  const uint32_t begin = blockIdx.x * args.block_entries;
  const uint32_t end = min(args.count, begin + args.block_entries);
  uint16_t* counts = shared.counts[warp];
  uint64_t entries[Items];
  uint32_t ranks[Items];
  args.source.load(begin + own, 32, end, entries);
  clear_counts(counts);
  grid_dependency_wait();
  launch_dependents();
  if (__ldcg(args.unsorted) == 0) {
    if (args.source.packed != nullptr) return;
    for (uint32_t tile = begin; tile < end; tile += kTile) {
      if (tile > begin) args.source.load(tile + own, 32, end, entries);
      args.source.to_entries(tile + own, 32, end, entries);
#pragma unroll
      for (int i = 0; i < Items; ++i) {
        if (tile + own + i * 32 >= end) break;
        ordered[tile + own + i * 32] = entries[i];
        if (also != nullptr) also[tile + own + i * 32] = entries[i];
      }
    }
    return;
  }
  find_positions(args, shared.sums, shared.distances);
  uint32_t ends_before = 0;  // of the own pair of digits in the previous tile
  for (uint32_t tile = begin; tile < end; tile += kTile) {
    args.source.to_entries(tile + own, 32, end, entries);
    rank_in_warp(entries, args.digit, counts, ranks);
    __syncthreads();
    const DigitPair digits = sum_up_warps(shared.counts, shared.sums);
    if (lane < kPairsPerWarp) {
      uint32_t* distances = shared.distances + 2 * own_pair();
      distances[0] += (ends_before & 0xffff) - (digits.start & 0xffff);
      distances[1] += (ends_before >> 16) - (digits.start >> 16);
      ends_before = digits.start + digits.total;
    }
    __syncthreads();
    order(entries, ranks, args.digit, counts, shared.ordered);
    // The next tile is loaded while this one is written.
    if (tile + kTile < end) args.source.load(tile + kTile + own, 32, end, entries);
    __syncwarp();
    clear_counts(counts);
    __syncthreads();
    const uint32_t valid = min(end - tile, kTile);
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const uint32_t at = i * kSortThreads + threadIdx.x;
      if (at >= valid) break;
      const uint64_t entry = shared.ordered[at];
      to[shared.distances[args.digit.of(entry)] + at] = entry;
    }
  }
}

// Sorts one tile by all digits, in one block.
template <int Items>
__global__ __launch_bounds__(kSortThreads) void sort_tile(const SortSource source, uint32_t count,
                                                          Digit digit, int passes, uint64_t* to,
                                                          uint32_t* zeroed, uint32_t num_zeroed) {
  auto& shared = *reinterpret_cast<SortTile<Items>*>(sort_shared);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t own = warp * (32 * Items) + lane;
  uint16_t* counts = shared.counts[warp];
  uint64_t entries[Items];
  uint32_t ranks[Items];
  grid_dependency_wait();
  launch_dependents();
  source.load(own, 32, count, entries);
  zero(zeroed, num_zeroed);
  clear_counts(counts);
  source.check(own, 32, count, entries);
  source.to_entries(own, 32, count, entries);
#pragma unroll 1
  for (;; digit.shift += digit.bits) {
    rank_in_warp(entries, digit, counts, ranks);
    __syncthreads();
    sum_up_warps(shared.counts, shared.sums);
    __syncthreads();
    order(entries, ranks, digit, counts, shared.ordered);
    __syncwarp();
    clear_counts(counts);
    __syncthreads();
    if (--passes == 0) break;
#pragma unroll
    for (int i = 0; i < Items; ++i) entries[i] = shared.ordered[own + i * 32];
  }
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const uint32_t at = i * kSortThreads + threadIdx.x;
    if (at < count) to[at] = shared.ordered[at];
  }
}

// Calls f(std::integral_constant<int, number>) for a power of two up to Most.
template <int Most, typename F>
cudaError_t with_constant(int number, F&& f) {
  if constexpr (Most > 1) {
    if (number < Most) return with_constant<Most / 2>(number, f);
  }
  return f(std::integral_constant<int, Most>());
}

cudaError_t sort_one_tile(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                          cudaStream_t stream, const uint64_t** sorted) {
  const PassArgs& args = plan.args;
  auto* to = static_cast<uint64_t*>(workspace.allocate(sizeof(uint64_t) * args.count));
  *sorted = to;
  return with_constant<kMaxTileItems>(plan.items, [&](auto items) {
    return launch_kernel(sort_tile<items>, plan.move, stream, args.source, args.count, args.digit,
                         plan.passes, to, zeroed, plan.num_zeroed);
  });
}

cudaError_t sort_in_passes(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                           cudaStream_t stream, const uint64_t** sorted) {
  PassArgs args = plan.args;
  const size_t bytes = sizeof(uint64_t) * args.count;
  uint64_t* positions[2] = {static_cast<uint64_t*>(workspace.allocate(bytes)), nullptr};
  if (plan.passes > 1) positions[1] = static_cast<uint64_t*>(workspace.allocate(bytes));
  const uint32_t num_groups = plan.pass_groups * static_cast<uint32_t>(plan.passes);
  const uint32_t num_zero = num_groups + 1;
  args.groups = static_cast<uint32_t*>(
      workspace.allocate(sizeof(uint32_t) * (num_zero + size_t{plan.move.blocks} * kDigits)));
  args.unsorted = args.groups + num_groups;
  args.counts = args.groups + num_zero;
  cudaError_t error =
      launch_kernel(zero_counts, plan.zero, stream, args.groups, num_zero, zeroed, plan.num_zeroed);
  uint64_t* const ordered = positions[(plan.passes - 1) % 2];
  uint64_t* const also = positions[plan.passes % 2];  // null if there is one pass
  for (int pass = 0; pass < plan.passes && error == cudaSuccess; ++pass) {
    uint64_t* to = positions[pass % 2];
    error = launch_kernel(count_digits, plan.count, stream, args);
    if (error != cudaSuccess) return error;
    error = with_constant<kMaxSortItems>(plan.items, [&](auto items) {
      return launch_kernel(move_entries<items>, plan.move, stream, args, to, ordered, also);
    });
    args.source.packed = *sorted = to;
    args.digit.shift += args.digit.bits;
    args.groups += plan.pass_groups;
  }
  return error;
}

}  // namespace

cudaError_t sort_index(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                       cudaStream_t stream, const uint64_t** sorted) {
  return plan.one_tile ? sort_one_tile(plan, zeroed, workspace, stream, sorted)
                       : sort_in_passes(plan, zeroed, workspace, stream, sorted);
}

}  // namespace gpuopt::index_sort
