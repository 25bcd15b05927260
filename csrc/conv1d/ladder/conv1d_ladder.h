// The optimisation ladder of convolutions of one channel, whose results are as long as the rows.
// Steps 0 to 3 are those of Kirk & Hwu, "Programming Massively Parallel Processors" (3rd edition,
// 2017), chapter 7, "Parallel patterns: convolution". More outputs a thread, and registers in place
// of shared memory, are Volkov's, "Better Performance at Lower Occupancy" (GTC 2010).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::conv1d {

inline constexpr LadderStep kLadder[] = {
    {"global_memory",
     "a thread makes an output: it reads every tap and the value under it from global memory, two "
     "loads for one multiply-add"},
    {"constant_taps",
     "taps are copied to constant memory: lanes of a warp need the same tap at the same time, "
     "which its cache hands to all of them at once"},
    {"shared_tile",
     "a block loads the values under all of its outputs, (K - 1) / 2 halo cells at either side of "
     "its tile included, into shared memory once: K threads need each of them"},
    {"cached_halo",
     "shared memory holds the tile alone, however large K is: halo cells are in the tiles of "
     "neighbouring blocks, so the L2 cache has them, at the price of a question for every value"},
    {"register_window",
     "a thread makes 8 neighbouring outputs from a window of registers that slides along the row: "
     "16 bytes a load and a store, each value and each tap are used for up to 8 outputs, and no "
     "thread waits for others"},
    {"production",
     "gpuopt::conv1d with (K - 1) / 2 zeros at either end, see csrc/conv1d/README.md"},
};

// The most taps of all steps but the first; an odd number, as all are. Their array in constant
// memory (64 KiB in all) and the tile of "shared_tile" with its halo in static shared memory (at
// most 48 KiB) are made for as many.
constexpr int kMostTaps = 4095;

// The most blocks of a launch (gridDim.x; CUDA C++ Programming Guide, "Technical Specifications").
// More take several.
constexpr int64_t kMostBlocks = INT32_MAX;

struct LadderProblem {
  const float* in = nullptr;
  const float* weight = nullptr;
  float* out = nullptr;
  int64_t rows = 0;
  int64_t size = 0;  // of a row, of `in` and of `out`
  int64_t taps = 1;  // odd
};

// Rows convolved by any step but the last: out[i] is the sum of weight[k] * in[i + k - taps / 2],
// where in is 0 beside a row. A GPU has one array of taps in constant memory: from "constant_taps"
// on calls on several streams must not overlap.
GPUOPT_EXPORT cudaError_t ladder_conv1d(int step, const LadderProblem& problem,
                                        cudaStream_t stream);

}  // namespace gpuopt::conv1d
