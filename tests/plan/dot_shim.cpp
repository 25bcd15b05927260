// C entry points to the planner of dot products, for test_dot_plan.py.
#include "common/describe.h"
#include "dot_problem.h"

using namespace gpuopt;
using namespace gpuopt::dot;

// Returns the launches of a plan as JSON, which the next call overwrites.
extern "C" const char* plan(const Given* given, int sms) {
  static std::string json;
  const Plan plan = make_plan(make_problem(*given), Device{sms});
  json = "[" + to_json(plan);
  for (const Plan* part = plan.rest.get(); part != nullptr; part = part->rest.get()) {
    json += ", " + to_json(*part);
  }
  json += "]";
  return json.c_str();
}
