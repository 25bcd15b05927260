// C entry point to the emulated ladder of spmm, for test_spmm_ladder.py.
#include "../ladder_shim.h"
#include "spmm/ladder/spmm_ladder.h"

using namespace gpuopt;
using namespace gpuopt::spmm;

// `limits` are the members of LadderTuning, and the size of the L2 cache.
extern "C" int run(int step, int dtype, const int32_t* ptr, const int32_t* index, const void* value,
                   const void* dense, void* out, int64_t rows, int64_t columns, int64_t entries,
                   int64_t features, const int64_t* limits) {
  PoisonedBlocks workspace;
  LadderProblem problem;
  problem.ptr = ptr;
  problem.index = index;
  problem.value = value;
  problem.dense = dense;
  problem.out = out;
  problem.dtype = static_cast<DType>(dtype);
  problem.rows = rows;
  problem.columns = columns;
  problem.entries = entries;
  problem.features = features;
  problem.tuning = {limits[0], limits[1], limits[2], limits[3]};
  problem.l2_bytes = limits[4];
  const cudaError_t error = ladder_spmm(step, problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
