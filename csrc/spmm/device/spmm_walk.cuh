// Where a thread stands: its row, its entries and its features.
#pragma once

#include "common/index.h"
#include "spmm/spmm_plan.h"

namespace gpuopt::spmm {

__device__ __forceinline__ int64_t number_at(const void* numbers, bool is_long, int64_t place) {
  return is_long ? static_cast<const int64_t*>(numbers)[place]
                 : static_cast<const int32_t*>(numbers)[place];
}

// Numbers of columns and entries are less than 2^32, so the low word of an int64 is enough.
__device__ __forceinline__ const uint32_t* low_word(const Matrix& matrix, const void* numbers,
                                                    int64_t place) {
  return static_cast<const uint32_t*>(numbers) + (matrix.is_long ? 2 * place : place);
}

// The last row that begins at or before an entry: -1 to `rows`.
__device__ __forceinline__ int64_t row_of(const Matrix& matrix, int64_t entry) {
  int64_t low = -1, high = matrix.rows + 1;  // ptr[low] <= entry < ptr[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (number_at(matrix.ptr, matrix.is_long, middle) <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// A row that is in the matrix has its first entry and its end.
struct Row {
  int64_t row = -1;
  int64_t first = 0;
  int64_t end = 0;

  __device__ __forceinline__ Row() {}
  __device__ __forceinline__ Row(const Matrix& matrix, int64_t number) {
    if (number < 0 || number >= matrix.rows) return;
    row = number;
    first = max(number_at(matrix.ptr, matrix.is_long, number), int64_t{0});
    end = min(number_at(matrix.ptr, matrix.is_long, number + 1), matrix.entries);
  }
  __device__ __forceinline__ bool is_cut(const Walk& walk) const {
    return walk.pieces > 0 && end - first > walk.piece;
  }
};

// The entries that a group walks: a row, or a piece of a row.
struct Place {
  Row row;
  int64_t begin = 0, end = 0;
  int64_t slot = -1;  // of a piece
  bool is_whole = false;
  uint32_t lanes;     // threads of the group
  uint32_t parts;     // entries that it takes at once
  uint32_t part;      // which of them this thread takes
  uint32_t lane;      // this thread, of those of an entry
  uint32_t tile, batch;
};

__device__ __forceinline__ Place place_of(const Walk& walk) {
  Place place;
  const uint32_t blocks = walk.piece_blocks + walk.row_blocks;
  const uint32_t outer = blockIdx.x / blocks, block = blockIdx.x % blocks;
  place.tile = outer % walk.tiles;
  place.batch = outer / walk.tiles;
  const bool in_pieces = block < walk.piece_blocks;
  place.lanes = in_pieces ? kWarp : walk.row_lanes;
  place.parts = place.lanes / walk.entry_lanes;
  place.part = threadIdx.x % place.lanes / walk.entry_lanes;
  place.lane = threadIdx.x % walk.entry_lanes;
  if (in_pieces) {
    // Two warps for each window: for the row that has its first entry, and for one that begins in
    // it and has its last entry.
    const int64_t warp = int64_t{block} * (kThreads / kWarp) + threadIdx.x / kWarp;
    const int64_t begin = warp / 2 * walk.piece;
    if (begin >= walk.matrix.entries) return place;
    const int64_t end = min(begin + walk.piece, walk.matrix.entries);
    const bool is_second = warp % 2 != 0;
    const Row row(walk.matrix, row_of(walk.matrix, is_second ? end - 1 : begin));
    if (row.row < 0 || !row.is_cut(walk) || (is_second && row.first <= begin)) return place;
    place.row = row;
    place.slot = warp;
    place.begin = max(begin, row.first);
    place.end = min(end, row.end);
    return place;
  }
  const uint32_t groups = kThreads / place.lanes;
  place.row = Row(walk.matrix,
                  int64_t{block - walk.piece_blocks} * groups + threadIdx.x / place.lanes);
  place.is_whole = place.row.row >= 0 && !place.row.is_cut(walk);
  if (place.is_whole) {
    place.begin = place.row.first;
    place.end = place.row.end;
  }
  return place;
}

}  // namespace gpuopt::spmm
