// The transpose of a sparse matrix, and whether one that is kept is still right. Plain host C++.
//
// A transpose that is kept from call to call comes with a fingerprint of the matrix that it was
// made of. Each use computes the fingerprint again, on the GPU, and sorts if it is another one. So
// a write to the matrix is noticed however it was made, and the host neither waits nor knows. This
// sort is seldom needed. It is one launch of one block, which is slow, and costs next to nothing
// where there is nothing to do. `changes` in memory of the host tells whoever keeps the transpose.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "common/export.h"
#include "common/tuning.h"
#include "common/workspace.h"
#include "index_sort/index_sort.h"
#include "rows/rows_problem.h"

namespace gpuopt::spmm {

using namespace rows;

constexpr int kTransposeThreads = 256;
constexpr int kFingerprintItems = 8;  // numbers of a thread whose loads are in flight together

// A number at a position of what a fingerprint is of. Fingerprints add these up modulo 2^64, in any
// order. The function is the finalizer of Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators" (2014).
GPUOPT_HOST_DEVICE constexpr uint64_t mixed(int64_t number, int64_t position) {
  uint64_t x =
      static_cast<uint64_t>(number) + (static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// In the memory of the GPU, zero at first.
struct Fingerprint {
  unsigned long long value = 0, sum = 0;
  uint32_t tickets = 0;   // blocks that have added to the sum
  uint32_t is_known = 0;  // whether `value` is of an earlier call
  uint32_t is_same = 0;   // whether it is that of this call, too
  uint32_t unused = 0;
};

// Two vectors of integers, one behind the other.
struct Numbers {
  const void* first = nullptr;
  const void* second = nullptr;
  int64_t first_count = 0, second_count = 0;
  bool is_long = false;  // int64, else int32
};

struct FingerprintPlan {
  Numbers numbers;
  Fingerprint* state = nullptr;
  bool must_match = false;  // another fingerprint fails a device-side assertion
  LaunchShape shape;
};

inline FingerprintPlan plan_fingerprint(const Numbers& numbers, Fingerprint* state, bool must_match,
                                        const Device& device) {
  const int64_t count = numbers.first_count + numbers.second_count;
  FingerprintPlan plan{numbers, state, must_match, {}};
  plan.shape.threads = kTransposeThreads;
  plan.shape.blocks = static_cast<unsigned>(std::clamp<int64_t>(
      ceil_div<int64_t>(count, kTransposeThreads * kFingerprintItems), 1, int64_t{8} * device.sms));
  plan.shape.use_pdl = true;
  return plan;
}

struct TransposeProblem {
  Matrix matrix;          // without `entry`
  void* ptr = nullptr;    // [columns + 1], of the type of matrix.ptr, as the next two
  void* index = nullptr;  // [entries]: the row of each entry
  void* entry = nullptr;  // [entries]: its number in the matrix
};

// ---------------------------------------------------------------- a new transpose

struct TransposeArgs {
  TransposeProblem problem;
  int position_bits = 0;
  uint32_t entry_blocks = 0;  // blocks that write index and entry; the others write ptr
};

struct TransposePlan {
  TransposeArgs args;
  index_sort::SortPlan sort;
  LaunchShape rows, finish;
};

// Whether an entry's column and number fit into the 64 bits that are sorted.
inline bool is_supported(const TransposeProblem& problem,
                         const index_sort::SortTuning& tuning = limits<index_sort::SortTuning>()) {
  const Matrix& matrix = problem.matrix;
  return matrix.entries > 0 && matrix.rows < int64_t{1} << 32 &&
         matrix.entries <= int64_t{1} << index_sort::position_bits_for(matrix.columns, tuning);
}

inline TransposePlan plan(const TransposeProblem& problem, const Device& device,
                          const index_sort::SortTuning& tuning = limits<index_sort::SortTuning>()) {
  const Matrix& matrix = problem.matrix;
  TransposePlan plan;
  plan.args.problem = problem;
  const Index index{matrix.index, matrix.is_long, 1, matrix.columns};
  plan.sort = index_sort::plan_sort(index, matrix.entries, 0, device, tuning);
  plan.args.position_bits = plan.sort.args.source.position_bits;
  plan.args.entry_blocks =
      static_cast<uint32_t>(ceil_div<int64_t>(matrix.entries, kTransposeThreads));
  plan.rows.threads = plan.finish.threads = kTransposeThreads;
  plan.rows.use_pdl = plan.finish.use_pdl = true;
  plan.rows.blocks = plan.args.entry_blocks;
  plan.finish.blocks = static_cast<unsigned>(
      plan.args.entry_blocks + ceil_div<int64_t>(matrix.columns + 1, kTransposeThreads));
  return plan;
}

// ---------------------------------------------------------------- a kept one

constexpr int kAgainThreads = 1024;

struct KeptPlan {
  TransposeProblem problem;
  FingerprintPlan compare;
  int64_t* changes = nullptr;  // the host's: how often the matrix has changed. May be null
  LaunchShape again;
};

inline KeptPlan plan_kept(const TransposeProblem& problem, Fingerprint* state, int64_t* changes,
                          const Device& device) {
  const Matrix& matrix = problem.matrix;
  KeptPlan plan;
  plan.problem = problem;
  plan.compare =
      plan_fingerprint({matrix.ptr, matrix.index, matrix.rows + 1, matrix.entries, matrix.is_long},
                       state, /*must_match=*/false, device);
  plan.changes = changes;
  plan.again.threads = kAgainThreads;
  plan.again.blocks = 1;
  plan.again.use_pdl = true;
  return plan;
}

// ---------------------------------------------------------------- launches

GPUOPT_EXPORT cudaError_t launch(const FingerprintPlan& plan, cudaStream_t stream);

// A column out of range fails a device-side assertion.
GPUOPT_EXPORT cudaError_t launch(const TransposePlan& plan, Workspace& workspace,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const KeptPlan& plan, cudaStream_t stream);

}  // namespace gpuopt::spmm
