// C entry points to the plans of selective scans, for test_selective_scan_plan.py.
#include "common/describe.h"
#include "selective_scan/selective_scan_plan.h"

using namespace gpuopt;
using namespace gpuopt::selective;

static Problem make(const int64_t* given) {
  Problem problem;
  for (int64_t* size :
       {&problem.batch, &problem.channels, &problem.length, &problem.states, &problem.groups}) {
    *size = *given++;
  }
  problem.dtype = *given++ ? DType::kFloat64 : DType::kFloat32;
  problem.B.constant = *given++ != 0;
  return problem;
}

// Returns the plan as JSON, which the next call overwrites.
extern "C" const char* plan(const int64_t* given, int64_t is_backward) {
  static std::string json;
  const Problem problem = make(given);
  json = is_backward ? to_json(plan_backward(problem, {})) : to_json(plan_forward(problem));
  return json.c_str();
}

extern "C" bool supported(const int64_t* given) { return is_supported(make(given)); }

// The states per lane and the lanes of the kernels that run a tiling.
template <typename C, bool kConstant, bool kBackward>
static void find_layout(const Tiling& tiling, int64_t* per_lane, int64_t* lanes) {
  with_layout<C, kConstant, kBackward>(tiling, [&](auto layout) {
    *per_lane = layout.kStates;
    *lanes = layout.kLanes;
  });
}
extern "C" void layout(const int64_t* given, int64_t* per_lane, int64_t* lanes) {
  const Problem problem = make(given);
  const Tiling tiling = plan_forward(problem).output.args.tiling;
  const bool wide = problem.dtype == DType::kFloat64, constant = has_constant(problem);
  const auto find =
      wide       ? constant ? find_layout<double, true, false> : find_layout<double, false, false>
            : constant ? find_layout<float, true, false>
                 : find_layout<float, false, false>;
  find(tiling, per_lane, lanes);
}
