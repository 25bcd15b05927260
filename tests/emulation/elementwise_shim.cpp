// C entry points to the emulated element-wise launchers, for test_elementwise_kernels.py.
#include "elementwise/elementwise.h"

namespace gpuopt::elementwise {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // what a block may have on sm_90
}

using namespace gpuopt;
using namespace gpuopt::elementwise;

namespace {

Problem make_problem(int num_inputs, int num_dims, const int64_t* sizes, const int64_t* strides,
                     const int* dtypes, const uint64_t* addresses, int dtype) {
  Problem problem;
  problem.num_inputs = num_inputs;
  problem.num_dims = num_dims;
  problem.dtype = static_cast<DType>(dtype);
  for (int d = 0; d < num_dims; ++d) problem.sizes[d] = sizes[d];
  for (int k = 0; k <= num_inputs; ++k) {
    problem.operands[k].data = reinterpret_cast<void*>(addresses[k]);
    problem.operands[k].dtype = static_cast<DType>(dtypes[k]);
    for (int d = 0; d < num_dims; ++d) problem.operands[k].strides[d] = strides[k * num_dims + d];
  }
  return problem;
}

}  // namespace

// Runs operation `op` and returns its error; *path becomes the path that its plan takes.
extern "C" int run(const char* op, double alpha, int num_inputs, int num_dims, const int64_t* sizes,
                   const int64_t* strides, const int* dtypes, const uint64_t* addresses, int dtype,
                   int* path) {
  const Problem problem =
      make_problem(num_inputs, num_dims, sizes, strides, dtypes, addresses, dtype);
  *path = static_cast<int>(make_plan(problem).path);
  const ScalarValue scalar{alpha, 0, static_cast<int64_t>(alpha)};
  switch (op[0]) {
    case 'm':
      return num_inputs == 1 ? mul_scalar(problem, scalar, nullptr) : mul(problem, nullptr);
    case 'a':
      return axpy(problem, scalar, nullptr);
    default:
      return fma(problem, nullptr);
  }
}
