// How a block sorts the tile in its registers by one digit: it ranks the entries, and writes them
// to shared memory in that order.
//
// Lanes find their peers, the lanes with an equal digit, by one ballot per bit: always the same
// small number of instructions. match.any takes longer the more different digits a warp has,
// atomics in shared memory the fewer. On an H200, a sort of 2^20 entries takes 33 us by ballots, 55
// us by match.any and 31 us by atomics. Atomics are 25 to 43% slower for 2^24 equal indices. CUB's
// radix sorts rank in the same way (block_radix_rank.cuh).
#pragma once

#include <cassert>

#include "common/warp.cuh"
#include "index_sort/index_sort.h"

namespace gpuopt::index_sort {

extern __shared__ uint64_t sort_shared[];

template <int Items>
struct SortTile {
  uint64_t ordered[kSortThreads * Items];
  // [warp][digit]: entries of the digit that the warp has had so far, then where in the tile they
  // begin.
  alignas(4) uint16_t counts[kSortWarps][kCountStride];
  uint32_t
      distances[kDigits];  // from a digit's position in the ordered tile to its position in memory
  uint32_t sums[kSortWarps];
};
static_assert(sizeof(SortTile<1>) == sort_shared_bytes(1));
static_assert(sizeof(SortTile<kMaxSortItems>) == sort_shared_bytes(kMaxSortItems));

template <int Items>
GPUOPT_DEVICE void SortSource::load(uint32_t first, uint32_t step, uint32_t end,
                                    uint64_t (&entries)[Items]) const {
  const auto fill = [&](auto value) {
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const uint32_t at = first + i * step;
      entries[i] = at < end ? static_cast<uint64_t>(value(at)) : ~uint64_t{0};
    }
  };
  if (packed != nullptr) {
    fill([&](uint32_t at) { return __ldcg(packed + at); });
  } else if (index.is_long) {
    fill([&](uint32_t at) { return static_cast<const int64_t*>(index.values)[at * index.stride]; });
  } else {
    fill([&](uint32_t at) {
      return int64_t{static_cast<const int32_t*>(index.values)[at * index.stride]};
    });
  }
}

template <int Items>
GPUOPT_DEVICE bool SortSource::ascend(const uint64_t (&bins)[Items]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const uint64_t next = shuffle_down(bins[i]);
    all = all && bins[i] <= next;
  }
  return all;
}

template <int Items>
GPUOPT_DEVICE void SortSource::to_entries(uint32_t first, uint32_t step, uint32_t end,
                                          uint64_t (&entries)[Items]) const {
  if (packed != nullptr) return;
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const uint32_t at = first + i * step;
    if (at < end) entries[i] = entries[i] << position_bits | at;
  }
}

template <int Items>
GPUOPT_DEVICE void SortSource::check(uint32_t first, uint32_t step, uint32_t end,
                                     const uint64_t (&bins)[Items]) const {
  if (packed != nullptr) return;
  bool in_range = true;
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    in_range = in_range && (first + i * step >= end || bins[i] < static_cast<uint64_t>(index.bins));
  }
  assert(in_range && "index_add: index out of bounds");
}

__device__ __forceinline__ void clear_counts(uint16_t* counts) {  // of one warp
  auto* words = reinterpret_cast<uint32_t*>(counts);
#pragma unroll
  for (uint32_t at = threadIdx.x % 32; at < kCountStride / 2; at += 32) words[at] = 0;
  __syncwarp();
}

// Sets ranks[i] to the number of the warp's entries that have the digit of entries[i] and come
// before it, in the order of i, then of lanes. Adds the number of entries of each digit to `counts`
// of the own warp.
template <int Items>
__device__ __forceinline__ void rank_in_warp(const uint64_t (&entries)[Items], const Digit& digit,
                                             uint16_t* counts, uint32_t (&ranks)[Items]) {
  uint32_t digits[Items], peers[Items];
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    digits[i] = digit.of(entries[i]);
    peers[i] = 0xffffffffu;
  }
#pragma unroll
  for (int bit = 0; bit < kMaxDigitBits; ++bit) {
    if (bit >= digit.bits) break;
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      peers[i] &= lanes_with_same(digits[i], 1u << bit);
    }
  }
  const uint32_t lower_lanes = (1u << threadIdx.x % 32) - 1;
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const uint32_t before = counts[digits[i]], below = __popc(peers[i] & lower_lanes);
    ranks[i] = before + below;
    __syncwarp();
    if (below == 0) counts[digits[i]] = static_cast<uint16_t>(before + __popc(peers[i]));
    __syncwarp();
  }
}

// Numbers of two neighbouring digits in the ordered tile, in the halves of a word. No sum reaches
// 2^16.
struct DigitPair {
  uint32_t start;
  uint32_t total;
};
static_assert(kSortThreads * kMaxSortItems < 1 << 16);

constexpr uint32_t kPairsPerWarp = kDigits / 2 / kSortWarps;
constexpr uint32_t kPairLanes = 32 / kPairsPerWarp;  // lanes that share the column of a pair
constexpr uint32_t kPairRows = kSortWarps / kPairLanes;

// The pair of digits that this lane sums, with other lanes.
__device__ __forceinline__ uint32_t own_pair() {
  return threadIdx.x / 32 * kPairsPerWarp + threadIdx.x % kPairsPerWarp;
}

// Sets counts[warp][digit] to the rank in the tile of the warp's first entry of the digit. The
// caller has a barrier before and after it. It has one barrier itself.
__device__ __forceinline__ DigitPair sum_up_warps(uint16_t (*counts)[kCountStride],
                                                  uint32_t (&sums)[kSortWarps]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t part = lane / kPairsPerWarp, pair = lane % kPairsPerWarp;
  constexpr uint32_t kStride = kCountStride / 2;
  uint32_t* column = reinterpret_cast<uint32_t*>(counts) + part * kPairRows * kStride + own_pair();
  uint32_t rows[kPairRows], own = 0;
#pragma unroll
  for (uint32_t r = 0; r < kPairRows; ++r) rows[r] = column[r * kStride];
#pragma unroll
  for (uint32_t r = 0; r < kPairRows; ++r) {
    const uint32_t row = rows[r];
    rows[r] = own;
    own += row;
  }
  uint32_t up_to_own = own;
#pragma unroll
  for (uint32_t distance = 1; distance < kPairLanes; distance *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, up_to_own, distance * kPairsPerWarp);
    if (part >= distance) up_to_own += below;
  }
  DigitPair digits;
  digits.total = __shfl_sync(0xffffffffu, up_to_own, (kPairLanes - 1) * kPairsPerWarp + pair);
  const uint32_t both = (digits.total & 0xffff) + (digits.total >> 16);
  uint32_t up_to_pair = both;
#pragma unroll
  for (uint32_t distance = 1; distance < kPairsPerWarp; distance *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, up_to_pair, distance);
    if (pair >= distance) up_to_pair += below;
  }
  if (lane == kPairsPerWarp - 1) sums[warp] = up_to_pair;
  __syncthreads();
  uint32_t before = lane < warp ? sums[lane] : 0;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) before += __shfl_xor_sync(0xffffffffu, before, mask);
  const uint32_t start = before + up_to_pair - both;
  digits.start = start | (start + (digits.total & 0xffff)) << 16;
  const uint32_t base = digits.start + up_to_own - own;
#pragma unroll
  for (uint32_t r = 0; r < kPairRows; ++r) column[r * kStride] = base + rows[r];
  return digits;
}

// Writes the entries to their positions in the ordered tile. They can be read after a barrier.
template <int Items>
__device__ __forceinline__ void order(const uint64_t (&entries)[Items],
                                      const uint32_t (&ranks)[Items], const Digit& digit,
                                      const uint16_t* counts, uint64_t* ordered) {
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    ordered[ranks[i] + counts[digit.of(entries[i])]] = entries[i];
  }
}

}  // namespace gpuopt::index_sort
