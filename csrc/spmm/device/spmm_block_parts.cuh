// The parts of rows that cross the borders of a block's windows, in shared memory.
#pragma once

#include "spmm/device/spmm_walk.cuh"

namespace gpuopt::spmm {

template <typename State, int N>
struct BlockParts {
  // Each thread's part of the row that began before its window, if there is one.
  State (&heads)[N][kThreads];
  bool (&closes)[kThreads];  // of each group: whether that row ends in its window

  __device__ __forceinline__ void keep_head(const Walk& walk, const State (&states)[N], bool ends) {
#pragma unroll
    for (int j = 0; j < N; ++j) heads[j][threadIdx.x] = states[j];
    if (threadIdx.x % walk.lanes == 0) closes[threadIdx.x / walk.lanes] = ends;
  }
  // Adds the parts of the groups from number `group` on, up to the end of the row. Returns whether
  // it ends in the block.
  __device__ __forceinline__ bool take(const Walk& walk, uint32_t group, State (&states)[N]) const {
    for (uint32_t g = group; g < kThreads / walk.lanes; ++g) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        states[j].merge(heads[j][g * walk.lanes + threadIdx.x % walk.lanes]);
      }
      if (closes[g]) return true;
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
  if (is_open && rows.row() < 0) shared.keep_head(walk, states, false);
  __syncthreads();
  const uint32_t group = threadIdx.x / walk.lanes;
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

}  // namespace gpuopt::spmm
