// C entry points to the emulated upsampling launchers, for test_upsample_kernels.py.
#include "../../plan/parts.h"
#include "../../plan/upsample/upsample_problem.h"
#include "upsample/upsample.h"
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"

namespace gpuopt::upsample {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::upsample;

// Launches a plan. Returns the launches as JSON, or null after an error. A launch has at most
// part_units units. Axes are long from short_axis on.
extern "C" const char* run(int is_backward, const int64_t* sizes, const float* steps, int exact,
                           const int64_t* strides, int channels_last, uint64_t from, uint64_t to,
                           int dtype, int sms, int64_t part_units, int64_t short_axis) {
  Tuning tuning;
  tuning.part_units = part_units;
  tuning.short_axis = short_axis;
  // Memory that a kernel has not written holds NaN.
  memset(shared, 0xff, sizeof(shared));
  const Problem problem =
      make_problem(sizes, steps, exact, strides, channels_last, from, to, dtype);
  const auto run_plan = [](const auto& plan) {
    return launch(plan, nullptr) == cudaSuccess ? launches_to_json(plan) : nullptr;
  };
  return is_backward ? run_plan(plan_backward(problem, Device{sms}, tuning))
                     : run_plan(plan_forward(problem, Device{sms}, tuning));
}
