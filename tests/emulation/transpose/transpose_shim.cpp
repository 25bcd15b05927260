// C entry points to the emulated transposition and to its plan, for test_transpose_kernels.py.
#include "../../plan/transpose/transpose_problem.h"
#include "common/describe.h"
#include "transpose/transpose.h"

using namespace gpuopt;
using namespace gpuopt::transpose;

// Limits that small problems reach.
constexpr Tuning kTestTuning{.unaligned_tiles = 0};

// Returns the plan as JSON, which the next call overwrites, with the limits of tests or with the
// real ones.
extern "C" const char* plan(const Given* given, bool real_limits) {
  static std::string json;
  json = to_json(make_plan(make_problem(*given), real_limits ? Tuning() : kTestTuning));
  return json.c_str();
}

extern "C" int run(const Given* given) {
  return gpuopt::transpose::transpose(make_plan(make_problem(*given), kTestTuning), nullptr);
}
