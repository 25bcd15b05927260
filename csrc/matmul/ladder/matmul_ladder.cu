// The choice of a step of matmul_ladder.h.
#include <iterator>

#include "common/dtype.h"
#include "matmul/ladder/matmul_ladder_steps.h"
#include "matmul/matmul.h"

namespace gpuopt::matmul {

// The step runs the production kernel, on whole sums.
cudaError_t three_tf32_wgmma(const LadderProblem& p, Workspace& workspace, cudaStream_t stream) {
  Plan plan;
  plan.problem.a = {static_cast<const float*>(p.a), p.a_pitch, 1, 0};
  plan.problem.b = {static_cast<const float*>(p.b), p.b_pitch, 1, 0};
  plan.problem.out = static_cast<float*>(p.out);
  plan.problem.m = p.m;
  plan.problem.n = p.n;
  plan.problem.k = plan.part_k = p.k;
  return launch(plan, workspace, stream);
}

cudaError_t ladder_matmul(int step, const LadderProblem& problem, Workspace& workspace,
                          cudaStream_t stream) {
  constexpr Launcher* kSteps[] = {
      naive,         coalesced,  shared_tile,       output_column, output_block, vectors,
      double_buffer, warp_tiles, bulk_copies,       split_k,       three_tf32,   ldmatrix,
      swizzled,      wgmma,      producer_consumer, persistent,    clusters,     three_tf32_wgmma};
  static_assert(std::size(kSteps) + 1 == std::size(kLadder));
  if (step < 0 || step >= static_cast<int>(std::size(kSteps))) return cudaErrorInvalidValue;
  if (problem.m == 0 || problem.n == 0) return cudaSuccess;
  if (problem.k == 0) {
    const size_t bytes = size_t(problem.m) * problem.n * size_of(problem.dtype);
    return cudaMemsetAsync(problem.out, 0, bytes, stream);
  }
  return kSteps[step](problem, workspace, stream);
}

}  // namespace gpuopt::matmul
