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

#include "scan/scan_kernel.cuh"

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
    value = threadIdx.x & mask ? op.carry(other, value) : op.carry(value, other);
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

// The records of one column of a chain.
template <typename Op>
struct Chain {
  using Carry = typename Op::Carry;

  Record* first;        // of the column's first slot
  int64_t slot_stride;  // records from slot to slot
  uint32_t tiles;
  uint64_t patience;

  // The chain of another column of the same tiles.
  __device__ Chain column(uint32_t c) const {
    return {first + c * kRecords<Carry>, slot_stride, tiles, patience};
  }
  __device__ Record* slot(int64_t index) const { return first + index * slot_stride; }
  __device__ int64_t run_slot(uint32_t run) const { return int64_t{tiles} + run; }
  __device__ int64_t group_slot(uint32_t group) const {
    return int64_t{tiles} + (tiles + kRun - 1) / kRun + group;
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

  // Combines `count` published values from a slot on, in order. Their loads are in flight at once.
  __device__ __forceinline__ bool combine_slots(const Op& op, int64_t from, uint32_t count,
                                                Carry& total) const {
    constexpr uint32_t kBatch = kRecords<Carry> == 1 ? 4 : kRecords<Carry> == 2 ? 2 : 1;
    total = op.widen(op.identity());
    for (uint32_t i = 0; i < count; i += kBatch) {
      Record early[kBatch][kRecords<Carry>];
#pragma unroll
      for (uint32_t b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int r = 0; r < kRecords<Carry>; ++r) {
          early[b][r] = i + b < count ? load_record(slot(from + i + b) + r) : Record{};
        }
      }
#pragma unroll
      for (uint32_t b = 0; b < kBatch; ++b) {
        if (i + b >= count) break;
        Carry value;
        if (!value_of(early[b], value) && !wait_for(slot(from + i + b), patience, value)) {
          return false;
        }
        total = op.carry(total, value);
      }
    }
    return true;
  }

  // As look_back, by a single thread.
  __device__ __forceinline__ bool look_back_alone(const Op& op, uint32_t tile, const Carry& own,
                                                  Before<Op>& before) const {
    const uint32_t run = tile / kRun, group = tile / kGroup;
    const uint32_t tiles_before = tile % kRun, runs_before = run % kRun;
    const bool ends_run = tiles_before == kRun - 1, ends_group = tile % kGroup == kGroup - 1;
    if (!ends_run) publish(slot(tile), own);
    if (!combine_slots(op, tile - tiles_before, tiles_before, before.tiles)) return false;
    // A run does not wait for other runs.
    if (ends_run && !ends_group) publish(slot(run_slot(run)), op.carry(before.tiles, own));
    if (!combine_slots(op, run_slot(run - runs_before), runs_before, before.runs)) return false;
    before.groups = op.widen(op.identity());
    if (group > 0 && !wait_for(slot(group_slot(group - 1)), patience, before.groups)) return false;
    if (ends_group) publish_ends(op, tile, before, own);
    return true;
  }

  // Publishes the total of a tile and finds the result of all tiles before it. Returns false if its
  // patience ended. All lanes of a warp call this, with equal arguments.
  __device__ __forceinline__ bool look_back(const Op& op, uint32_t tile, const Carry& own,
                                            Before<Op>& before) const {
    const uint32_t lane = threadIdx.x % kWarp, index = lane % kRun;
    const uint32_t run = tile / kRun, group = tile / kGroup;
    const uint32_t tiles_before = tile % kRun, runs_before = run % kRun;
    const bool ends_run = tiles_before == kRun - 1, ends_group = tile % kGroup == kGroup - 1;
    if (lane == 0 && !ends_run) publish(slot(tile), own);

    // Lanes 16 to 30: the tiles of this run.
    bool found = true;
    Carry value = op.widen(op.identity());
    if (lane >= kRun && index < tiles_before) {
      found = wait_for(slot(tile - tiles_before + index), patience, value);
    }
    before.tiles = shuffle_from(combine_half(op, value), kRun);
    // A run does not wait for other runs. Only then may the next tiles go on.
    if (__ballot_sync(0xffffffffu, found) != 0xffffffffu) return false;
    if (lane == 0 && ends_run && !ends_group) {
      publish(slot(run_slot(run)), op.carry(before.tiles, own));
    }

    // Lanes 0 to 14: the runs of this group. Lane 31: the group before.
    value = op.widen(op.identity());
    if (lane < runs_before)
      found = wait_for(slot(run_slot(run - runs_before + lane)), patience, value);
    before.runs = shuffle_from(combine_half(op, value), 0);
    before.groups = op.widen(op.identity());
    if (lane == kWarp - 1 && group > 0) {
      found = wait_for(slot(group_slot(group - 1)), patience, before.groups);
    }
    before.groups = shuffle_from(before.groups, kWarp - 1);
    if (__ballot_sync(0xffffffffu, found) != 0xffffffffu) return false;
    if (lane == 0 && ends_group) publish_ends(op, tile, before, own);
    return true;
  }
};

// Combines the totals of tiles 0, 1, 2, ... in the order of look_back_alone, with the same bits.
template <typename Op>
struct RecountAlone {
  using Carry = typename Op::Carry;

  uint32_t tile = 0;
  Before<Op> before;

  __device__ explicit RecountAlone(const Op& op) {
    before.groups = before.runs = before.tiles = op.widen(op.identity());
  }

  __device__ void add(const Op& op, const Carry& total) {
    const Carry of_run = op.carry(before.tiles, total);
    before.tiles = of_run;
    if (tile % kRun == kRun - 1) {
      before.tiles = op.widen(op.identity());
      before.runs = op.carry(before.runs, of_run);
      if (tile % kGroup == kGroup - 1) {
        before.groups = op.carry(before.groups, before.runs);
        before.runs = op.widen(op.identity());
      }
    }
    ++tile;
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
