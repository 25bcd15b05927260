// C entry point to the emulated ladder of products, for test_elementwise_ladder.py.
#include "../ladder_shim.h"
#include "elementwise/ladder/elementwise_ladder.h"

using namespace gpuopt;
using namespace gpuopt::elementwise;

extern "C" int run(int step, const void* self, const void* other, void* out, int64_t size,
                   int sms) {
  return ladder_mul(step, LadderProblem{self, other, out, size, sms}, nullptr);
}
