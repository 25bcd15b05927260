// Shared by the linear recurrences of all types.
#pragma once

#include "scan/paths/scan_launch.cuh"

namespace gpuopt::scan {

// The arguments of linear_recurrence(). as<T>() runs it for values that are stored as T.
struct RecurrenceCall {
  const Plan& plan;
  bool shifted;
  Workspace& workspace;
  cudaStream_t stream;

  template <typename T>
  cudaError_t as() const {
    using C = compute_t<T>;
    if (shifted) return run<T, T>(LinearRecurrence<C, true>{}, plan, workspace, stream);
    return run<T, T>(LinearRecurrence<C, false>{}, plan, workspace, stream);
  }
};

// Recurrences of fp16 and bf16, and of complex64 and complex128.
cudaError_t recur_half(const RecurrenceCall& call);
cudaError_t recur_complex(const RecurrenceCall& call);

}  // namespace gpuopt::scan
