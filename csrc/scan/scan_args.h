// The arguments of the kernels of scans. Plain host C++: the planner fills them.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"

namespace gpuopt::scan {

constexpr int kMaxKernelDims = 6;  // dimensions of rows in one launch; more are split off

// The dimensions of the rows, innermost first. Strides are in elements.
struct KernelDims {
  int count = 0;
  FastDiv sizes[kMaxKernelDims];
  int64_t in_strides[kMaxKernelDims];
  int64_t out_strides[kMaxKernelDims];
  int64_t second_strides[kMaxKernelDims] = {};
  int64_t initial_strides[kMaxKernelDims] = {};
};

// Arguments of all kernels. scan_layout.h defines the terms (row, unit, tile).
struct Args {
  const void* in = nullptr;
  void* out = nullptr;
  const void* second = nullptr;
  const void* initial = nullptr;
  void* records = nullptr;  // of look-back, [chains][slots][columns of a block]
  KernelDims outer;         // all dimensions but the scanned one and the columns
  int64_t length = 1;       // of a row
  int64_t in_stride = 0, out_stride = 0, second_stride = 0;
  int64_t total = 1;        // values of a dense problem
  FastDiv row_length;       // kPacked: rows fit into a warp's chunk
  uint32_t chunk_rows = 1;  // kPacked: rows of a warp
  uint32_t units = 1;       // of a thread in a tile
  uint32_t rows = 1;
  FastDiv tiles;         // along the scanned dimension
  FastDiv column_tiles;  // blocks side by side
  int64_t slots = 1;     // of a chain of look-back
  uint64_t patience = 0;
  int64_t columns = 1;
  int64_t in_column_stride = 0, out_column_stride = 0;
  int64_t second_column_stride = 0, initial_column_stride = 0;
  uint32_t x = 1;  // a block of columns is x units wide
  DType in_dtype = DType::kFloat32;
  DType out_dtype = DType::kFloat32;
  // In another order rows_kernel of half types spills a register (nvcc 13.0, sm_90).
  bool dense = false;  // kPacked: rows lie behind each other, so a vector may hold parts of several
  bool exclusive = false;
  bool second_is_one = false;  // the values of a unit share one value of the second input
  bool reverse = false;
};

// A tensor in the tiles of columns that a block copies together (scan_tiles.h). Axis 0 has the rows
// of a tile, axes 1 and 2 its columns.
struct TileTensor {
  int64_t strides[3] = {};  // in elements
  uint32_t steps[3] = {};   // the same in shared memory
  uint8_t order[3] = {};    // the axes, innermost in memory first
  bool in_vecs = false;     // segments are copied in vectors, else value by value
  bool is_flat = false;     // the segments along order[1] lie behind each other
  bool reads_vecs = false;  // a thread's rows are whole vectors in shared memory
  FastDiv vecs;             // of a segment
  FastDiv segments;         // along order[1]
  uint32_t bytes = 0;       // of shared memory
  int64_t span = 0;         // elements from the first of the tensor to its last
};

// Arguments of the kernels of columns whose tiles a block copies together.
struct TileArgs : Args {
  TileTensor tensors[3];        // in, out, second
  int64_t sizes[2] = {1, 1};    // of the dimensions of columns
  uint32_t widths[2] = {1, 1};  // of a tile. Their product is x, and both are powers of two
  FastDiv first_tiles;          // tiles along the first dimension
  uint32_t buffers = 1;         // of the inputs
  int64_t initial_strides[2] = {};
};

// How the values of units belong to rows and chunks.
enum class Packing : uint8_t {
  kWhole,    // all values of a unit belong to one row
  kShared,   // a unit may hold values of several rows
  kShifted,  // the same, and a chunk may begin inside of a vector of the chunk before
};

}  // namespace gpuopt::scan
