// C entry points to the emulated ladders of upsampling, for test_upsample_ladder.py.
#include "upsample/ladder/upsample_ladder.h"

using namespace gpuopt::upsample;

// sizes: input height, output height, input width, output width.
extern "C" int run(int is_backward, int step, const void* from, void* to, int element_bytes,
                   int64_t planes, const int64_t* sizes) {
  const LadderProblem problem{
      from,         to, planes, ladder_axis(sizes[0], sizes[1]), ladder_axis(sizes[2], sizes[3]),
      element_bytes};
  return is_backward ? ladder_backward(step, problem, nullptr)
                     : ladder_forward(step, problem, nullptr);
}

// The number of blocks of a problem that is too large to run, or -1.
extern "C" int64_t blocks(int is_backward, int step, int element_bytes, int64_t planes,
                          const int64_t* sizes) {
  std::vector<unsigned> noted;
  emulator::noted = &noted;
  const int error = run(is_backward, step, nullptr, nullptr, element_bytes, planes, sizes);
  emulator::noted = nullptr;
  return error == cudaSuccess && noted.size() == 1 ? int64_t{noted[0]} : -1;
}
