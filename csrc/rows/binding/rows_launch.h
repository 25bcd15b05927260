// For the CUDA bindings: launches of problems.
#pragma once

#include <optional>

#include "binding/cuda_launch.h"
#include "common/parts.h"
#include "rows/rows.h"

namespace gpuopt::rows {

// An exception names the operator.
inline void check_limits(const char* op, const Matrix& matrix, int64_t features) {
  const char* const expected = refusal(matrix, features);
  TORCH_CHECK(expected == nullptr, op,
              ": the matrix must have sizes that kernels support: expected ", expected, ", got ",
              matrix.rows, " rows, ", matrix.columns, " columns, ", matrix.entries, " entries and ",
              features, " features");
}

// Problems with too many batches for one launch are launched in parts.
inline void run(const char* op, const ReduceProblem& problem) {
  check_limits(op, problem.matrix, problem.features);
  record(ReduceProblem::kPlanner, problem);
  for_each_part(
      problem,
      [](const ReduceProblem& part) {
        return fits(part) ? std::optional(plan(part)) : std::nullopt;
      },
      [&](const ReducePlan& plan) {
        TensorWorkspace workspace;
        check_launch(op, launch(plan, workspace, c10::cuda::getCurrentCUDAStream()));
      });
}

template <typename Problem>  // a problem of one launch
void run(const char* op, const Problem& problem) {
  check_limits(op, problem.matrix, problem.features);
  record(Problem::kPlanner, problem);
  TensorWorkspace workspace;
  check_launch(op, launch(plan(problem), workspace, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace gpuopt::rows
