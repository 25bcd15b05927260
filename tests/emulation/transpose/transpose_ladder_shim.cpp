// C entry points to the emulated ladder of transposition, for test_transpose_ladder.py.
#include "transpose/ladder/transpose_ladder.h"

using namespace gpuopt::transpose;

extern "C" int run(int step, const float* in, float* out, int64_t rows, int64_t columns) {
  return ladder_transpose(step, LadderProblem{in, out, rows, columns}, nullptr);
}
