// C entry point to the emulated ladder of matrix multiplication, for test_matmul_ladder.py.
#include "../ladder_shim.h"
#include "matmul/ladder/matmul_ladder.h"

using namespace gpuopt;
using namespace gpuopt::matmul;

alignas(1024) uint4 matmul_memory[(227 << 10) / sizeof(uint4)];

// `sizes` are m, n, k, the pitches of a and b, and the number of SMs.
extern "C" int run(int step, int dtype, const void* a, const void* b, void* out,
                   const int64_t* sizes) {
  PoisonedBlocks workspace;
  LadderProblem problem;
  problem.a = a;
  problem.b = b;
  problem.out = out;
  problem.dtype = static_cast<DType>(dtype);
  problem.m = static_cast<int32_t>(sizes[0]);
  problem.n = static_cast<int32_t>(sizes[1]);
  problem.k = static_cast<int32_t>(sizes[2]);
  problem.a_pitch = sizes[3];
  problem.b_pitch = sizes[4];
  problem.sms = static_cast<int>(sizes[5]);
  memset(matmul_memory, 0xff, sizeof(matmul_memory));  // NaN
  const cudaError_t error = ladder_matmul(step, problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
