// Sorts the index in ascending order, with equal bins in the order of their positions. It is a
// stable radix sort, least significant digit first (Knuth, The Art of Computer Programming 3,
// section 5.2.5), of bins and positions packed into 64 bits.
//
// The plan, and the contract with whoever sorts. Plain host C++. Times are in us on an H200.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "common/describe.h"
#include "common/device.h"
#include "common/index.h"
#include "common/index_reader.h"
#include "common/launch_shape.h"
#include "common/tuning.h"
#include "common/workspace.h"

namespace gpuopt::index_sort {

constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kMaxSortItems = 8;  // entries per thread, in registers; a power of two
constexpr int kMaxDigitBits = 9;
constexpr int kDigits = 1 << kMaxDigitBits;
// An odd number of words, so that lanes of a column are in different banks.
constexpr int kCountStride = kDigits + 2;
constexpr int kSortGroup = 16;  // blocks that are counted together; not swept
constexpr int kMaxSortBlocks = kSortGroup * kSortGroup;
constexpr int kMaxTileItems = kMaxSortItems / 2;  // where one block sorts all

struct SortTuning {
  // Bits of the position of a sorted entry, if its bin leaves as many. Larger problems are added in
  // parts.
  int position_bits = 30;
  // One block sorts up to so many entries: this takes 10, and passes over all blocks take 14 (18
  // bits). Blocks that sort runs and merge them are slower: 22 for 2^14 entries, where passes over
  // all blocks take 15.
  int64_t max_tile_entries = 4096;

  GPUOPT_DESCRIBE(position_bits, max_tile_entries)
};

struct Digit {
  int shift = 0;
  int bits = 0;

  GPUOPT_HOST_DEVICE uint32_t of(uint64_t entry) const {
    return static_cast<uint32_t>(entry >> shift) & ((1u << bits) - 1);
  }
};

// The entries of a pass: the index of the caller in the first pass, packed entries in later passes.
// load() is apart from check() and to_entries(), so that all loads of a thread are in flight before
// it waits for one.
struct SortSource {
  const uint64_t* packed = nullptr;
  Index index;
  int position_bits = 0;

  // Loads Items entries from `first` on, `step` apart. Past the end they are the highest number,
  // which stays last in every pass.
  template <int Items>
  GPUOPT_DEVICE void load(uint32_t first, uint32_t step, uint32_t end,
                          uint64_t (&entries)[Items]) const;

  // Whether each loaded bin is at most the bin of the next lane, which has the next entry. All
  // lanes of the warp take part.
  template <int Items>
  GPUOPT_DEVICE static bool ascend(const uint64_t (&bins)[Items]);

  // Combines the bins that load() has returned with their positions.
  template <int Items>
  GPUOPT_DEVICE void to_entries(uint32_t first, uint32_t step, uint32_t end,
                                uint64_t (&entries)[Items]) const;

  // Must be called before to_entries(). A bin out of range fails an assertion.
  template <int Items>
  GPUOPT_DEVICE void check(uint32_t first, uint32_t step, uint32_t end,
                           const uint64_t (&bins)[Items]) const;
};

struct PassArgs {
  SortSource source;
  Digit digit;
  uint32_t count = 0;
  uint32_t block_entries = 0;
  uint32_t* counts = nullptr;    // [block][digit]
  uint32_t* groups = nullptr;    // [group of kSortGroup blocks][digit], zero before the pass
  uint32_t* unsorted = nullptr;  // 1 if the index is not in order; zero before the first pass
};

// How the index is sorted. A sorted entry has its bin in the high bits and its position in the low
// bits.
struct SortPlan {
  int passes = 1;
  int items = 1;          // entries per thread
  bool one_tile = false;  // one block sorts all; else blocks move entries, pass by pass
  PassArgs args;
  uint32_t num_zeroed = 0;   // words that are zeroed for later kernels
  uint32_t pass_groups = 0;  // words of args.groups in a pass
  LaunchShape zero, count, move;
};

// Bits needed to tell `count` numbers apart.
inline int bits_for(int64_t count) {
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < count) ++bits;
  return bits;
}

// Bits of the position in a sorted entry.
inline int position_bits_for(int64_t bins, const SortTuning& tuning) {
  return std::min(tuning.position_bits, 64 - bits_for(bins));
}

constexpr int sort_shared_bytes(int items) {
  return 8 * kSortThreads * items + 2 * kSortWarps * kCountStride + 4 * kDigits + 4 * kSortWarps;
}

// Plans the sort of `entries` entries, at least one. Tiles are as small as possible while every
// block has at most one tile, up to the largest tile.
inline SortPlan plan_sort(const Index& index, int64_t entries, uint32_t num_zeroed,
                          const Device& device, const SortTuning& tuning = limits<SortTuning>()) {
  SortPlan plan;
  PassArgs& args = plan.args;
  const int bits = bits_for(index.bins);
  plan.passes = std::max(ceil_div(bits, kMaxDigitBits), 1);
  args.source.index = index;
  args.source.position_bits = position_bits_for(index.bins, tuning);
  args.digit = {args.source.position_bits, ceil_div(bits, plan.passes)};
  args.count = static_cast<uint32_t>(entries);
  plan.num_zeroed = num_zeroed;
  plan.one_tile =
      entries <= tuning.max_tile_entries && sort_shared_bytes(kMaxTileItems) <= device.shared_bytes;
  const int64_t most_blocks = plan.one_tile ? 1 : std::min(device.sms, kMaxSortBlocks);
  while (plan.items < kMaxSortItems && kSortThreads * plan.items * most_blocks < entries &&
         sort_shared_bytes(2 * plan.items) <= device.shared_bytes) {
    plan.items *= 2;
  }
  const int64_t tile = int64_t{kSortThreads} * plan.items;
  const int64_t tiles = ceil_div(entries, tile);
  const int64_t block_tiles = ceil_div(tiles, most_blocks);
  args.block_entries = static_cast<uint32_t>(block_tiles * tile);
  plan.move.threads = kSortThreads;
  plan.move.blocks = static_cast<unsigned>(ceil_div(tiles, block_tiles));
  plan.move.shared_bytes = static_cast<size_t>(sort_shared_bytes(plan.items));
  plan.move.use_pdl = true;
  if (plan.one_tile) return plan;
  plan.count = plan.move;
  plan.count.shared_bytes = 0;
  const uint32_t blocks = plan.move.blocks;
  plan.pass_groups = ceil_div<uint32_t>(blocks, kSortGroup) * kDigits;
  const uint32_t words =
      std::max(plan.pass_groups * static_cast<uint32_t>(plan.passes) + 1, num_zeroed);
  plan.zero.threads = kSortThreads;
  plan.zero.blocks = std::min(blocks, ceil_div<uint32_t>(words, kSortThreads));
  plan.zero.use_pdl = true;
  return plan;
}

// Sorts the index of a plan, and zeroes plan.num_zeroed words. (*sorted)[i] >> position_bits is a
// bin. The bits below are its position in the index. The next kernel of the stream may start before
// the last pass ends (programmatic dependent launch).
cudaError_t sort_index(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                       cudaStream_t stream, const uint64_t** sorted);

}  // namespace gpuopt::index_sort
