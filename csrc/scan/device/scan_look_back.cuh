// Look-back between the blocks of one launch: a tile gets the result of all tiles before it while
// they run (Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016).
//
// There, a tile combines whatever its predecessors have published, so the order of additions
// depends on timing. Here it is fixed. Tiles form runs of 16, runs form groups of 16:
//
//   tiles    |t|t|t| ... |t|t|t| ... |t|t|t| ... |t|t|t| ...
//   runs     |     run 0     |     run 1     | ...           a run's last tile publishes its total
//   groups   |            group 0            | ...           a group's last tile publishes the
//                                                            result of everything up to there
//
// A tile reads at most 15 tiles of its run, 15 runs of its group, and one group: each lane of a
// warp reads one record. Only groups wait for each other in a chain.
//
// A tile waits for tiles with lower indices only. Blocks start in the order of their indices, so
// those tiles run already or have ended. A tile whose patience ends anyway computes what it waits
// for from the input (Recount). This happens if two instances of one CUDA graph run at once and one
// clears the records of the other: the bits stay the same, and no block waits forever.
#pragma once

#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

// Eight bytes of a value, and a mark that depends on them. Both are written and read by one access
// of 16 bytes, so no fence orders them. A record that is cleared, even in part, has another mark.
struct alignas(16) Record {
  uint64_t payload;
  uint64_t mark;

  __device__ bool is_published() const { return mark == mark_of(payload); }
  __device__ static uint64_t mark_of(uint64_t payload) { return payload ^ 0x9e3779b97f4a7c15; }
};

__device__ __forceinline__ Record load_record(const Record* from) {
  Record record;
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .b128 both; ld.relaxed.gpu.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
      : "=l"(record.payload), "=l"(record.mark)
      : "l"(from)
      : "memory");
#else
  record = *from;
#endif
  return record;
}

__device__ __forceinline__ void store_record(Record* to, const Record& record) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.gpu.global.b128 [%0], both; }" ::"l"(
          to),
      "l"(record.payload), "l"(record.mark)
      : "memory");
#else
  *to = record;
#endif
}

// Clears records. A cleared record is not published.
template <int kPerThread>
__global__ void __launch_bounds__(kThreads)
    clear_kernel(Record* const records, const int64_t count) {
  launch_next();
  grid_dependency_wait();
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (first + i * kThreads < count) records[first + i * kThreads] = {};
  }
}

// Records of a value of type T.
template <typename T>
constexpr int kRecords = (sizeof(T) + 7) / 8;

template <typename T>
__device__ __forceinline__ void publish(Record* to, const T& value) {
  uint64_t words[kRecords<T>] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kRecords<T>; ++i) store_record(to + i, {words[i], Record::mark_of(words[i])});
}

// Waits until a value has been published, at most for `patience` loads, and returns whether it has.
template <typename T>
__device__ __forceinline__ bool wait_for(const Record* from, uint64_t patience, T& value) {
  uint64_t words[kRecords<T>];
#pragma unroll
  for (int i = 0; i < kRecords<T>; ++i) {
    Record record{};
    do {
      if (patience-- == 0) return false;
      record = load_record(from + i);
    } while (!record.is_published());
    words[i] = record.payload;
  }
  memcpy(&value, words, sizeof(T));
  return true;
}

// Gets the value of records that were loaded, unless one of them was not published.
template <typename T>
__device__ __forceinline__ bool value_of(const Record (&records)[kRecords<T>], T& value) {
  uint64_t words[kRecords<T>];
  bool published = true;
#pragma unroll
  for (int i = 0; i < kRecords<T>; ++i) {
    published = published && records[i].is_published();
    words[i] = records[i].payload;
  }
  memcpy(&value, words, sizeof(T));
  return published;
}

// Combines the values of the 16 lanes of each half of a warp, in the order of the lanes.
template <typename Op>
__device__ __forceinline__ typename Op::Carry combine_half(const Op& op, typename Op::Carry value) {
#pragma unroll
  for (int mask = 1; mask < kWarp / 2; mask *= 2) {
    const auto other = shuffle_xor(value, mask);
    value = !Op::kCommutes && threadIdx.x & mask ? op.carry(other, value) : op.carry(value, other);
  }
  return value;
}

// The result of all tiles before one, in the parts that look-back adds.
template <typename Op>
struct Before {
  typename Op::Carry groups, runs, tiles;

  __device__ typename Op::Carry all(const Op& op) const {
    return op.carry(groups, op.carry(runs, tiles));
  }
};

// The records of a row, or of neighbouring columns of the same tiles: [columns][slots].
template <typename Op>
struct Chain {
  using Carry = typename Op::Carry;

  Record* first;
  int64_t slots;
  uint32_t tiles;
  uint64_t patience;

  // The chain that begins at another column.
  __device__ Chain column(uint32_t c) const {
    return {first + c * slots * kRecords<Carry>, slots, tiles, patience};
  }
  __device__ Record* slot(int64_t index, int64_t column = 0) const {
    return first + (column * slots + index) * kRecords<Carry>;
  }
  __device__ int64_t run_slot(uint32_t run) const { return int64_t{tiles} + run; }
  __device__ int64_t group_slot(uint32_t group) const {
    return int64_t{tiles} + (tiles + kRun - 1) / kRun + group;
  }

  // Publishes the total of a tile. Others don't read that of a run's last tile.
  __device__ void publish_tile(uint32_t tile, const Carry& own) const {
    if (tile % kRun != kRun - 1) publish(slot(tile), own);
  }

  // Publishes the run and the group that a tile ends.
  __device__ void publish_ends(const Op& op, uint32_t tile, const Before<Op>& before,
                               const Carry& own) const {
    const Carry of_run = op.carry(before.tiles, own);
    if (tile % kGroup == kGroup - 1) {
      publish(slot(group_slot(tile / kGroup)),
              op.carry(before.groups, op.carry(before.runs, of_run)));
    } else if (tile % kRun == kRun - 1) {
      publish(slot(run_slot(tile / kRun)), of_run);
    }
  }

  // Finds the results of all tiles before a tile for C columns, `stride` columns apart, and calls
  // found(c, before). own(c) is the total of the tile. Publishes what the tile ends. Returns false
  // if its patience ended. All lanes of a warp call this, with equal arguments.
  template <int C, typename Own, typename Found>
  __device__ __forceinline__ bool look_back(const Op& op, uint32_t tile, uint32_t stride, Own&& own,
                                            Found&& found) const {
    const uint32_t lane = threadIdx.x % kWarp, index = lane % kRun;
    const uint32_t run = tile / kRun, group = tile / kGroup;
    const uint32_t tiles_before = tile % kRun, runs_before = run % kRun;
    const bool ends_run = tiles_before == kRun - 1, ends_group = tile % kGroup == kGroup - 1;

    // Lanes 16 to 30: the tiles of this run. Lanes 0 to 14: the runs of this group. Lane 31: the
    // group before. All loads are in flight at once.
    const bool reads_tile = lane >= kRun && index < tiles_before;
    const bool reads_group = lane == kWarp - 1 && group > 0;
    const bool reads_others = reads_group || lane < runs_before;
    const int64_t index_read = reads_tile    ? int64_t{tile - tiles_before + index}
                               : reads_group ? group_slot(group - 1)
                                             : run_slot(run - runs_before + lane);
    const Record* from = slot(index_read);
    const int64_t next = stride * slots * kRecords<Carry>;
    Carry values[C];
    bool is_early[C], is_found = true;
    {
      Record records[C][kRecords<Carry>];
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int r = 0; r < kRecords<Carry>; ++r) {
          if (reads_tile || reads_others) records[c][r] = load_record(from + c * next + r);
        }
      }
#pragma unroll
      for (int c = 0; c < C; ++c) {
        is_early[c] = value_of<Carry>(records[c], values[c]);
        if (!reads_tile && !reads_others) values[c] = op.widen(op.identity());
      }
    }
    Carry tiles_total[C];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (reads_tile && !is_early[c]) {
        is_found = is_found && wait_for(from + c * next, patience, values[c]);
      }
      const Carry of_tile = lane == kWarp - 1 ? op.widen(op.identity()) : values[c];
      tiles_total[c] = shuffle_from(combine_half(op, of_tile), kRun);
    }
    // A run does not wait for other runs. Only then may the next tiles go on.
    if (__ballot_sync(0xffffffffu, is_found) != 0xffffffffu) return false;
    if (lane == 0 && ends_run && !ends_group) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        publish(slot(run_slot(run), c * stride), op.carry(tiles_total[c], own(c)));
      }
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (reads_others && !is_early[c]) {
        is_found = is_found && wait_for(from + c * next, patience, values[c]);
      }
      if (__ballot_sync(0xffffffffu, is_found) != 0xffffffffu) return false;
      Before<Op> before;
      before.tiles = tiles_total[c];
      before.groups = shuffle_from(values[c], kWarp - 1);
      before.runs = shuffle_from(combine_half(op, values[c]), 0);
      if (lane == 0 && ends_group) column(c * stride).publish_ends(op, tile, before, own(c));
      found(c, before);
    }
    return true;
  }
};

// Combines the totals of tiles 0, 1, 2, ... in the order of look_back, with the same bits. A warp
// holds the totals of the current run in lanes 16 to 30, and of the current group's runs in lanes 0
// to 14.
template <typename Op>
struct Recount {
  using Carry = typename Op::Carry;

  uint32_t tile = 0;
  Carry value, groups;

  __device__ explicit Recount(const Op& op)
      : value(op.widen(op.identity())), groups(op.widen(op.identity())) {}

  __device__ void add(const Op& op, const Carry& total) {
    const uint32_t lane = threadIdx.x % kWarp, index = tile % kRun, run = tile / kRun % kRun;
    if (index < kRun - 1) {
      if (lane == kRun + index) value = total;
    } else {
      const Before<Op> before = result(op);
      const Carry of_run = op.carry(before.tiles, total);
      if (lane >= kRun || run == kRun - 1) value = op.widen(op.identity());
      if (run == kRun - 1) {
        groups = op.carry(groups, op.carry(before.runs, of_run));
      } else if (lane == run) {
        value = of_run;
      }
    }
    ++tile;
  }

  __device__ Before<Op> result(const Op& op) const {
    const Carry halves = combine_half(op, value);
    return {groups, shuffle_from(halves, 0), shuffle_from(halves, kRun)};
  }
};

}  // namespace gpuopt::scan
