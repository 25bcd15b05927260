// Where a thread stands: its entries, their rows and its features.
#pragma once

#include <cuda_runtime_api.h>

#include "common/index.h"
#include "common/workspace.h"
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

// Where a row begins among the entries. An operand that is no valid matrix reads nothing else.
__device__ __forceinline__ int64_t start_of(const Matrix& matrix, int64_t row) {
  const int64_t start = number_at(matrix.ptr, matrix.is_long, row);
  return min(max(start, int64_t{0}), matrix.entries);
}

// The last row of 0 to `rows` that starts at or before a place, or -1. A row counts as `own` places,
// and so does each entry before it.
__device__ __forceinline__ int64_t row_at(const Matrix& matrix, int64_t place, int64_t own) {
  int64_t low = -1, high = matrix.rows + 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (start_of(matrix, middle) + own * middle <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The entries that a group walks: some rows, or a piece of one row.
struct Place {
  int64_t begin = 0;     // entry
  int32_t count = 0;     // entries
  int64_t row = 0;       // the first
  int64_t end_row = 0;   // behind the last
  int64_t first = 0;     // entry of the row that is cut
  int64_t slot = -1;     // of a piece
  uint32_t lane;         // this thread, of those of the group
  uint32_t tile, batch;
};

// starts[w]: the first row of a window.
__device__ __forceinline__ Place place_of(const Walk& walk, const void* starts) {
  const Matrix& matrix = walk.matrix;
  Place place;
  const uint32_t blocks = walk.piece_blocks + walk.row_blocks;
  const uint32_t outer = blockIdx.x / blocks, block = blockIdx.x % blocks;
  place.tile = outer % walk.tiles;
  place.batch = outer / walk.tiles;
  place.lane = threadIdx.x % walk.lanes;
  const uint32_t groups = kThreads / walk.lanes;
  if (block < walk.piece_blocks) {
    // Two groups for each piece of the entries: for the row that has its first entry, and for one
    // that begins in it and has its last entry.
    const int64_t group = int64_t{block} * groups + threadIdx.x / walk.lanes;
    const int64_t begin = group / 2 * walk.piece;
    if (begin >= matrix.entries) return place;
    const int64_t end = min(begin + walk.piece, matrix.entries);
    const bool is_second = group % 2 != 0;
    const int64_t row = row_at(matrix, is_second ? end - 1 : begin, 0);
    if (row < 0 || row >= matrix.rows) return place;
    const int64_t first = start_of(matrix, row), last = start_of(matrix, row + 1);
    if (last - first <= walk.piece || (is_second && first <= begin)) return place;
    place.row = place.end_row = row;
    place.slot = group;
    place.first = first;
    place.begin = max(begin, first);
    place.count = static_cast<int32_t>(min(end, last) - place.begin);
    return place;
  }
  const int64_t window =
      int64_t{block - walk.piece_blocks} * groups + threadIdx.x / walk.lanes;
  if (window >= walk.windows) return place;
  place.row = number_at(starts, matrix.is_long, window);
  place.end_row = number_at(starts, matrix.is_long, window + 1);
  if (place.row >= place.end_row) return place;
  // Only the last row of a window can be one that is cut.
  place.begin = place.first = start_of(matrix, place.row);
  const int64_t last = start_of(matrix, place.end_row - 1), end = start_of(matrix, place.end_row);
  const bool is_cut = walk.pieces > 0 && end - last > walk.piece;
  place.end_row -= is_cut;
  place.count = static_cast<int32_t>((is_cut ? last : end) - place.begin);
  return place;
}

// The rows of a group, one after another.
class Cursor {
 public:
  __device__ __forceinline__ Cursor(const Matrix& matrix, const Place& place)
      : matrix_(matrix), begin_(place.begin), row_(place.row), end_row_(place.end_row) {
    first_ = static_cast<int32_t>(place.first - begin_);
    end_ = row_ < end_row_ ? end_of(row_) : INT32_MAX;
    next_end_ = row_ + 1 < end_row_ ? end_of(row_ + 1) : INT32_MAX;
  }
  __device__ __forceinline__ bool has_row() const { return row_ < end_row_; }
  __device__ __forceinline__ int64_t row() const { return row_; }
  // Where the row begins and ends, counted from the first entry of the group.
  __device__ __forceinline__ int32_t first() const { return first_; }
  __device__ __forceinline__ int32_t end() const { return end_; }
  __device__ __forceinline__ void advance() {
    ++row_;
    first_ = end_;
    end_ = next_end_;
    next_end_ = row_ + 1 < end_row_ ? end_of(row_ + 1) : INT32_MAX;
  }

 private:
  __device__ __forceinline__ int32_t end_of(int64_t row) const {
    return static_cast<int32_t>(start_of(matrix_, row + 1) - begin_);
  }

  const Matrix& matrix_;
  const int64_t begin_;
  int64_t row_;
  const int64_t end_row_;
  int32_t first_, end_, next_end_;
};

// The first row of each window, and the number of rows: in workspace, or null if there is none.
void* find_starts(const Walk& walk, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::spmm
