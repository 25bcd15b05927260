// Reductions of slices at an index that is in any order: the contract between bindings and kernels,
// and the plan. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/device.h"
#include "common/export.h"
#include "common/index.h"
#include "common/index_reader.h"
#include "common/launch_shape.h"
#include "common/strided.h"

namespace gpuopt::scatter {

enum class Reduce : uint8_t { kSum, kMean, kMax, kMin };  // the first ones of rows::Reduce

// out[b, bin] = reduce over the entries e with index[e] == bin: src[b, e]. Bins without entries
// are 0.
struct Problem {
  const void* src = nullptr;  // [batches][entries][features], features side by side
  Index index;                // [entries]
  void* out = nullptr;        // [batches][bins][features], dense
  // Of a maximum or minimum: its entry, the first of equal ones, or -1. Like out. May be null.
  int64_t* arg = nullptr;
  Reduce reduce = Reduce::kSum;
  DType dtype = DType::kFloat32;  // float16 to float64
  int64_t batches = 1;
  int64_t entries = 0;
  int64_t features = 1;
  int64_t entry_stride = 0;  // in elements
  int64_t batch_stride = 0;
  bool in_order = true;  // sums are repeatable
};

constexpr int kThreadsLog2 = 9, kThreads = 1 << kThreadsLog2;
constexpr int kMaxRows = kThreads;  // bins of a block
constexpr int kMaxEntries = 8192;
// Where a sum in any order is an alternative, which fills `out` and adds to it: 2048 entries to
// (2708,128) in f32 take 4.3 in one launch, 5.1 added and 5.9 in ATen; 4096 to (500,16) 5.4, 4.4
// and 4.2 (us, H200). Half types are added to a result in float32, so large results have no limit.
constexpr int kMaxAdded = 2048;
constexpr int64_t kLargeHalves = int64_t{1} << 22;  // values of a result
constexpr int kLoads = 4;      // entries of the index that a thread has in flight
constexpr int kMinBlocks = 2;  // of an SM, which limits the registers of a thread
// A thread reads this many slices of a bin. All threads of a block share a longer bin.
constexpr uint32_t kMostSlices = 16;
// So many entries are ranked by comparing each with all. More are sorted in a network.
constexpr uint32_t kMostRanked = 256;
constexpr size_t kStateBytes = 68;  // 8 values, their entries and a flag, at most

struct Args {
  const void* src = nullptr;
  void* out = nullptr;
  int64_t* arg = nullptr;
  Index index;
  uint32_t entries = 0;
  uint32_t rows = 0;    // bins of a block
  int lanes_log2 = 0;   // threads side by side in a slice
  int shares_log2 = 0;  // threads of a warp that share the slices of a bin
  FastDiv tiles;        // blocks side by side in a slice
  FastDiv row_blocks;   // blocks that share the bins
  bool is_mean = false, is_min = false, in_order = true;
  int64_t features = 0;
  int64_t entry_stride = 0, batch_stride = 0;
};

struct Plan {
  DType dtype;
  int values = 1;  // per access of a thread
  bool is_extremum = false;
  Args args;
  LaunchShape shape;
};

// Each block reads the whole index and reduces the entries of its bins. So the index is read as
// often as there are blocks. Two launches, which fill `out` and add to it, take about 3.5 us
// (H200); reading so many entries takes as long.
constexpr int64_t kMaxReads = int64_t{1} << 22;
// Where each block has few entries, filling `out` by another launch is faster than so many blocks
// of an SM.
constexpr int64_t kMaxWaves = 8;

// Values of the widest access to which all slices are aligned: 16 bytes, 4 bytes or an element.
inline int values_per_access(const Problem& problem) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  for (const int64_t bytes : {int64_t{kAccessBytes}, int64_t{4}}) {
    if (bytes <= size) break;
    const auto fits = [&](int64_t stride) { return stride * size % bytes == 0; };
    const auto access = static_cast<size_t>(bytes);
    if (is_aligned(problem.src, access) && is_aligned(problem.out, access) &&
        fits(problem.features) && fits(problem.entry_stride) && fits(problem.batch_stride)) {
      return static_cast<int>(bytes / size);
    }
  }
  return 1;
}

inline Plan plan(const Problem& problem, const Device& device) {
  Plan plan{problem.dtype, values_per_access(problem)};
  plan.is_extremum = problem.reduce == Reduce::kMax || problem.reduce == Reduce::kMin;
  const int64_t units = problem.features / plan.values;
  Args& args = plan.args;
  args.src = problem.src;
  args.out = problem.out;
  args.arg = problem.arg;
  args.index = problem.index;
  args.entries = static_cast<uint32_t>(problem.entries);
  args.is_mean = problem.reduce == Reduce::kMean;
  args.is_min = problem.reduce == Reduce::kMin;
  args.in_order = problem.in_order && !plan.is_extremum;
  args.features = problem.features;
  args.entry_stride = problem.entry_stride;
  args.batch_stride = problem.batch_stride;
  // Few bins have many slices each, so more blocks share the features, in sectors of 32 bytes.
  const int64_t bins = problem.index.bins, wanted = int64_t{2} * device.sms;
  int64_t lanes = std::min<int64_t>(32, pow2_ceil(units));
  while (lanes > 2 && bins * problem.batches * ceil_div(units, lanes) < device.sms) lanes /= 2;
  const int64_t tiles = ceil_div(units, lanes), columns = tiles * problem.batches;
  const int64_t rows = std::clamp<int64_t>(ceil_div(bins * columns, wanted), 1, kMaxRows);
  const int64_t row_blocks = ceil_div(bins, rows);
  const int64_t shares = std::clamp<int64_t>(kThreads / lanes / pow2_ceil(rows), 1, 32 / lanes);
  args.rows = static_cast<uint32_t>(rows);
  args.lanes_log2 = std::countr_zero(static_cast<uint64_t>(lanes));
  args.shares_log2 = std::countr_zero(static_cast<uint64_t>(shares));
  args.tiles = divide_by(tiles);
  args.row_blocks = divide_by(row_blocks);
  plan.shape.blocks = static_cast<unsigned>(row_blocks * columns);
  plan.shape.threads = kThreads;
  // The block's entries as words, in a power of two; or a state of each thread.
  plan.shape.shared_bytes = std::max<size_t>(
      static_cast<size_t>(std::max(pow2_ceil(problem.entries), int64_t{kMostRanked})) * 4,
      size_t{kThreads} * kStateBytes);
  plan.shape.use_pdl = true;
  return plan;
}

// Whether one launch is the way to reduce so few entries. The caller may have a fast way for more.
inline bool is_small(const Problem& problem, bool may_add, const Device& device) {
  if (problem.entries > kMaxEntries || problem.index.bins > kMaxReads ||
      problem.batches > kMaxReads || problem.features > kMaxReads) {
    return false;
  }
  const bool is_large = size_of(problem.dtype) == 2 &&
                        problem.index.bins >= kLargeHalves / (problem.batches * problem.features);
  if (may_add && problem.entries > kMaxAdded && !is_large) return false;
  const Plan plan = scatter::plan(problem, device);
  const int64_t blocks =
      int64_t{plan.args.row_blocks.divisor} * plan.args.tiles.divisor * problem.batches;
  return blocks * problem.entries <= kMaxReads && (!may_add || blocks <= kMaxWaves * device.sms);
}

// An entry of the index out of range fails a device-side assertion.
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, cudaStream_t stream);

}  // namespace gpuopt::scatter
