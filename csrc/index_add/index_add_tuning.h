// Launch shapes and the borders between the paths of index_add, with what was measured on an H200
// (microseconds). Not swept: kSortGroup, kSortRepeats, kGroupRows, kMaxParts, kMinBinValues, kMaxBinBytes
// and the numbers of frequent bins.
#pragma once

#include <cstdint>

namespace gpuopt::index_add {

// ---------------------------------------------------------------- sorting the index
constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kMaxSortItems = 8;  // of a thread, in registers; a power of two
constexpr int kMaxDigitBits = 9;
constexpr int kDigits = 1 << kMaxDigitBits;
// An odd number of words, so that lanes of a column are in different banks.
constexpr int kCountStride = kDigits + 2;
constexpr int kSortGroup = 16;  // blocks that are counted together
constexpr int kMaxSortBlocks = kSortGroup * kSortGroup;
// So many entries are sorted by one block: 10 us, where passes over all take 14 (H200, 18 bits).
constexpr int kMaxTileItems = kMaxSortItems / 2;
constexpr int64_t kMaxTileEntries = 4096;
// Positions take 30 bits of a sorted entry where bins leave them: more entries are added in parts.
constexpr int kMaxPositionBits = 30;

// ---------------------------------------------------------------- summing rows in sorted order
constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;
// (169343,128) += (2^20,128): f32, Zipf 1.1, 3 blocks of 8 rows 224, 4 blocks (which spill) 241; bf16,
// uniform, 4 blocks of 4 rows 158, 3 of 6 163, 3 of 4 169.
template <int V>
constexpr int kRowBlocksPerSm = V >= 8 ? 4 : 3;
// Rows that a group has under way, of V values to a lane: wide sums leave registers for fewer.
template <int V>
constexpr int kRowsUnderWay = V >= 8 ? 4 : 8;
template <int V>
constexpr int kPartRowsUnderWay = V >= 8 ? 3 : 8;
constexpr int kShortSegment = 32;  // the longest run of equal indices that one group sums
// Rows of a long segment that a group of a warp or block sums, or more where there are many parts.
constexpr int kGroupRows = 128;
constexpr int kMaxParts = 1024;

// ---------------------------------------------------------------- few bins, in shared memory
// A histogram of 2^24 values in f32: one block of 1024 threads a multiprocessor 64.5, two of 512 68.5, three
// 71.5; 8 entries a step instead of 4 65.0 uniform, 69.8 Zipf 1.1.
constexpr int kBinThreads = 1024;
constexpr int kBinValues = 4;  // that a thread has under way
constexpr int kBinPack = 4;    // entries of a thread's step, where they lie side by side
constexpr int kMaxBinCopies = 128;
constexpr uint32_t kMaxBitsOfOneThread = 5;  // log2 of copies that one thread adds up
constexpr int kMaxBinBytes = 48 << 10;       // one copy of the bins
constexpr int kBinSharedBytes = 160 << 10;   // all copies of a block
constexpr int kBinOuterGroup = 4;            // outer indices of a block, where there are many
constexpr int kBinGroupCopies = 4;           // of their bins, at least
constexpr int kMaxBinRow = 4;
constexpr int64_t kMinBinValues = 1 << 15;

// ---------------------------------------------------------------- lines, in one order for all
constexpr int kOrderThreads = 1024;
constexpr int kOrderItems = 16;  // of a thread, in registers
constexpr int kOrderDigitBits = 5;
constexpr int kOrderStaticBytes = 5 << 10;  // of shared memory, at most, beside what plans count
// (4096,1024) += (4096,8192) along dim 1: f32, three blocks 84.5, two 91.3; bf16, R = 4 70.7 in either, R = 2
// 73.6, 384 threads 76.1.
constexpr int kLineThreads = 512;
// Of R outer indices: what R = 4 sums does not fit into the registers of three blocks.
template <int R>
constexpr int kLineBlocksPerSm = R == 4 ? 2 : 3;
// Pairs of entries that a thread has under way.
template <int R>
constexpr int kLinePairs = R == 2 ? 2 : 4;
constexpr int kMaxLineValues = 4;           // of an entry, of as many outer indices
constexpr int kMaxLineBytes = 8;            // of these
constexpr int kLineSharedBytes = 96 << 10;  // of a block, where the device has as much
// Where other paths may be taken: 512 outer indices 24.2 by lines, 25.5 in bins; 64 19.0 and 8.9.
constexpr int kMinLines = 512;

// ---------------------------------------------------------------- atomics
constexpr int kAtomicThreads = 256;
constexpr int kAtomicUnroll = 4;

// ---------------------------------------------------------------- atomics, frequent bins apart
constexpr int kHotSamples = 1024;
constexpr int kHotFrom = 4;  // samples of a bin
constexpr int kHotSlotBits = 11;
constexpr int kHotSlots = 1 << kHotSlotBits;
constexpr int kHotCopies = 8;
constexpr int kHotSharedBytes = 24 << 10;
constexpr int kMaxHotBins = 256;
constexpr int kMaxHotRow = 64;
constexpr int kHotBlocksPerSm = 3;
constexpr int64_t kMinHotValues = 1 << 20;

// From here on the index is sorted: with fewer entries the sort takes longer than additions that queue
// up, and with shorter rows frequent bins do in shared memory. On the H200, f32, uniform and Zipf 1.1,
// atomics and sorted: 61 and 57, 231 and 81 us for 262144 rows of 64; 34 and 45, 63 and 62 us for
// 65536 of 128; 63 and 71, 61 and 64 us for 16384 of 1024.
constexpr int64_t kSortSourceBytes = 24 << 20;
constexpr int64_t kSortEntries = 1 << 15;
constexpr int64_t kSortRepeats = 4;  // or so many entries to a bin
constexpr int64_t kSortRowBytes = 128;

}  // namespace gpuopt::index_add
