// The optimisation ladder of scans: inclusive sums of one vector.
//
// Sources:
// - Hillis & Steele, "Data Parallel Algorithms" (Communications of the ACM, 1986)
// - Blelloch, "Prefix Sums and Their Applications" (CMU-CS-90-190, 1990)
// - Harris, Sengupta & Owens, "Parallel Prefix Sum (Scan) with CUDA" (GPU Gems 3, chapter 39, 2007)
// - Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA, 2016)
//
// Steps up to "vectors" scan tiles. They scan the totals of the tiles with the same kernel, and add
// them to the tiles in another launch. That is 16 bytes of global memory per value: the tile is
// read and written twice.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::scan {

inline constexpr LadderStep kLadder[] = {
    {"sequential",
     "each thread scans a tile of 1024 values alone. The totals of the tiles are scanned in the "
     "same way, and added to the tiles. The threads of a warp are 4 KB apart, so each access of a "
     "warp touches 32 sectors where 4 would do"},
    {"hillis_steele",
     "a block scans 256 values in shared memory (Hillis and Steele, 1986). In each of 8 rounds a "
     "thread adds the sum that lies 1, 2, 4, ... positions before its own. Accesses are coalesced. "
     "There is a barrier in each round, and up to 8 additions per value"},
    {"blelloch",
     "a tree of sums of 512 values in shared memory (Blelloch, 1990): an up-sweep makes it, a "
     "down-sweep turns it into sums of everything before a value. That is 3 additions per value, "
     "whatever the size of the tile, but 19 barriers. Threads 2, 4, 8, ... words apart read the "
     "same banks"},
    {"conflict_free",
     "one unused word after every 32 values spreads strides over all banks (Harris, Sengupta and "
     "Owens, 2007). No bank conflicts are left"},
    {"warp_shuffle",
     "the threads of a warp exchange registers. Shared memory is left for one total per warp, and "
     "one barrier replaces 19"},
    {"vectors",
     "a thread holds 16 values, in 4 vectors of 16 bytes that it loads before it uses the first. "
     "There are 7 shuffles per 4 values instead of 20, and one barrier per 4096 values instead of "
     "one per 256"},
    {"reduce_then_scan",
     "three launches: blocks add up their shares, one block scans the totals, and the blocks scan "
     "their shares from there. The result is written once and never read, so 12 bytes are moved "
     "per value instead of 16"},
    {"look_back",
     "one launch (Merrill and Garland, 2016): a block publishes the total of its tile, and adds "
     "what the blocks before it have published. 8 bytes are moved per value, as in a copy. What a "
     "block finds depends on timing, so rounding varies",
     /*repeatable=*/false},
    {"production", "gpuopt::cumsum, see csrc/scan/README.md"},
};

struct LadderProblem {
  const float* in = nullptr;
  int64_t size = 0;
  float* out = nullptr;
  int sms = 1;
};

// Writes out[i] = in[0] + ... + in[i] for `size` values of f32 by any step except the last. From
// "vectors" on, `in` and `out` must be aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_scan(int step, const LadderProblem& problem, Workspace& workspace,
                                      cudaStream_t stream);

}  // namespace gpuopt::scan
