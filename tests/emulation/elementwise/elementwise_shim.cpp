// C entry points to the emulated element-wise launchers, for test_elementwise_kernels.py.
#include "../../plan/elementwise/elementwise_problem.h"
#include "elementwise/elementwise.h"

namespace gpuopt::elementwise {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::elementwise;

namespace {

// Writes the name of the path to *path.
template <int kInputs, Types kTypes = Types::kFloats>
Plan<kInputs, kTypes> plan(const Given& given, const char** path) {
  const Device device{132, static_cast<int>(emulator::most_shared_bytes)};
  auto plan = make_plan<kTypes>(make_problem<kInputs>(given), device, kTestTuning);
  *path = std::visit([](const auto& own) { return own.kName; }, plan.launches[0].path);
  return plan;
}

}  // namespace

extern "C" void set_shared_bytes(size_t most) { emulator::most_shared_bytes = most; }

// Runs operation `op` and returns its error. Writes the name of its path to *path.
extern "C" int run(const char* op, double alpha, const Given* given, const char** path) {
  const ScalarValue scalar{alpha, 0, static_cast<int64_t>(alpha)};
  const std::string name = op;
  if (name == "mul") return mul(plan<2, Types::kAll>(*given, path), nullptr);
  if (name == "mul_scalar") return mul_scalar(plan<1>(*given, path), scalar, nullptr);
  if (name == "axpy") return axpy(plan<2>(*given, path), scalar, nullptr);
  if (name == "fma") return elementwise::fma(plan<3>(*given, path), nullptr);
  return copy(plan<1, Types::kAll>(*given, path), nullptr);
}
