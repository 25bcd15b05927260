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
// those tiles run already or have ended.
#pragma once

#include "scan/scan_kernel.cuh"

namespace gpuopt::scan {

// Eight bytes of a value, and whether they have been published. Both are written and read by one
// access of 16 bytes, so no fence orders them.
struct alignas(16) Record {
  uint64_t payload;
  uint64_t published;
};

__device__ __forceinline__ Record load_record(const Record* from) {
  Record record;
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .b128 both; ld.relaxed.gpu.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
      : "=l"(record.payload), "=l"(record.published)
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
      "l"(record.payload), "l"(record.published)
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
  for (int i = 0; i < kRecords<T>; ++i) store_record(to + i, {words[i], 1});
}

// Waits until a value has been published.
template <typename T>
__device__ __forceinline__ T wait_for(const Record* from) {
  uint64_t words[kRecords<T>];
#pragma unroll
  for (int i = 0; i < kRecords<T>; ++i) {
    Record record = load_record(from + i);
    while (record.published == 0) record = load_record(from + i);
    words[i] = record.payload;
  }
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
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

// The records of one column of a chain.
template <typename Op>
struct Chain {
  using Carry = typename Op::Carry;

  Record* first;        // of the column's first slot
  int64_t slot_stride;  // records from slot to slot
  uint32_t tiles;

  __device__ Record* slot(int64_t index) const { return first + index * slot_stride; }

  // Publishes the total of a tile and returns the result of all tiles before it. All lanes of a
  // warp call this, with equal arguments.
  __device__ __forceinline__ Carry look_back(const Op& op, uint32_t tile, const Carry& own) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t run = tile / kRun, group = tile / kGroup;
    const uint32_t tiles_before = tile % kRun, runs_before = run % kRun;
    const int64_t runs = tiles, groups = runs + (tiles + kRun - 1) / kRun;  // slots of the first
    const bool ends_run = tiles_before == kRun - 1, ends_group = tile % kGroup == kGroup - 1;
    if (lane == 0 && !ends_run) publish(slot(tile), own);

    // Lanes 16 to 30: the tiles of this run.
    Carry value = op.widen(op.identity());
    const uint32_t index = lane % kRun;
    if (lane >= kRun && index < tiles_before) {
      value = wait_for<Carry>(slot(tile - tiles_before + index));
    }
    const Carry of_tiles = shuffle_from(combine_half(op, value), kRun);
    const Carry of_run = op.carry(of_tiles, own);
    if (lane == 0 && ends_run && !ends_group) publish(slot(runs + run), of_run);

    // Lanes 0 to 14: the runs of this group.
    value = op.widen(op.identity());
    if (lane < runs_before) value = wait_for<Carry>(slot(runs + run - runs_before + lane));
    const Carry of_runs = shuffle_from(combine_half(op, value), 0);
    const Carry in_group = op.carry(of_runs, of_tiles);

    Carry of_groups = op.widen(op.identity());
    if (group > 0) of_groups = wait_for<Carry>(slot(groups + group - 1));
    if (lane == 0 && ends_group) {
      publish(slot(groups + group), op.carry(of_groups, op.carry(of_runs, of_run)));
    }
    return op.carry(of_groups, in_group);
  }
};

}  // namespace gpuopt::scan
