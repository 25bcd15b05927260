// C entry points to the emulated ladders of layer norm, for test_norm_ladder.py.
#include "../ladder_shim.h"
#include "norm/ladder/norm_ladder.h"

using namespace gpuopt;
using namespace gpuopt::norm;

extern "C" int forward(int step, int dtype, const void* input, const void* weight, const void* bias,
                       void* out, int64_t rows, int64_t length) {
  const LadderForward<void> problem{input, weight, bias, out, rows, length};
  return ladder_forward(step, static_cast<DType>(dtype), problem, nullptr);
}

// results: the gradients of input, weight and bias.
extern "C" int backward(int step, int dtype, const void* grad, const void* input, const float* mean,
                        const float* rstd, const void* weight, void* const* results, int64_t rows,
                        int64_t length, int sms) {
  PoisonedBlocks workspace;
  const LadderBackward<void> problem{grad,       input,      mean,       rstd, weight,
                                     results[0], results[1], results[2], rows, length};
  const cudaError_t error =
      ladder_backward(step, static_cast<DType>(dtype), sms, problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
