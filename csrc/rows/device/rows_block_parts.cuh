// The parts of rows that cross the borders of a block's windows, in shared memory.
#pragma once

#include "rows/device/rows_walk.cuh"

namespace gpuopt::rows {

template <typename State, int N>
struct BlockParts {
  // Each thread's part of the row that began before its window, if there is one. gather() adds the
  // parts that follow in the warp, up to the end of the row.
  State (&heads)[N][kThreads];
  bool (&closes)[kThreads];  // of each group: whether that row ends in what the part holds

  __device__ __forceinline__ void keep_head(const Walk& walk, const State (&states)[N], bool ends) {
#pragma unroll
    for (int j = 0; j < N; ++j) heads[j][threadIdx.x] = states[j];
    if (threadIdx.x % walk.lanes == 0) closes[threadIdx.x / walk.lanes] = ends;
  }
  // All lanes of the warp take part. In each step, parts hold twice as many groups as before.
  __device__ __forceinline__ void gather(const Walk& walk) {
    const uint32_t group = threadIdx.x / walk.lanes, groups = kWarp / walk.lanes;
    for (uint32_t apart = 1; apart < groups; apart *= 2) {
      __syncwarp();
      const bool takes = group % groups + apart < groups && !closes[group];
      const bool ends = takes && closes[group + apart];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        State other;
        if (takes) other = heads[j][threadIdx.x + apart * walk.lanes];
        __syncwarp();
        if (takes) heads[j][threadIdx.x].merge(other);
      }
      if (takes && threadIdx.x % walk.lanes == 0) closes[group] = ends;
    }
  }
  // Adds the parts of the groups from number `group` on, up to the end of the row. Returns whether
  // it ends in the block.
  __device__ __forceinline__ bool take(const Walk& walk, uint32_t group, State (&states)[N]) const {
    const uint32_t groups = kWarp / walk.lanes;  // of a warp
    while (group < kThreads / walk.lanes) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        states[j].merge(heads[j][group * walk.lanes + threadIdx.x % walk.lanes]);
      }
      if (closes[group]) return true;
      group = (group / groups + 1) * groups;
    }
    return false;
  }
};

// Ends the walk of a block. All of its threads call this with the cursor behind the last row that
// ended, and with the state of the row that is open. The group with which an open row begins takes
// the parts of the groups behind it, and calls write(states), or store(1, states) if the row does
// not end in the block. Group 0 stores the part of the row from before the block: store(0, states).
template <typename State, int N, typename Write, typename Store>
__device__ __forceinline__ void finish_block(BlockParts<State, N>& shared, const Walk& walk,
                                             const Cursor& rows, bool has_head, State (&states)[N],
                                             Write&& write, Store&& store) {
  const bool is_open = rows.has_row();
  const uint32_t group = threadIdx.x / walk.lanes;
  if (is_open && rows.row() < 0) shared.keep_head(walk, states, false);
  if (!has_head && threadIdx.x % walk.lanes == 0) shared.closes[group] = true;
  shared.gather(walk);
  __syncthreads();
  if (is_open && rows.row() >= 0) {
    if (shared.take(walk, group + 1, states)) {
      write(states);
    } else {
      store(1, states);
    }
  }
  if (group == 0 && has_head) {
#pragma unroll
    for (int j = 0; j < N; ++j) states[j] = State();
    shared.take(walk, 0, states);
    store(0, states);
  }
}

}  // namespace gpuopt::rows
