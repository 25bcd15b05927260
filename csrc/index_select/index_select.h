// Gathers of rows at an index: the contract between bindings and kernels. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "common/export.h"
#include "common/index.h"
#include "common/index_reader.h"
#include "common/launch_shape.h"

namespace gpuopt::index_select {

// out[entry] = self[index[entry]]. Rows are dense, and the rows of `out` lie behind each other. If
// there are several tables, each has the same number of entries.
// Values are only moved, so a row is a number of bytes.
struct Gather {
  const void* self = nullptr;   // [bins][row]
  const void* index = nullptr;  // [entries]
  void* out = nullptr;          // [entries][row]
  bool long_index = true;       // int64, else int32
  int64_t bins = 0;
  int64_t entries = 0;
  int64_t index_stride = 1;  // in elements
  int64_t row_bytes = 0;
  int64_t bin_bytes = 0;  // from one row of self to the next
  int64_t tables = 1;
  int64_t table_bytes = 0;  // from one table to the next
};

// The widest access, a power of two of up to 16 bytes, to which all rows are aligned.
inline int64_t access_bytes(const Gather& gather) {
  const uint64_t all = reinterpret_cast<uintptr_t>(gather.self) |
                       reinterpret_cast<uintptr_t>(gather.out) |
                       static_cast<uint64_t>(gather.row_bytes | gather.bin_bytes |
                                             gather.table_bytes | kAccessBytes);
  return int64_t{1} << std::countr_zero(all);
}

constexpr int kGatherThreads = 256;
constexpr int kGatherUnroll = 4;  // accesses of a thread
// A thread has one access if that makes at most so many threads, by default: half of an H200.
constexpr uint64_t kFewAccesses = 132 * 1024;
constexpr int kAnywhereUnroll = 2;  // vectors of a thread of gather_anywhere

struct GatherArgs {
  const void* self = nullptr;
  void* out = nullptr;
  Index index;
  int64_t bin_accesses = 0;    // from one row of self to the next
  int64_t table_accesses = 0;  // from one table to the next, or 0 for a single one
  FastDiv table_entries;       // fewer than 2^31 entries if there are several tables
  FastDiv row_accesses;
  uint64_t total_accesses = 0;
  uint64_t entries = 0;
};

// An access is a load of a thread and its store, or a byte of gather_anywhere.
struct Plan {
  int64_t access_bytes = 1;
  int thread_accesses = 1;
  bool anywhere = false;  // loads vectors of rows that are not aligned
  GatherArgs args;
  LaunchShape shape;
};

// Rows have at least one byte and less than 2^30. Up to few_accesses accesses have a thread each.
inline Plan plan(const Gather& gather, uint64_t few_accesses = kFewAccesses) {
  Plan plan;
  int64_t bytes = access_bytes(gather);
  // One vector takes about 85 instructions, and one access 18. If each access has a thread, vectors
  // are slower: 2340 rows of 31 bf16 values take 2.9 us in vectors, and 2.4 us value by value.
  plan.anywhere = bytes <= 2 && gather.row_bytes >= kAccessBytes &&
                  static_cast<uint64_t>(gather.row_bytes / bytes * gather.entries) > few_accesses &&
                  reinterpret_cast<uintptr_t>(gather.out) % kAccessBytes == 0;
  if (plan.anywhere) bytes = 1;
  plan.access_bytes = bytes;
  plan.args.self = gather.self;
  plan.args.out = gather.out;
  plan.args.index = {gather.index, gather.long_index, gather.index_stride, gather.bins};
  plan.args.bin_accesses = gather.bin_bytes / bytes;
  if (gather.tables > 1) {
    plan.args.table_accesses = gather.table_bytes / bytes;
    plan.args.table_entries = divide_by(gather.entries / gather.tables);
  }
  plan.args.row_accesses = divide_by(gather.row_bytes / bytes);
  plan.args.total_accesses = static_cast<uint64_t>(gather.row_bytes / bytes * gather.entries);
  plan.args.entries = static_cast<uint64_t>(gather.entries);
  plan.thread_accesses = plan.anywhere                              ? kAnywhereUnroll * kAccessBytes
                         : plan.args.total_accesses <= few_accesses ? 1
                                                                    : kGatherUnroll;
  plan.shape.threads = kGatherThreads;
  plan.shape.blocks = static_cast<unsigned>(ceil_div<uint64_t>(
      plan.args.total_accesses, uint64_t(kGatherThreads) * plan.thread_accesses));
  plan.shape.use_pdl = true;
  return plan;
}

GPUOPT_EXPORT cudaError_t launch(const Plan& plan, cudaStream_t stream);

}  // namespace gpuopt::index_select
