// The optimisation ladder of convolutions of one channel whose output is as long as the input.
//
// Sources: steps 0 to 3 are the kernels of Kirk & Hwu, "Programming Massively Parallel Processors"
// (3rd edition, 2017), chapter 7, "Parallel patterns: convolution". Several outputs per thread, and
// registers instead of shared memory, are ideas of Volkov, "Better Performance at Lower Occupancy"
// (GTC 2010).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::conv1d {

inline constexpr LadderStep kLadder[] = {
    {"global_memory",
     "one thread per output. It reads every tap and the value under it from global memory: two "
     "loads for one multiply-add"},
    {"constant_taps",
     "taps are copied to constant memory. The threads of a warp need the same tap at the same "
     "time, and the constant cache broadcasts it to all of them"},
    {"shared_tile",
     "a block loads the values under its outputs into shared memory once, because K threads need "
     "each of them. At either side its tile has a halo of (K - 1) / 2 values"},
    {"cached_halo",
     "shared memory holds the tile without its halo, however large K is. The halo is in the tiles "
     "of neighbouring blocks, so the L2 cache has it; but every access needs a comparison"},
    {"register_window",
     "a thread computes 8 neighbouring outputs from a window of registers that slides along the "
     "row. Loads and stores have 16 bytes, and a value or a tap is used for up to 8 outputs. There "
     "is no barrier"},
    {"production",
     "gpuopt::conv1d with (K - 1) / 2 zeros at either end, see csrc/conv1d/README.md"},
};

// The most taps of every step except the first. Numbers of taps are odd. The array in constant
// memory (64 KiB at most) and the tile with its halo in static shared memory (48 KiB at most) have
// room for this many.
constexpr int kMostTaps = 4095;

struct LadderProblem {
  const float* in = nullptr;
  const float* weight = nullptr;
  float* out = nullptr;
  int64_t rows = 0;
  int64_t size = 0;  // values of a row, in both `in` and `out`
  int64_t taps = 1;  // odd
  // Of a launch (gridDim.x; CUDA C++ Programming Guide, "Technical Specifications"). Larger
  // problems are split into several launches.
  int64_t most_blocks = INT32_MAX;
};

// Convolves rows by any step except the last: out[i] is the sum of weight[k] * in[i + k - taps / 2]
// over k, with zeros beyond the ends of a row. A GPU has one array of taps in constant memory, so
// from "constant_taps" on calls on several streams must not overlap.
GPUOPT_EXPORT cudaError_t ladder_conv1d(int step, const LadderProblem& problem,
                                        cudaStream_t stream);

}  // namespace gpuopt::conv1d
