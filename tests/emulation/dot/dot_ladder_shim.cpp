// C entry point to the emulated ladder of dot products, for test_dot_ladder.py.
#include "../ladder_shim.h"
#include "dot/ladder/dot_ladder.h"

using namespace gpuopt;
using namespace gpuopt::dot;

extern "C" int run(int step, const void* self, const void* tensor, int64_t size, void* out,
                   int sms) {
  PoisonedBlocks workspace;
  const LadderProblem problem{self, tensor, size, out, sms};
  const cudaError_t error = ladder_dot(step, problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
