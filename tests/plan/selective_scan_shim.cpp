// C entry points to the plans of selective scans, for test_selective_scan_plan.py.
#include "selective_scan_problem.h"

using namespace gpuopt;
using namespace gpuopt::selective;

struct PlanView {
  int64_t per_lane, lanes, tile, blocks, parts, sets, channels, states, segments, segment;
};

extern "C" void plan(int64_t batch, int64_t channels, int64_t length, int64_t states,
                     int64_t groups, int64_t sms, int64_t is_backward, PlanView* view) {
  Problem problem;
  problem.batch = batch;
  problem.channels = channels;
  problem.states = states;
  problem.groups = groups;
  problem.length = length;
  const Device device{static_cast<int>(sms), 227 << 10};
  const Plan plan = is_backward ? plan_backward(problem, device) : plan_forward(problem);
  *view = {plan.per_lane, plan.lanes,      plan.tile,     plan.blocks,   plan.parts,
           plan.sets,     plan.channels(), plan.states(), plan.segments, plan.segment};
}
