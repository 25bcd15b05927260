// The launchers of the steps of matmul_ladder.h. Their problems have outputs and a k of at least 1.
#pragma once

#include "matmul/ladder/matmul_ladder.h"

namespace gpuopt::matmul {

using Launcher = cudaError_t(const LadderProblem&, Workspace&, cudaStream_t);

Launcher naive, coalesced, shared_tile, output_column, output_block, vectors;
Launcher double_buffer, warp_tiles, bulk_copies, split_k;
Launcher three_tf32, ldmatrix, swizzled;
Launcher wgmma, producer_consumer, persistent, clusters, three_tf32_wgmma;

}  // namespace gpuopt::matmul
