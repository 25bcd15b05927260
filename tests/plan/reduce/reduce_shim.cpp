// C entry points to the reduction planner, for test_reduce_plan.py.
#include "common/describe.h"
#include "reduce/reduce_plan.h"
#include "reduce_problem.h"

using namespace gpuopt;
using namespace gpuopt::reduce;

extern "C" {

// The plan of a sum as JSON, which is valid until the next call.
const char* plan(int num_dims, const int64_t* sizes, const int64_t* in_strides,
                 const int64_t* out_strides, const int* reduced, uint64_t in, uint64_t out,
                 int in_dtype, int dtype, int sms, int64_t most_in_launch) {
  const Problem problem = make_problem(Operation::kSum, num_dims, sizes, in_strides, out_strides,
                                       reduced, in, out, in_dtype, dtype);
  Tuning tuning;
  tuning.most_in_launch = most_in_launch;
  static std::string json;
  json = to_json(make_plan(problem, Device{sms}, tuning));
  return json.c_str();
}

int64_t slices(int num_dims, const int64_t* sizes, const int64_t* in_strides,
               const int64_t* out_strides, const int* reduced, uint64_t in, uint64_t out,
               int in_dtype, int dtype) {
  return slices_of(make_problem(Operation::kSum, num_dims, sizes, in_strides, out_strides, reduced,
                                in, out, in_dtype, dtype));
}
}
