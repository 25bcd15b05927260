// The launchers of every path, for one element type.
#pragma once

#include "index_add/paths/index_add_aggregate.cuh"
#include "index_add/paths/index_add_atomic.cuh"
#include "index_add/paths/index_add_bins.cuh"
#include "index_add/paths/index_add_hot.cuh"
#include "index_add/paths/index_add_lines.cuh"
#include "index_add/paths/index_add_rows.cuh"

#define GPUOPT_INDEX_ADD(T)                                           \
  template cudaError_t launch<T>(const AtomicPlan&, const Addition&); \
  template cudaError_t launch<T>(const TilesPlan&, const Addition&);  \
  template cudaError_t launch<T>(const HotPlan&, const Addition&);    \
  template cudaError_t launch<T>(const SortedPlan&, const Addition&); \
  template cudaError_t launch<T>(const BinsPlan&, const Addition&);   \
  template cudaError_t launch<T>(const LinesPlan&, const Addition&);
