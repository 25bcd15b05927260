// The arguments of the kernels. Plans fill them.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"
#include "reduce/reduce_problem.h"

namespace gpuopt::reduce {

// Dimensions in the order in which kernels walk them, innermost first. Strides are in elements.
struct KernelDims {
  int count = 0;
  FastDiv sizes[kMaxKernelDims];
  int64_t in_strides[kMaxKernelDims];
  int64_t out_strides[kMaxKernelDims];
};

// Arguments of all kernels except line_kernel. Config explains the members that have its names. The
// struct is small because every launch copies it.
struct Args {
  const void* in = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;  // [slot][output] partial results; null if outputs aren't split
  KernelDims kept, reduced;
  int64_t reach = 1;  // values from the first to the last of the input
  int64_t units = 1;
  int64_t row_size = 1;      // of reduced dimension 0, in values. kRows: with the gaps of `apart`
  int64_t inner_stride = 1;  // between units of one row, in values
  FastDiv inner_units;       // valid only if there are several rows, which have below 2^31 units
  FastDiv splits;
  FastDiv column_tiles;
  FastDiv x, y;
  uint32_t z = 1;
  uint32_t first_slot = 0;
  uint32_t outputs = 1;
  uint32_t outer_units = 1;
  uint32_t outer_outputs = 1;  // outputs / columns
  uint32_t columns = 1;
  uint32_t fold = 1;
  uint32_t apart = 1;
  uint32_t overlap = 0;
  FastDiv piece_outputs;
  uint32_t tile_pieces = 1;
  uint32_t pitch = 1;
  uint32_t span = 1;
  DType in_dtype = DType::kFloat32;
  DType out_dtype = DType::kFloat32;
  bool linear_out = false;
  bool packed_out = false;
  bool read_once = false;
};

// Arguments of line_kernel. A small launch is mostly prologue, so they are few.
struct LineArgs {
  const void* in = nullptr;
  void* to = nullptr;      // [outputs] results, or [splits][outputs] slots of the workspace
  int64_t row_stride = 0;  // in values
  int64_t vecs = 0;        // vectors per row
  FastDiv splits;
  uint32_t outputs = 1;
  DType out_dtype = DType::kFloat32;
  bool to_workspace = false;
  bool read_once = false;
};

}  // namespace gpuopt::reduce
