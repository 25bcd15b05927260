// The optimisation ladder of matrix transposition: the lesson of coalescing. Steps 0 to 3 are the
// kernels of Greg Ruetsch and Paulius Micikevicius, "Optimizing Matrix Transpose in CUDA" (NVIDIA,
// 2009).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::transpose {

inline constexpr LadderStep kLadder[] = {
    {"read_coalesced",
     "one thread per element, in the order of the input. A warp reads 32 neighbours and writes "
     "them a row apart, each to a 32-byte sector of its own"},
    {"write_coalesced",
     "one thread per element, in the order of the output. The reads are a row apart, but the "
     "caches keep the rest of each sector for neighbouring warps"},
    {"shared_tile",
     "a block transposes a tile of 32 x 32 in shared memory. Neighbouring threads read rows of the "
     "input and write rows of the output; but a column of the tile lies in one bank"},
    {"padded_tile",
     "a row of the tile is one word longer, so the words of a column lie in different banks"},
    {"vectors",
     "16 bytes per access on both sides, in a tile of 64 x 64. The tile has a gap of one vector "
     "after every fourth row, because a gap of one word would leave no vector aligned"},
    {"production", "gpuopt::transpose2d, see csrc/transpose/README.md"},
};

struct LadderProblem {
  const float* in = nullptr;
  float* out = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};

// Computes out[j][i] = in[i][j] of a matrix that is not empty, by any step except the last.
// "vectors" needs numbers of rows and columns that are multiples of 4, and memory that is aligned
// to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_transpose(int step, const LadderProblem& problem,
                                           cudaStream_t stream);

}  // namespace gpuopt::transpose
