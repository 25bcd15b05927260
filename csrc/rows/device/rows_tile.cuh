// Tiles: the windows of blocks. A block copies the entries of its tile to shared memory side by
// side, and then reads its rows there.
#pragma once

#include "common/async.cuh"
#include "rows/device/rows_walk.cuh"

namespace gpuopt::rows {

// The window of this block. Offsets that descend may put more rows into a window than it has
// positions: the others are left out.
__device__ __forceinline__ Window tile_window(const Walk& walk) {
  Window window(walk, blockIdx.x, kWarp);
  window.rows = min(window.rows, static_cast<int32_t>(walk.window));
  return window;
}

// Hands out the shared memory of a block, in order.
class TileMemory {
 public:
  __device__ __forceinline__ explicit TileMemory(uint4* shared)
      : next_(reinterpret_cast<char*>(shared)) {}

  template <typename T>
  __device__ __forceinline__ T* take(int32_t count) {
    T* const taken = reinterpret_cast<T*>(next_);
    const auto bytes = static_cast<uint32_t>(max(count, 0)) * static_cast<uint32_t>(sizeof(T));
    next_ += (bytes + kAccessBytes - 1) / kAccessBytes * kAccessBytes;
    return taken;
  }

  // Starts a copy of neighbouring elements. wait_for_copies() and a barrier end it. The copy is as
  // far behind a vector as the original.
  template <typename T>
  __device__ __forceinline__ const T* copy(const T* from, int32_t count) {
    constexpr int N = kVecSize<T>;
    const auto before = static_cast<int32_t>(reinterpret_cast<uintptr_t>(from) % kAccessBytes) /
                        static_cast<int32_t>(sizeof(T));
    T* const to = take<T>(before + count);
    for (int32_t at = static_cast<int32_t>(threadIdx.x) * N; at < before + count;
         at += kThreads * N) {
      if (at >= before && at + N <= before + count) {
        copy_async<T, N>(to + at, from + (at - before));
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (at + i >= before && at + i < before + count) to[at + i] = from[at + i - before];
        }
      }
    }
    return to + before;
  }

  // Copies the rows of entries to shared memory, from where row_of(entry) says. A barrier ends it.
  template <typename T, typename RowOf>
  __device__ __forceinline__ const T* gather(int32_t entries, int32_t width, RowOf&& row_of) {
    constexpr int U = sizeof(T) == 8 ? 4 : 8;
    T* const to = take<T>(entries * width);
    for (int32_t entry = static_cast<int32_t>(threadIdx.x); entry < entries;
         entry += U * kThreads) {
      const T* rows[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        rows[u] = row_of(min(entry + u * kThreads, entries - 1));
      }
#pragma unroll 1
      for (int32_t feature = 0; feature < width; ++feature) {
        T values[U];
#pragma unroll
        for (int u = 0; u < U; ++u) values[u] = rows[u][feature];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          if (entry + u * kThreads < entries) {
            to[(entry + u * kThreads) * width + feature] = values[u];
          }
        }
      }
    }
    return to;
  }

 private:
  char* next_;
};

// Where the rows of a tile begin and end. Row 0 is the one from before the tile, row r + 1 is the
// r-th that begins in it.
class TileRows {
 public:
  // A barrier makes the bounds visible.
  __device__ __forceinline__ TileRows(const Matrix& matrix, const Window& window,
                                      TileMemory& memory)
      : bounds_(memory.take<uint16_t>(window.rows + 2)), rows_(window.rows), count_(window.count) {
    if (threadIdx.x == 0) bounds_[0] = 0;
#pragma unroll 4
    for (int32_t row = static_cast<int32_t>(threadIdx.x); row <= rows_; row += kThreads) {
      const int64_t begin = start_of(matrix, window.row + row) - window.begin;
      bounds_[row + 1] = begin > count_ ? kOpen : static_cast<uint16_t>(max(begin, int64_t{0}));
    }
  }

  // What a thread does of a row: it reads entries first, first + step, ... below `end`. `index` is
  // its number among the `step` threads of the row. If it has none, `row` is negative. `step` is
  // the same in a warp.
  struct Share {
    int32_t row = -1;
    int32_t first = 0, end = 0, entries = 0;
    bool is_open = false;  // the row continues in the next tile
    uint32_t index = 0, step = 1;
  };

  // Divides the rows among the threads of the block. Each entry has `width` neighbouring threads,
  // and `team` entries of a row are read at once, or as many as a warp can if the row is long. All
  // threads of a warp call body() together.
  //
  //   width 2, team 4        | row r        | row r + 1    | row r + 2    | row r + 3    |
  //   lane                     0 1 2 ... 7    8 ...          16 ...         24 ... 31
  //   entry of the row         0 0 1 ... 3    0 ...
  template <typename Body>
  __device__ __forceinline__ void for_each(uint32_t width, uint32_t team, Body&& body) const {
    constexpr uint32_t kWarps = kThreads / kWarp;
    const uint32_t number = threadIdx.x % kWarp / width;  // among the entries of the warp
    const uint32_t whole = kWarp / width, at_once = whole / team;
    auto base = static_cast<int32_t>(threadIdx.x / kWarp * at_once);
    while (base <= rows_) {
      const auto row = base + static_cast<int32_t>(number / team);
      Share rows_share = share(row, number < at_once * team && row <= rows_, number % team, team);
      const bool is_long = at_once > 1 &&
                           rows_share.entries > static_cast<int32_t>(kLongRow * team) &&
                           rows_share.row >= 0;
      // One bit for each long row.
      uint32_t left =
          __ballot_sync(~0u, is_long && threadIdx.x % kWarp == number / team * team * width);
      if (is_long) rows_share = share(row, false, rows_share.index, team);
      for (;;) {
        body(rows_share);
        if (left == 0) break;
        const uint32_t lane = __ffs(static_cast<int>(left)) - 1;
        left &= left - 1;
        rows_share =
            share(base + static_cast<int32_t>(lane / width / team), number < whole, number, whole);
      }
      base += static_cast<int32_t>(kWarps * at_once);
    }
  }

 private:
  static constexpr uint16_t kOpen = 0xffff;

  __device__ __forceinline__ Share share(int32_t row, bool valid, uint32_t index,
                                         uint32_t step) const {
    Share result;
    result.index = index;
    result.step = step;
    if (!valid) return result;
    const int32_t first = bounds_[row], end = bounds_[row + 1];
    result.row = row;
    result.is_open = end == kOpen;
    result.end = min(end, count_);
    result.entries = result.end - first;
    result.first = first + static_cast<int32_t>(index);
    return result;
  }

  uint16_t* bounds_;
  int32_t rows_, count_;
};

}  // namespace gpuopt::rows
