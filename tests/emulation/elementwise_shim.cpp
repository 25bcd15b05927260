// C entry points to the emulated element-wise launchers, for test_elementwise_kernels.py.
#include "../plan/elementwise_problem.h"
#include "elementwise/elementwise.h"

namespace gpuopt::elementwise {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::elementwise;

extern "C" void set_shared_bytes(size_t most) { emulator::most_shared_bytes = most; }

// Runs operation `op` and returns its error. Writes the path of its plan to *path.
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
    case 'c':
      return copy(problem, nullptr);
    case 'a':
      return axpy(problem, scalar, nullptr);
    default:
      return fma(problem, nullptr);
  }
}
