// Each pass over a digit is three launches: blocks count the digits in their stretch of the entries;
// the counts of each digit are summed up from block to block; blocks move their entries behind those
// of lower digits and of earlier blocks. Nothing waits for another block, and nothing is ordered by
// chance.
#include "common/index.h"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "index_add/index_add_sort.cuh"

namespace gpuopt::index_add {
namespace {

constexpr int kWarps = kSortThreads / 32;
static_assert(kSortThreads == kDigits, "each thread looks after a digit");

struct PassArgs {
  uint32_t count = 0;
  uint32_t block_entries = 0;  // of each block, a multiple of kSortTile
  uint32_t blocks = 0;
  int shift = 0;
  uint32_t mask = 0;
  uint32_t* counts = nullptr;  // [digit][block]
  uint32_t* totals = nullptr;  // [digit]

  __device__ uint32_t digit(uint64_t entry) const {
    return static_cast<uint32_t>(entry >> shift) & mask;
  }
};

// The entries of the first pass, made from the caller's index.
struct FromIndex {
  Index index;
  int position_bits;

  __device__ uint64_t operator()(uint32_t position) const {
    return static_cast<uint64_t>(index(position)) << position_bits | position;
  }
};

struct FromEntries {
  const uint64_t* entries;

  __device__ uint64_t operator()(uint32_t position) const { return entries[position]; }
};

template <typename From>
__global__ __launch_bounds__(kSortThreads) void count_digits(const From from, const PassArgs args,
                                                             uint32_t* zeroed,
                                                             uint32_t num_zeroed) {
  __shared__ uint32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  wait_for_grid_before();
  let_next_grid_start();
  for (uint32_t i = blockIdx.x * kSortThreads + threadIdx.x; i < num_zeroed;
       i += gridDim.x * kSortThreads) {
    zeroed[i] = 0;
  }
  const uint32_t begin = blockIdx.x * args.block_entries;
  const uint32_t end = min(args.count, begin + args.block_entries);
  for (uint32_t tile = begin; tile < end; tile += kSortTile) {
    uint64_t entries[kSortItems];
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const uint32_t at = tile + i * kSortThreads + threadIdx.x;
      if (at < end) entries[i] = from(at);
    }
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const uint32_t at = tile + i * kSortThreads + threadIdx.x;
      if (at < end) atomicAdd(&counts[args.digit(entries[i])], 1u);
    }
  }
  __syncthreads();
  if (threadIdx.x <= args.mask) {
    args.counts[threadIdx.x * args.blocks + blockIdx.x] = counts[threadIdx.x];
  }
}

// counts[digit][block] becomes how many entries of the digit are in blocks before; a warp a digit.
__global__ __launch_bounds__(kSortThreads) void sum_up_counts(const PassArgs args) {
  const uint32_t digit = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_grid_before();
  let_next_grid_start();
  if (digit > args.mask) return;
  uint32_t* counts = args.counts + digit * args.blocks;
  uint32_t total = 0;
  for (uint32_t first = 0; first < args.blocks; first += 32) {
    const uint32_t block = first + lane;
    const uint32_t own = block < args.blocks ? counts[block] : 0;
    const uint32_t up_to_own = warp_sum_up(own);
    if (block < args.blocks) counts[block] = total + up_to_own - own;
    total += __shfl_sync(0xffffffffu, up_to_own, 31);
  }
  if (lane == 0) args.totals[digit] = total;
}

// The sum of the values of all threads before the own one. `sums` are free again after a barrier.
__device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t (&sums)[kWarps]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t up_to_own = warp_sum_up(value);
  if (lane == 31) sums[warp] = up_to_own;
  __syncthreads();
  uint32_t before = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) before += w < warp ? sums[w] : 0;
  return before + up_to_own - value;
}

template <typename From>
__global__ __launch_bounds__(kSortThreads) void move_entries(const From from, const PassArgs args,
                                                             uint64_t* to) {
  // While ranks are found, how many entries of a digit each warp has had; then the tile in order.
  __shared__ union {
    uint16_t counts[kWarps][kDigits];
    uint64_t ordered[kSortTile];
  } shared;
  __shared__ uint32_t sums[2][kWarps];
  __shared__ uint32_t starts[kDigits];     // of each digit in the ordered tile
  __shared__ uint32_t distances[kDigits];  // from there to its place in `to`
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, own_digit = threadIdx.x;
  wait_for_grid_before();
  let_next_grid_start();
  const bool has_digit = own_digit <= args.mask;
  uint32_t place = sum_before(has_digit ? args.totals[own_digit] : 0, sums[0]);
  if (has_digit) place += args.counts[own_digit * args.blocks + blockIdx.x];

  const uint32_t begin = blockIdx.x * args.block_entries;
  const uint32_t end = min(args.count, begin + args.block_entries);
  for (uint32_t tile = begin; tile < end; tile += kSortTile) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) shared.counts[w][own_digit] = 0;
    // A warp has neighbouring entries, so that order within a digit is the order of positions. Past
    // the end are entries of the highest digit, which come after all others.
    const uint32_t first = tile + warp * (32 * kSortItems) + lane;
    uint64_t entries[kSortItems];
    uint32_t ranks[kSortItems];
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      entries[i] = first + i * 32 < end ? from(first + i * 32) : ~uint64_t{0};
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const uint32_t digit = args.digit(entries[i]);
      const uint32_t equal = __match_any_sync(0xffffffffu, digit);
      const uint32_t before = shared.counts[warp][digit];
      const uint32_t below = __popc(equal & ((1u << lane) - 1));
      ranks[i] = before + below;
      __syncwarp();
      if (below == 0) {
        shared.counts[warp][digit] = static_cast<uint16_t>(before + __popc(equal));
      }
      __syncwarp();
    }
    __syncthreads();
    uint32_t total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t own = shared.counts[w][own_digit];
      shared.counts[w][own_digit] = static_cast<uint16_t>(total);
      total += own;
    }
    const uint32_t start = sum_before(total, sums[1]);
    starts[own_digit] = start;
    distances[own_digit] = place - start;
    place += total;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const uint32_t digit = args.digit(entries[i]);
      ranks[i] += starts[digit] + shared.counts[warp][digit];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) shared.ordered[ranks[i]] = entries[i];
    __syncthreads();
    const uint32_t valid = min(end - tile, static_cast<uint32_t>(kSortTile));
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const uint32_t at = i * kSortThreads + threadIdx.x;
      if (at >= valid) continue;
      const uint64_t entry = shared.ordered[at];
      to[distances[args.digit(entry)] + at] = entry;
    }
    __syncthreads();
  }
}

template <typename From>
cudaError_t run_pass(const From& from, const PassArgs& args, uint64_t* to, uint32_t* zeroed,
                     uint32_t num_zeroed, bool overlaps, cudaStream_t stream) {
  LaunchShape shape;
  shape.threads = kSortThreads;
  shape.blocks = args.blocks;
  shape.overlaps_before = overlaps;
  cudaError_t error =
      launch_kernel(count_digits<From>, shape, stream, from, args, zeroed, num_zeroed);
  if (error != cudaSuccess) return error;
  shape.overlaps_before = true;
  shape.blocks = ceil_div(args.mask + 1, static_cast<uint32_t>(kWarps));
  error = launch_kernel(sum_up_counts, shape, stream, args);
  if (error != cudaSuccess) return error;
  shape.blocks = args.blocks;
  return launch_kernel(move_entries<From>, shape, stream, from, args, to);
}

}  // namespace

cudaError_t sort_index(const Index& index, uint32_t count, uint32_t* zeroed, uint32_t num_zeroed,
                       const Device& device, Workspace& workspace, cudaStream_t stream,
                       SortedIndex* sorted) {
  const SortPlan plan = plan_sort(count, index.bins, device);
  const size_t bytes = sizeof(uint64_t) * count;
  uint64_t* places[2] = {static_cast<uint64_t*>(workspace.allocate(bytes)), nullptr};
  if (plan.passes > 1) places[1] = static_cast<uint64_t*>(workspace.allocate(bytes));
  PassArgs args;
  args.count = count;
  args.block_entries = static_cast<uint32_t>(plan.tiles_per_block * kSortTile);
  args.blocks = static_cast<uint32_t>(plan.blocks);
  args.mask = (1u << plan.digit_bits) - 1;
  args.totals =
      static_cast<uint32_t*>(workspace.allocate(sizeof(uint32_t) * kDigits * (args.blocks + 1)));
  args.counts = args.totals + kDigits;
  args.shift = plan.position_bits;
  const FromIndex from{index, plan.position_bits};
  cudaError_t error =
      run_pass(from, args, places[0], zeroed, num_zeroed, /*overlaps=*/false, stream);
  for (int pass = 1; pass < plan.passes && error == cudaSuccess; ++pass) {
    args.shift += plan.digit_bits;
    error = run_pass(FromEntries{places[(pass - 1) % 2]}, args, places[pass % 2], nullptr, 0,
                     /*overlaps=*/true, stream);
  }
  *sorted = {places[(plan.passes - 1) % 2], plan.position_bits};
  return error;
}

}  // namespace gpuopt::index_add
