// Where a thread stands: its entries, their rows and its features.
#pragma once

#include "common/index.h"
#include "common/vec.cuh"
#include "rows/rows_plan.h"

namespace gpuopt::rows {

__device__ __forceinline__ int64_t number_at(const void* numbers, bool is_long, int64_t position) {
  return is_long ? static_cast<const int64_t*>(numbers)[position]
                 : static_cast<const int32_t*>(numbers)[position];
}

__device__ __forceinline__ void store_number(void* numbers, bool is_long, int64_t position,
                                             int64_t number) {
  if (is_long) {
    static_cast<int64_t*>(numbers)[position] = number;
  } else {
    static_cast<int32_t*>(numbers)[position] = static_cast<int32_t>(number);
  }
}

// Numbers of columns and entries are less than 2^32, so the low word of an int64 is enough.
__device__ __forceinline__ const uint32_t* low_word(const Matrix& matrix, const void* numbers,
                                                    int64_t position) {
  return static_cast<const uint32_t*>(numbers) + (matrix.is_long ? 2 * position : position);
}

// The low words of N neighbouring numbers. Only the first `count` may be read. The loads are in
// flight together.
template <int N>
__device__ __forceinline__ void load_low_words(const Matrix& matrix, const void* numbers,
                                               int64_t position, int32_t count,
                                               uint32_t (&words)[N]) {
  const uint32_t* const from = low_word(matrix, numbers, position);
  const auto load = [&](int step, bool all) {
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = load_word<uint32_t>(from + i * step, all || i < count);
  };
  if (matrix.is_long) {
    load(2, false);
  } else if (count < N) {
    load(1, false);
  } else {  // most often
    load(1, true);
  }
}

// Where the value of an entry is. A number that no entry has stands for the last one.
__device__ __forceinline__ int64_t place_of(const Matrix& matrix, int64_t entry) {
  if (matrix.entry == nullptr) return entry;
  return min(*low_word(matrix, matrix.entry, entry), static_cast<uint32_t>(matrix.entries - 1));
}

// A mask of the lanes of this thread's group.
__device__ __forceinline__ uint32_t lanes_of_group(uint32_t lanes) {
  return lanes == kWarp ? ~0u : ((1u << lanes) - 1) << threadIdx.x % kWarp / lanes * lanes;
}

// The entry with which a row begins. Of an operand that is no valid matrix, it is an entry, too.
__device__ __forceinline__ int64_t start_of(const Matrix& matrix, int64_t row) {
  const int64_t start = number_at(matrix.ptr, matrix.is_long, row);
  return min(max(start, int64_t{0}), matrix.entries);
}

// Finds two borders of windows. On return, first[i] is the first of rows first[i] to end[i] that
// begins at position border[i] or behind it, or end[i]. The lanes of a group search together: each
// tests a row. All groups of the warp vote at once, for votes of parts of a warp run one by one.
__device__ __forceinline__ void search_rows(const Matrix& matrix, uint32_t lanes,
                                            const int64_t (&border)[2], int64_t (&first)[2],
                                            int64_t (&end)[2]) {
  const uint32_t group = lanes_of_group(lanes), lane = threadIdx.x % lanes;
  const int shift = max(__ffs(static_cast<int>(lanes)) - 1, 1);
  while (__any_sync(0xffffffffu, first[0] < end[0] || first[1] < end[1])) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t step = ((end[i] - first[i]) >> shift) + 1;
      const int64_t row = first[i] + (lane + 1) * step - 1;
      const bool is_before = row < end[i] && start_of(matrix, row) + row < border[i];
      first[i] += step * __popc(__ballot_sync(0xffffffffu, is_before) & group);
      end[i] = min(end[i], first[i] + step - 1);
    }
  }
}

// first[i]: the first row that begins in window number + i or behind it. The warp searches for the
// rows of all its windows, then each group among these.
__device__ __forceinline__ void find_rows(const Walk& walk, int64_t number, uint32_t lanes,
                                          int64_t (&first)[2]) {
  int64_t end[2] = {walk.matrix.rows, walk.matrix.rows};
  first[0] = first[1] = 0;
  if (lanes < kWarp) {
    const int64_t of_warp = number - threadIdx.x % kWarp / lanes;
    search_rows(walk.matrix, kWarp,
                {of_warp * walk.window, (of_warp + kWarp / lanes) * walk.window}, first, end);
    end[0] = end[1] = first[1];
    first[1] = first[0];
  }
  search_rows(walk.matrix, lanes, {number * walk.window, (number + 1) * walk.window}, first, end);
}

// A window of the path. The path has a position for each row, followed by one for each entry of it.
// Row `row` and those before `end_row` begin in the window; entries before row `row` belong to the
// row before it.
struct Window {
  int64_t begin = 0;  // entry
  int32_t count = 0;  // entries
  int64_t row = 0;
  int32_t rows = 0;  // that begin here

  // `lanes` neighbouring threads ask for the same window, and the next ones for the next window.
  // All lanes of the warp take part.
  __device__ __forceinline__ Window(const Walk& walk, int64_t number, uint32_t lanes) {
    const Matrix& matrix = walk.matrix;
    int64_t first[2];
    find_rows(walk, number, lanes, first);
    if (number >= walk.windows) return;
    row = first[0];
    rows = static_cast<int32_t>(first[1] - row);
    const int64_t position = number * walk.window;
    begin = max(position - row, start_of(matrix, 0));
    const int64_t end = min(position + walk.window - first[1], start_of(matrix, matrix.rows));
    count = static_cast<int32_t>(max(end - begin, int64_t{0}));
  }
};

// Which window a thread's group has, and what of it. It is cheaper to find these again than to keep
// them.
struct Place {
  int64_t window;
  uint32_t lane;  // this thread's index within its group
  uint32_t tile, batch;

  __device__ __forceinline__ explicit Place(const Walk& walk) {
    const uint32_t outer = blockIdx.x / walk.blocks, block = blockIdx.x % walk.blocks;
    tile = outer % walk.tiles;
    batch = outer / walk.tiles;
    lane = threadIdx.x % walk.lanes;
    window = int64_t{block} * (kThreads / walk.lanes) + threadIdx.x / walk.lanes;
  }
};

// Goes through the rows of a window. Numbers of entries count from the first of the window, and
// numbers of rows from the first that begins in it: row -1 begins before.
class Cursor {
 public:
  __device__ __forceinline__ Cursor(const Matrix& matrix, const Window& window)
      : matrix_(matrix), window_(window) {
    const bool has_head = window.count > 0 && window.row > 0 && end_of(-1) > 0;
    row_ = has_head ? -1 : 0;
    first_ = 0;
    end_ = end_of(row_);
    next_end_ = end_of(row_ + 1);
  }
  __device__ __forceinline__ bool has_row() const { return row_ < window_.rows; }
  __device__ __forceinline__ int32_t row() const { return row_; }
  __device__ __forceinline__ int32_t first() const { return first_; }
  // The end of the row, or a number that no entry has if the row has entries in the next window.
  __device__ __forceinline__ int32_t end() const { return end_; }
  __device__ __forceinline__ bool is_open() const { return end_ == INT32_MAX; }
  __device__ __forceinline__ void advance() {
    ++row_;
    first_ = end_;
    end_ = next_end_;
    next_end_ = end_of(row_ + 1);
  }

 private:
  __device__ __forceinline__ int32_t end_of(int32_t row) const {
    if (row >= window_.rows) return INT32_MAX;
    const int64_t end = start_of(matrix_, window_.row + row + 1) - window_.begin;
    return end > window_.count ? INT32_MAX : static_cast<int32_t>(end);
  }

  const Matrix& matrix_;
  const Window& window_;
  int32_t row_, first_, end_, next_end_;
};

}  // namespace gpuopt::rows
