// Launch shapes and the borders between the paths of index_add, with what was measured on an H200
// (microseconds). Not swept: kSortGroup, kSortRepeats, kGroupRows, kMaxParts, kMinBinValues,
// kMaxBinBytes, kMinTileEntries and the numbers of frequent bins.
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
// (169343,128) += (2^20,128): f32, Zipf 1.1, 3 blocks of 8 rows 224, 4 blocks (which spill) 241;
// bf16, uniform, 4 blocks of 4 rows 158, 3 of 6 163, 3 of 4 169.
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

// ---------------------------------------------------------------- few bins, in shared memory A
// histogram of 2^24 values in f32: one block of 1024 threads a multiprocessor 64.5, two of 512
// 68.5, three 71.5; 8 entries a step instead of 4 65.0 uniform, 69.8 Zipf 1.1.
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
// (4096,1024) += (4096,8192) along dim 1: f32, three blocks 84.5, two 91.3; bf16, R = 4 70.7 in
// either, R = 2 73.6, 384 threads 76.1.
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

// ---------------------------------------------------------------- atomics, rows of a bin summed by
// tiles Rows of a tile, from which on those of a bin are summed. (131072,64) += (2^20,64) f16:
// uniform, two 80.4, three 79.5, four 79.7; Zipf 1.1, 93, 104, 113.
constexpr uint32_t kAggregateFrom = 3;
// Of a row, at most. (65536,1024) += (16384,1024) f32: uniform, 8 66.4, 16 62.3, all 61.9; Zipf
// 1.1, 50, 48, 68.
constexpr int64_t kTileUnits = 16;
// Rows of one pack, (65536,4) += (2^21,4) f32: uniform, by tiles 51, with frequent bins apart 40.
// Of two, 35 and 33; Zipf 1.1, 40 and 54.
constexpr int64_t kMinTileUnits = 2;
constexpr int64_t kMinTileEntries = 1024;
// Threads of a block whose full tile has no more rows than these, in two batches: first sums are on
// their way sooner, and more blocks take turns. In one of 256 and in two of 128, (131072,64) +=
// (2^20,64) f16 78.6 and 77.7, (65536,64) += (2^18,64) bf16 28.9 and 27.4; Zipf 1.1, 92 and 93,
// 36.2 and 37.0. Of more rows, (65536,16) += (2^20,16) f32 45.5 and 47.4.
constexpr int kFewRowsThreads = 128;

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

// ---------------------------------------------------------------- from where on the index is
// sorted Of rows that tiles aggregate, by what either way takes of memory's time, in bytes. The
// sort and the launches after it take as long as kSortTraffic, and kSortEntryTraffic for each
// entry: 28 us and 30 for 2^20. Additions take as long as several times the source: each pack in
// the L2 as kCachedTraffic times its bytes (107 packs a ns), and where self is not held there
// (uniform, kAddedTraffic) it is read and written for each. Uniform, by tiles and sorted:
// (65536,256) += (131072,256) bf16 54 and 64, (169343,128) += (2^20,128) bf16 186 and 142,
// (32768,128) += (262144,128) f32 76 and 79, (65536,128) 90 and 84, (16384,512) += (65536,512) 91
// and 75, (65536,1024) += (16384,1024) 62 and 72. Of skewed indices tiles take a little longer, the
// sort too.
constexpr double kSortTraffic = 118e6;
constexpr double kSortEntryTraffic = 120;
constexpr double kCachedTraffic = 2.5;
constexpr double kAddedTraffic = 3.1;
constexpr double kCachedSelfBytes = 20e6;

// Of other rows: with fewer entries the sort takes longer than additions that queue up, and with
// shorter rows frequent bins do in shared memory.
constexpr double kSortSourceBytes = 24 << 20;
constexpr int64_t kSortEntries = 1 << 15;
constexpr int64_t kSortRepeats = 4;  // or so many entries to a bin
constexpr int64_t kSortRowBytes = 128;

}  // namespace gpuopt::index_add
