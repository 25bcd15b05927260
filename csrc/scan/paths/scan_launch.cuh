// Launches what a Plan describes, for any operator: run() is the entry point.
#pragma once

#include <cuda_runtime_api.h>

#include "scan/paths/scan_columns.cuh"
#include "scan/paths/scan_packed.cuh"
#include "scan/paths/scan_rows.cuh"
#include "scan/scan.h"

namespace gpuopt::scan {

inline Args make_args(const Problem& problem, const Plan& plan) {
  Args args;
  args.in = problem.in;
  args.out = problem.out;
  args.second = problem.second;
  args.initial = problem.initial;
  args.outer.count = plan.num_outer;
  for (int d = 0; d < plan.num_outer; ++d) {
    args.outer.sizes[d] = divide_by(plan.outer[d].size);
    args.outer.in_strides[d] = plan.outer[d].in_stride;
    args.outer.out_strides[d] = plan.outer[d].out_stride;
    args.outer.second_strides[d] = plan.outer[d].second_stride;
    args.outer.initial_strides[d] = plan.outer[d].initial_stride;
  }
  args.length = problem.scanned.size;
  args.in_stride = problem.scanned.in_stride;
  args.out_stride = problem.scanned.out_stride;
  args.second_stride = problem.scanned.second_stride;
  args.total = plan.rows * args.length;
  args.rows = static_cast<uint32_t>(plan.rows);
  if (plan.path == Path::kPacked) args.row_length = divide_by(args.length);
  args.chunk_rows = static_cast<uint32_t>(plan.chunk_rows);
  args.units = static_cast<uint32_t>(plan.units);
  args.tiles = divide_by(plan.tiles);
  args.column_tiles = divide_by(plan.column_tiles);
  args.slots = plan.slots();
  // In place, the input of earlier tiles is overwritten, so a block can only wait.
  args.patience = problem.in == problem.out ? UINT64_MAX : kPatience;
  args.columns = plan.column.size;
  args.in_column_stride = plan.column.in_stride;
  args.out_column_stride = plan.column.out_stride;
  args.second_column_stride = plan.column.second_stride;
  args.initial_column_stride = plan.column.initial_stride;
  args.x = static_cast<uint32_t>(plan.x);
  args.in_dtype = problem.in_dtype;
  args.out_dtype = problem.dtype;
  args.dense = plan.dense;
  args.second_is_one = plan.second_is_one;
  args.reverse = problem.reverse;
  args.exclusive = problem.exclusive;
  return args;
}

// Allocates the records of look-back and clears them. A CUDA graph clears them in every replay. The
// kernel that follows is set up meanwhile, which is not possible beside cudaMemsetAsync.
template <typename Op>
cudaError_t clear_records(const Plan& plan, Args& args, Workspace& workspace, cudaStream_t stream) {
  const bool columns = plan.path == Path::kSplitColumns;
  const int64_t width = columns ? int64_t{plan.x} * plan.values : 1;
  const int64_t count =
      plan.chains() * plan.slots() * width * int64_t{kRecords<typename Op::Carry>};
  auto* records = static_cast<Record*>(workspace.allocate(count * sizeof(Record)));
  args.records = records;
  constexpr int kPerThread = 4;
  LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(count, kThreads * kPerThread));
  shape.use_pdl = true;
  return launch_kernel(clear_kernel<kPerThread>, shape, stream, records, count);
}

// Requests dynamic shared memory for a kernel. Without a request there are 48 KB in all, and
// kernels have up to 20 KB of static shared memory.
template <typename Kernel>
cudaError_t allow_shared_bytes(Kernel* kernel, size_t bytes) {
  if (bytes <= 16 << 10) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

template <typename In, typename Mid, int N, typename Op>
cudaError_t launch(const Op& op, const Problem& problem, const Plan& plan, Workspace& workspace,
                   cudaStream_t stream) {
  Args args = make_args(problem, plan);
  const bool clusters = fits_clusters(plan) && can_cluster();
  if (plan.is_split() && !clusters) {
    const cudaError_t error = clear_records<Op>(plan, args, workspace, stream);
    if (error != cudaSuccess) return error;
  }
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(plan.blocks);
  shape.threads = static_cast<unsigned>(plan.threads());
  shape.use_pdl = true;
  if (clusters) shape.cluster = static_cast<unsigned>(plan.tiles);
  const auto start = [&](auto kernel) { return launch_kernel(kernel, shape, stream, op, args); };
  // Starts a kernel whose tiles are in shared memory.
  const auto start_staged = [&](auto kernel, int buffers) {
    shape.shared_bytes =
        static_cast<size_t>(buffers) * plan.units * plan.threads() * Stage<Op, In, Mid, N>::kBytes;
    const cudaError_t error = allow_shared_bytes(kernel, shape.shared_bytes);
    return error != cudaSuccess ? error : start(kernel);
  };
  switch (plan.path) {
    case Path::kPacked:
      if constexpr (N > 1) {
        if (plan.chunk_rows * args.length % N != 0) {
          return start(packed_kernel<Op, In, Mid, N, Packing::kShifted>);
        }
        if (args.length % N != 0) return start(packed_kernel<Op, In, Mid, N, Packing::kShared>);
      }
      return start(packed_kernel<Op, In, Mid, N, Packing::kWhole>);
    case Path::kRows:
      if constexpr (N > 1) {
        if (plan.shifted) return start(rows_kernel<Op, In, Mid, N, true>);
      }
      return start(rows_kernel<Op, In, Mid, N, false>);
    case Path::kSplitRows:
      if constexpr (N > 1) {
        if (plan.shifted) return start_staged(split_rows_kernel<Op, In, Mid, N, true>, 1);
      }
      return start_staged(split_rows_kernel<Op, In, Mid, N, false>, 1);
    case Path::kColumns:
      return start_staged(columns_kernel<Op, In, Mid, N>, plan.tiles > 1 ? 2 : 1);
    case Path::kSplitColumns:
      return start_staged(split_columns_kernel<Op, In, Mid, N>, 1);
  }
  return cudaErrorInvalidValue;
}

// Scans values that are stored as In (or AnyType). Each value is converted to Mid first, and Mid is
// the type of the results.
template <typename In, typename Mid, typename Op>
cudaError_t run(const Op& op, const Problem& problem, Workspace& workspace, cudaStream_t stream) {
  // Values of a vector: 16 bytes of the wider of both types.
  constexpr int kValues = [] {
    if constexpr (std::is_same_v<In, AnyType>) {
      return 1;
    } else {
      return kAccessBytes / static_cast<int>(std::max(sizeof(In), sizeof(Mid)));
    }
  }();
  const Kernels kernels{kValues, kUnits<Op, In, Mid, kValues>, kUnits<Op, In, Mid, 1>, Op::kInputs,
                        kColumnRows / Op::kInputs};
  const Plan plan = make_plan(problem, kernels);
  if (is_too_large(plan)) {
    Problem first, second;
    halve(problem, first, second);
    const cudaError_t error = run<In, Mid>(op, first, workspace, stream);
    return error != cudaSuccess ? error : run<In, Mid>(op, second, workspace, stream);
  }
  if constexpr (kValues > 1) {
    if (plan.values > 1) return launch<In, Mid, kValues>(op, problem, plan, workspace, stream);
  }
  return launch<In, Mid, 1>(op, problem, plan, workspace, stream);
}

}  // namespace gpuopt::scan
