// C entry point to the emulated ladder of triangle_count, for test_triangle_count_ladder.py.
#include "triangle_count/ladder/triangle_count_ladder.h"

using namespace gpuopt::triangle_count;

extern "C" int run(int step, const int64_t* ptr, const int32_t* source, const int32_t* target,
                   int64_t vertices, int64_t edges, uint64_t* count) {
  return ladder_triangle_count(step, LadderProblem{ptr, source, target, vertices, edges, count},
                               nullptr);
}
