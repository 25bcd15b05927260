// The launchers of every path, for one element type.
#pragma once

#include "index_add/paths/index_add_aggregate.cuh"
#include "index_add/paths/index_add_atomic.cuh"
#include "index_add/paths/index_add_bins.cuh"
#include "index_add/paths/index_add_hot.cuh"
#include "index_add/paths/index_add_lines.cuh"
#include "index_add/paths/index_add_rows.cuh"

#define GPUOPT_INDEX_ADD(T)                                                    \
  template cudaError_t launch<T>(const AtomicPlan&, Workspace&, cudaStream_t); \
  template cudaError_t launch<T>(const TilesPlan&, Workspace&, cudaStream_t);  \
  template cudaError_t launch<T>(const HotPlan&, Workspace&, cudaStream_t);    \
  template cudaError_t launch<T>(const SortedPlan&, Workspace&, cudaStream_t); \
  template cudaError_t launch<T>(const BinsPlan&, Workspace&, cudaStream_t);   \
  template cudaError_t launch<T>(const LinesPlan&, Workspace&, cudaStream_t);
