// C entry points to the emulated ladder of reductions, for test_reduce_ladder.py.
#include "../ladder_shim.h"
#include "reduce/ladder/reduce_ladder.h"

using namespace gpuopt;
using namespace gpuopt::reduce;

extern "C" int run(int is_max, int step, const float* in, int64_t size, float* out, int sms) {
  PoisonedBlocks workspace;
  const LadderProblem problem{in, size, out, sms};
  const cudaError_t error = is_max ? ladder_max(step, problem, workspace, nullptr)
                                   : ladder_sum(step, problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
