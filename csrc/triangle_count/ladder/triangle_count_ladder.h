// The optimisation ladder of triangle counts.
//
// Sources: "merge" is Adam Polak, "Counting triangles in large graphs on GPU" (2016);
// "binary_search" and "warp_per_edge" are Yang Hu, Hang Liu and H. Howie Huang, "TriCore: parallel
// triangle counting on GPUs" (2018); "hash" is Santosh Pandey et al., "TRUST: triangle counting
// reloaded on GPUs" (2021).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::triangle_count {

inline constexpr LadderStep kLadder[] = {
    {"merge",
     "one thread per edge merges the sorted neighbours of both ends, behind the higher end. The "
     "threads of a warp wait for the longest lists among them, and each reads lists of its own"},
    {"binary_search",
     "a thread looks up each neighbour of the end that has fewer among the neighbours of the "
     "other end. A long list costs its logarithm, and not its length"},
    {"warp_per_edge",
     "the threads of a warp look up neighbouring elements of one list. Their loads are side by "
     "side, and the first steps of all searches read the same elements"},
    {"orientation",
     "edges lead from the vertex of lower degree to the one of higher degree. A vertex with many "
     "neighbours then has a short list, because few vertices have more. The time of this step "
     "contains the orientation, which sorts the edges"},
    {"hash",
     "a block puts the list of a vertex into a hash table in shared memory. One or two reads of "
     "the table replace a search, and the lists of the neighbours are read from their beginnings "
     "to their ends"},
    {"production",
     "gpuopt::triangle_count, whose blocks have equal numbers of edges, see "
     "csrc/triangle_count/README.md"},
};

// The steps from this one on count an oriented graph.
inline constexpr int kOrientation = 3;

// Edges sorted by source and target, without repeats and loops. A triangle u < v < w is counted at
// the edge (u, v). The graph has both directions of each edge, or only u < v.
struct LadderProblem {
  const int64_t* ptr = nullptr;     // [vertices + 1]
  const int32_t* source = nullptr;  // [edges]; -1: no edge
  const int32_t* target = nullptr;  // [edges]
  int64_t vertices = 0;
  int64_t edges = 0;
  uint64_t* count = nullptr;  // zero
};

// Runs any step except the last.
GPUOPT_EXPORT cudaError_t ladder_triangle_count(int step, const LadderProblem& problem,
                                                cudaStream_t stream);

}  // namespace gpuopt::triangle_count
