// Gathers of rows at an index: the contract between bindings and kernels. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "common/export.h"
#include "common/index.h"

namespace gpuopt::index_select {

// out[entry] = self[index[entry]]. Rows are dense, and the rows of `out` lie behind each other.
// Values are only moved, so a row is a number of bytes.
struct Gather {
  const void* self = nullptr;   // [bins][row]
  const void* index = nullptr;  // [entries]
  void* out = nullptr;          // [entries][row]
  bool long_index = true;       // int64, else int32
  int64_t bins = 0;
  int64_t entries = 0;
  int64_t index_stride = 1;  // in elements
  int64_t row_bytes = 0;
  int64_t bin_bytes = 0;  // from one row of self to the next
};

// The widest access, a power of two of up to 16 bytes, to which all rows are aligned.
inline int64_t access_bytes(const Gather& gather) {
  const uint64_t all = reinterpret_cast<uintptr_t>(gather.self) |
                       reinterpret_cast<uintptr_t>(gather.out) |
                       static_cast<uint64_t>(gather.row_bytes | gather.bin_bytes | kAccessBytes);
  return int64_t{1} << std::countr_zero(all);
}

// Copies the rows. Rows have at least one byte and less than 2^30.
GPUOPT_EXPORT cudaError_t gather_rows(const Gather& gather, cudaStream_t stream);

}  // namespace gpuopt::index_select
