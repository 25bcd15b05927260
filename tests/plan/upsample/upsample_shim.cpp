// C entry points to the index functions and planners of upsampling, for test_upsample_index.py and
// test_upsample_plan.py.
#include "../parts.h"
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"
#include "upsample_problem.h"

using namespace gpuopt;
using namespace gpuopt::upsample;

constexpr uint64_t kTo = 1 << 20;  // where results begin

extern "C" {

int factor_of(int64_t in, int64_t out, float step, int exact) {
  return make_axis(in, out, step, exact != 0).factor;
}

int64_t widest_window(int64_t in, int64_t out, float step, int exact) {
  return detail::widest_window(make_axis(in, out, step, exact != 0));
}

// Computes the sources of `count` output pixels.
void sources(int64_t in, int64_t out, float step, int exact, int count, const int32_t* outs,
             int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) found[i] = source_of(axis, outs[i]);
}

void short_sources(int64_t in, int64_t out, float step, int exact, int count, const int32_t* outs,
                   int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) {
    found[i] = source_at(axis, static_cast<float>(outs[i]) + axis.center);
  }
}

void first_copies(int64_t in, int64_t out, float step, int exact, int count, const int32_t* ins,
                  int32_t* found) {
  const Axis axis = make_axis(in, out, step, exact != 0);
  for (int i = 0; i < count; ++i) found[i] = first_copy_of(axis, ins[i]);
}

// Both return the launches as JSON.
const char* forward_plan(const int64_t* sizes, const float* steps, int exact,
                         const int64_t* strides, int channels_last, uint64_t from, int dtype,
                         int sms) {
  const Problem problem =
      make_problem(sizes, steps, exact, strides, channels_last, from, kTo, dtype);
  return launches_to_json(plan_forward(problem, Device{sms}));
}

const char* backward_plan(const int64_t* sizes, const float* steps, int exact,
                          const int64_t* strides, int channels_last, uint64_t from, int dtype,
                          int sms) {
  const Problem problem =
      make_problem(sizes, steps, exact, strides, channels_last, from, kTo, dtype);
  return launches_to_json(plan_backward(problem, Device{sms}));
}
}
