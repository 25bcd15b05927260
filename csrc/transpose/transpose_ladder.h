// The optimisation ladder of transposition: the coalescing lesson. Steps 0 to 3 are those of Greg
// Ruetsch and Paulius Micikevicius, "Optimizing Matrix Transpose in CUDA" (NVIDIA, 2009).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::transpose {

inline constexpr LadderStep kLadder[] = {
    {"read_coalesced",
     "a thread an element, in the order of the input: a warp reads 32 neighbours, and writes each "
     "of "
     "them a row apart, into a sector of 32 bytes of its own"},
    {"write_coalesced",
     "in the order of the output: now the reads are a row apart, of which the caches keep what "
     "neighbouring warps need next"},
    {"shared_tile",
     "a block turns a tile of 32 x 32 in shared memory: rows of the tile are read and rows of the "
     "turned tile are written, both by neighbouring lanes; but a column lies in one bank"},
    {"padded_tile",
     "a row of the tile is a word longer, so that the words of a column lie in different banks"},
    {"vectors",
     "16 bytes an access on both sides: a tile of 64 x 64, whose rows are a pack of room apart "
     "after "
     "every fourth, as one word would leave no vectors aligned"},
    {"production", "gpuopt::transpose2d, see csrc/transpose/README.md"},
};

struct LadderProblem {
  const float* in = nullptr;
  float* out = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};

// out[j][i] = in[i][j] for a matrix that has elements, by any step but the last. "vectors" takes
// rows and columns that are multiples of 4, in memory that is aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_transpose(int step, const LadderProblem& problem,
                                           cudaStream_t stream);

}  // namespace gpuopt::transpose
