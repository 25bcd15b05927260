// C entry points to the planner of dot products, for test_dot_plan.py.
#include "dot_problem.h"

using namespace gpuopt;
using namespace gpuopt::dot;

struct PlanView {
  int64_t path, shifted, read_once, rows_first, conjugate_self, conjugate_out, x, y, threads,
      unroll, rows_per_lane, shared_bytes, tiles, splits, blocks;
};

extern "C" {

void plan(const Given* given, int sms, int atomic, PlanView* view) {
  const Plan plan =
      make_plan(make_problem(*given), Device{sms}, atomic ? atomic_tuning() : Tuning{});
  *view = {static_cast<int64_t>(plan.path),
           plan.shifted,
           plan.read_once,
           plan.rows_first,
           plan.conjugate_self,
           plan.conjugate_out,
           plan.x,
           plan.y,
           plan.threads(),
           plan.unroll,
           plan.rows_per_lane,
           static_cast<int64_t>(plan.shared_bytes),
           plan.tiles,
           plan.splits,
           plan.blocks()};
}

// Splits a problem into two halves and writes their numbers to `halves`.
void cut_once(const Given* given, Given* halves) {
  Problem parts[2];
  halve(make_problem(*given), parts[0], parts[1]);
  for (int p = 0; p < 2; ++p) {
    halves[p] = *given;
    halves[p].self = reinterpret_cast<int64_t>(parts[p].self.data);
    halves[p].tensor = reinterpret_cast<int64_t>(parts[p].tensor.data);
    halves[p].out = reinterpret_cast<int64_t>(parts[p].out);
    halves[p].rows = parts[p].rows;
    halves[p].size = parts[p].size;
  }
}
}
