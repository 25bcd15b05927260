// The optimisation ladder of matrix multiplication.
//
// Sources: the steps up to "warp_tiles" follow Simon Boehm, "How to optimize a CUDA matmul kernel
// for cuBLAS-like performance" (2022), with slices of both tiles in flight. "three_tf32" is the sum
// of Hiroyuki Ootomo and Rio Yokota, "Recovering single precision accuracy from tensor cores while
// surpassing the FP32 theoretical peak performance" (2022). The steps from "wgmma" on follow
// Pranjal Shankhdhar, "Outperforming cuBLAS on H100" (2024).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/dtype.h"
#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::matmul {

inline constexpr LadderStep kLadder[] = {
    {"naive",
     "one thread per output. Neighbouring threads have neighbouring rows, so a warp reads 32 rows "
     "of A at once, and each value from a sector of its own"},
    {"coalesced",
     "neighbouring threads have neighbouring columns. A warp reads one value of A, which all its "
     "threads share, and 32 neighbours of a row of B"},
    {"shared_tile",
     "a block keeps tiles of 32 x 32 values of A and B in shared memory, so each value comes from "
     "memory once for 32 outputs. The L1 cache did as much. The gain is that a warp reads four "
     "values of its row of A at once: 40 accesses for 32 multiplications, instead of 64"},
    {"output_column",
     "a thread has 8 outputs of one column. It reads a value of B once for all of them: 9 accesses "
     "for 8 multiplications. The tile of A is transposed, and its rows are one word longer, so the "
     "words that a warp stores lie in different banks"},
    {"output_block",
     "a thread has 8 x 8 outputs. 16 reads of shared memory feed 64 multiplications, and the tile "
     "of a block grows to 128 x 128"},
    {"vectors",
     "16 bytes per access to both memories. The outputs of a thread become four blocks of 4 x 4, "
     "whose rows and columns are read as vectors without bank conflicts"},
    {"double_buffer",
     "the next slice of both tiles is copied asynchronously (cp.async) while this one is "
     "multiplied. One barrier per slice is left. Outputs are stored one by one: a vector of them "
     "would tie sums to the bank of registers that the values of B lie in"},
    {"warp_tiles",
     "a warp has a tile of 64 x 64, nearly square, so it reads less for each product. "
     "Each thread has 8 x 16 outputs, and reads the values of the next k while it multiplies"},
    {"bulk_copies",
     "one thread copies whole tiles by tensor maps (cp.async.bulk.tensor), which also fill what "
     "lies outside of the matrix with zeros: no thread computes addresses any more. Threads "
     "transpose the next slice of A in shared memory while they multiply"},
    {"split_k",
     "the sums of a small and deep problem are split into parts, because its tiles are fewer than "
     "the SMs. A second kernel adds the parts in order"},
    {"three_tf32",
     "tensor cores multiply values of 11 significant bits (TF32). Each operand is split into two "
     "such parts, and three products of parts give the accuracy of float32. Tensor cores truncate "
     "sums, so sums leave them after every slice"},
    {"ldmatrix",
     "16-bit operands: tensor cores multiply fragments (mma.sync), which ldmatrix reads from "
     "shared "
     "memory. Rows are padded by 16 bytes against bank conflicts"},
    {"swizzled",
     "exclusive-or of the row and the position of a vector in it replaces the padding. The warp "
     "tile grows to 64 x 64, and two slices are in flight"},
    {"wgmma",
     "four warps multiply tiles that lie in shared memory (wgmma), without fragments of operands "
     "in "
     "registers. Tensor maps copy the tiles, swizzled as the instruction expects them"},
    {"producer_consumer",
     "one warp copies, and eight warps multiply: none of them does both, and their registers are "
     "shared out accordingly (setmaxnreg)"},
    {"persistent",
     "one block per SM takes one tile after another, so the first slices of a tile are copied "
     "while "
     "the previous tile is stored. Neighbouring tiles follow each other, so the L2 cache keeps "
     "their operands"},
    {"clusters",
     "two neighbouring blocks share the slices of B: each copies a half to both (multicast). "
     "Outputs go through shared memory and leave it by bulk copies"},
    {"three_tf32_wgmma",
     "the three products of float32 by wgmma, with the parts of A in registers. Warps of their own "
     "split B and transpose it in shared memory, because TF32 operands need the values of a column "
     "as neighbours"},
    {"production",
     "matmul with precision=\"3xtf32\": float32 by the kernel of the previous step where that is "
     "faster than cuBLAS, everything else by torch.mm"},
};

// out = a b. Rows of `a` and `b` are pitch elements apart, and rows of `out` n.
struct LadderProblem {
  const void* a = nullptr;  // [m][k]
  const void* b = nullptr;  // [k][n]
  void* out = nullptr;      // [m][n]
  DType dtype = DType::kFloat32;
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  int64_t a_pitch = 0;
  int64_t b_pitch = 0;
  int sms = 1;
};

constexpr int32_t kMostRows = 1 << 30;  // of m, n and k

// Shared memory of a block, in KB, for steps that need more than every GPU has.
constexpr int kWarpTilesKb = 75, kBulkCopiesKb = 113, kThreeTf32Kb = 108, kSwizzledKb = 145;

// Runs any step except the last. Steps before "ldmatrix" and "three_tf32_wgmma" are for float32,
// the others for fp16 and bf16, with sums in float32. "vectors", "bulk_copies" and steps from
// "wgmma" on need rows that begin at multiples of 16 bytes. "bulk_copies" and steps from "wgmma" on
// need sm_90. "three_tf32" and later ones need sm_80.
GPUOPT_EXPORT cudaError_t ladder_matmul(int step, const LadderProblem& problem,
                                        Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::matmul
