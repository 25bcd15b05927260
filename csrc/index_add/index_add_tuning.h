// Launch shapes and the borders between the paths of index_add.
#pragma once

#include <cstdint>

namespace gpuopt::index_add {

// ---------------------------------------------------------------- sorting the index
constexpr int kSortThreads = 512;
constexpr int kSortItems = 8;  // of a thread, in registers
constexpr int kSortTile = kSortThreads * kSortItems;
constexpr int kMaxDigitBits = 9;
constexpr int kDigits = 1 << kMaxDigitBits;
constexpr int kSortBlocksPerSm = 2;
// Positions take 30 bits of a sorted entry where bins leave them: more entries are added in parts.
constexpr int kMaxPositionBits = 30;

// ---------------------------------------------------------------- summing rows in sorted order
constexpr int kRowThreads = 256;
// Rows that a group has under way, of V values to a lane: wide sums leave registers for fewer.
template <int V>
constexpr int kRowsUnderWay = V >= 8 ? 4 : 8;
constexpr int kShortSegment = 32;  // the longest run of equal indices that one group sums
constexpr int kMinPart = 1024;     // rows of a long segment that one block sums, or more
constexpr int kMaxParts = 2048;
constexpr int kLongBlocksPerSm = 6;

// ---------------------------------------------------------------- few bins, in shared memory
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
constexpr int kLineThreads = 512;
constexpr int kLineBlocksPerSm = 2;
// Pairs of entries that a thread has under way, of R outer indices.
template <int R>
constexpr int kLinePairs = R == 1 ? 8 : 4;
constexpr int kMaxLineValues = 4;           // of an entry, of as many outer indices
constexpr int kMaxLineBytes = 8;            // of these
constexpr int kLineSharedBytes = 96 << 10;  // of a block, where the device has as much
constexpr int kMinLines = 32;               // where other paths may be taken

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

// From this many bytes of source on, sorting the index and writing each row of self once is faster
// than atomics, if rows are at least so wide.
constexpr int64_t kSortSourceBytes = 24 << 20;
constexpr int64_t kSortRowBytes = 32;

}  // namespace gpuopt::index_add
