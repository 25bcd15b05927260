// The optimisation ladder of sparse products: a matrix in rows of entries (CSR) times dense rows.
//
// Sources: "thread_per_row" and "warp_per_row" are the scalar and the vector kernel of Nathan Bell
// and Michael Garland, "Implementing sparse matrix-vector multiplication on throughput-oriented
// processors" (2009), with lanes along features as in Carl Yang, Aydin Buluc and John D. Owens,
// "Design principles for sparse matrix multiplication on the GPU" (2018). "equal_entries" is the
// path of Duane Merrill and Michael Garland, "Merge-based parallel sparse matrix-vector
// multiplication" (2016).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/dtype.h"
#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::spmm {

inline constexpr LadderStep kLadder[] = {
    {"thread_per_row",
     "one thread per row and feature walks the entries of the row. Neighbouring threads have "
     "neighbouring rows, so each load of a warp touches up to 32 sectors and uses one value of "
     "each"},
    {"warp_per_row",
     "the threads of a warp stand side by side along 32 features of one row. They read the same "
     "entry, so a load of a warp is 32 neighbouring values of a dense row"},
    {"vectors",
     "a thread has 16 bytes of features, and the loads of four entries are in flight together. A "
     "row needs as many threads as it has vectors, and the threads of a warp that are left have "
     "other rows"},
    {"split_rows",
     "a group of threads walks a short row whole. It would be the last to finish a long row, so "
     "long rows are cut into pieces of equal length, which other groups add first"},
    {"equal_entries",
     "rows and entries together are cut into windows of equal length, whatever the lengths of rows "
     "are. Of a row that ends in another window, each window writes a part, and a second kernel "
     "adds the parts in order"},
    {"feature_slices",
     "a slice of the features of all dense rows fits the L2 cache. One slice is finished before "
     "the "
     "next begins, so a dense row comes from memory once, and not once per entry. The price is "
     "that each slice reads the matrix again"},
    {"production",
     "gpuopt::spmm, whose windows keep loads in flight across the ends of rows, see "
     "csrc/spmm/README.md"},
};

// Tests lower these limits, which small problems would not reach.
struct LadderTuning {
  int64_t piece = 256;              // entries of a piece of a long row; a short row has no more
  int64_t shortest_window = 128;    // rows and entries together
  int64_t most_windows = 1 << 16;   // windows of large matrices are longer
  int64_t least_slice_bytes = 128;  // of a dense row: a line of the caches
};

// out[row] = the sum of value[e] * dense[index[e]] over the entries e of the row, which are
// ptr[row] to ptr[row + 1]. All operands are contiguous.
struct LadderProblem {
  const int32_t* ptr = nullptr;    // [rows + 1], ascending from 0 to entries
  const int32_t* index = nullptr;  // [entries]
  const void* value = nullptr;     // [entries]; null: 1
  const void* dense = nullptr;     // [columns][features]
  void* out = nullptr;             // [rows][features]
  DType dtype = DType::kFloat32;   // of value, dense and out: float32 or bfloat16
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t entries = 0;
  int64_t features = 0;
  int64_t l2_bytes = 0;  // the size of the L2 cache
  LadderTuning tuning;
};

// Runs any step except the last. Sums are in float32, in an order that depends on the problem
// alone. Steps from "vectors" on read 16 bytes at a time if rows of dense and out are aligned to 16
// bytes, and else single values. A device assertion fails for an index out of range.
GPUOPT_EXPORT cudaError_t ladder_spmm(int step, const LadderProblem& problem, Workspace& workspace,
                                      cudaStream_t stream);

}  // namespace gpuopt::spmm
