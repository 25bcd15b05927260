// The choice of a step of matmul_ladder.h.
#include <iterator>

#include "common/dtype.h"
#include "matmul/ladder/matmul_ladder_steps.h"

namespace gpuopt::matmul {

cudaError_t ladder_matmul(int step, const LadderProblem& problem, Workspace& workspace,
                          cudaStream_t stream) {
  constexpr Launcher* kSteps[] = {naive,         coalesced,    shared_tile,     padded_tile,
                                  output_column, output_block, vectors,         double_buffer,
                                  warp_tiles,    bulk_copies,  split_k,         three_tf32,
                                  ldmatrix,      swizzled,     wgmma,           producer_consumer,
                                  persistent,    clusters,     three_tf32_wgmma};
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
