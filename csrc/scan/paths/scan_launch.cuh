// Launches a Plan, for any operator: run() is the entry point.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "scan/paths/scan_alone.cuh"
#include "scan/paths/scan_columns.cuh"
#include "scan/paths/scan_packed.cuh"
#include "scan/paths/scan_rows.cuh"
#include "scan/scan.h"

namespace gpuopt::scan {

// Clears the records of look-back. A CUDA graph clears them in every replay. The kernel that
// follows is set up meanwhile, which is not possible beside cudaMemsetAsync.
inline cudaError_t clear_records(Record* records, int64_t count, cudaStream_t stream) {
  constexpr int kPerThread = 4;
  LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(count, kThreads * kPerThread));
  shape.use_pdl = true;
  return launch_kernel(clear_kernel<kPerThread>, shape, stream, records, count);
}

template <typename In, typename Mid, int N, typename Op>
cudaError_t launch(const Op& op, const Plan& plan, const TileArgs& args, cudaStream_t stream) {
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, plan.launch, stream, op, static_cast<const Args&>(args));
  };
  const auto start_tiles = [&](auto kernel) {
    return launch_kernel(kernel, plan.launch, stream, op, args);
  };
  switch (plan.path) {
    case Path::kPacked:
      if constexpr (N > 1) {
        if (plan.packing == Packing::kShifted) {
          return start(packed_kernel<Op, In, Mid, N, Packing::kShifted>);
        }
        if (plan.packing == Packing::kShared) {
          return start(packed_kernel<Op, In, Mid, N, Packing::kShared>);
        }
      }
      return start(packed_kernel<Op, In, Mid, N, Packing::kWhole>);
    case Path::kRows:
      if constexpr (N > 1) {
        if (plan.skewed) return start(rows_kernel<Op, In, Mid, N, true, true>);
        if (plan.shifted) return start(rows_kernel<Op, In, Mid, N, true, false>);
      }
      return start(rows_kernel<Op, In, Mid, N, false, false>);
    case Path::kSplitRows:
      if constexpr (N > 1) {
        if (plan.shifted) return start(split_rows_kernel<Op, In, Mid, N, true>);
      }
      return start(split_rows_kernel<Op, In, Mid, N, false>);
    case Path::kColumns:
      if constexpr (N == 1) {
        if (plan.shared_tiles) return start_tiles(columns_kernel<Op, In, Mid, N, true>);
      }
      return start(columns_kernel<Op, In, Mid, N, false>);
    case Path::kSplitColumns:
      if constexpr (N == 1) {
        if (plan.shared_tiles) return start_tiles(split_columns_kernel<Op, In, Mid, N, true>);
      }
      return start(split_columns_kernel<Op, In, Mid, N, false>);
    case Path::kAlone:
      if constexpr (N == 1) {
        constexpr int kWords =
            Op::kInputs * ceil_div<int>(sizeof(RawUnit<Op, In, 1>) / Op::kInputs, 4);
        // Wider values have as many bytes in flight, or nearly so.
        constexpr int kMost = std::max(kMostAloneUnits / kAloneUnits / kWords, 1);
        if (plan.args.units == kAloneUnits) return start(alone_kernel<Op, In, Mid, 1>);
        return start(alone_kernel<Op, In, Mid, kMost>);
      }
      break;
  }
  return cudaErrorInvalidValue;
}

// Scans values that are stored as In (or AnyType). Each value is converted to Mid first, and Mid is
// the type of the results.
template <typename In, typename Mid, typename Op>
cudaError_t run(const Op& op, const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  constexpr Kernels kKernels = kernels_of(!std::is_same_v<In, AnyType>, sizeof(In), sizeof(Mid),
                                          kCategory<Mid>, Op::kInputs);
  constexpr int kValues = kKernels.values;
  using S = Stage<Op, In, Mid, kValues>;
  static_assert(kKernels.units == kUnits<Op, In, Mid, kValues>);
  static_assert(kKernels.single_units == kUnits<Op, In, Mid, 1>);
  static_assert(kKernels.value_bytes * kValues * Op::kInputs == S::kBytes);
  static_assert(kKernels.records == kRecords<typename Op::Carry>);
  TileArgs args = plan.args;
  if (plan.records > 0) {
    auto* records = static_cast<Record*>(workspace.allocate(plan.records * sizeof(Record)));
    args.records = records;
    const cudaError_t error = clear_records(records, plan.records, stream);
    if (error != cudaSuccess) return error;
  }
  if constexpr (kValues > 1) {
    if (plan.values > 1) return launch<In, Mid, kValues>(op, plan, args, stream);
  }
  return launch<In, Mid, 1>(op, plan, args, stream);
}

}  // namespace gpuopt::scan
