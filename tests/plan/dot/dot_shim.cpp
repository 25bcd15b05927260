// A C entry point to the planner of dot products, for test_dot_plan.py.
#include "../parts.h"
#include "dot_problem.h"

using namespace gpuopt;
using namespace gpuopt::dot;

extern "C" const char* plan(const Given* given, int sms) {
  return launches_to_json(make_plan(make_problem(*given), Device{sms}));
}
