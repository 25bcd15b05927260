// C entry points to the emulated ladder of convolutions, for test_conv1d_ladder.py.
#include "conv1d/ladder/conv1d_ladder.h"

using namespace gpuopt::conv1d;

// Launches have at most `most_blocks` blocks.
extern "C" int run(int step, const float* in, const float* weight, float* out, int64_t rows,
                   int64_t size, int64_t taps, int64_t most_blocks) {
  return ladder_conv1d(step, LadderProblem{in, weight, out, rows, size, taps, most_blocks},
                       nullptr);
}

// Writes the numbers of blocks of the first `most` launches, and returns the number of launches.
// The launches are not run.
extern "C" int launches(int step, int64_t rows, int64_t size, unsigned* blocks, int most) {
  const float weight = 1.f;
  std::vector<unsigned> noted;
  emulator::noted = &noted;
  (void)ladder_conv1d(step, LadderProblem{nullptr, &weight, nullptr, rows, size, 1}, nullptr);
  emulator::noted = nullptr;
  std::copy_n(noted.begin(), min<size_t>(noted.size(), most), blocks);
  return static_cast<int>(noted.size());
}
