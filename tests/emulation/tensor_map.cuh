// Replaces csrc/common/tensor_map.cuh: copies of boxes on the CPU, which are complete at once.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/mbarrier.cuh"

namespace gpuopt {

enum class Swizzle { kNone, k64, k128 };

struct MapBatch {
  int64_t size = 0, stride = 0;
};

struct TensorMap {
  char* matrix;
  int64_t rows, columns, pitch_bytes, size;
  uint32_t box_rows, box_columns;
  Swizzle swizzle;
  int64_t batch, batch_bytes;  // 0 for a map without a batch

  // Calls f(address in the matrix, or null if outside of it, address in the box) for each value.
  template <typename F>
  void for_each(char* shared, int index, int row, int column, F f) const {
    const int64_t row_bytes = box_columns * size;
    if (reinterpret_cast<uintptr_t>(shared) % 1024 != 0) abort();
    if (index < 0 || index > max(batch - 1, int64_t{0})) abort();
    for (int64_t i = 0; i < box_rows; ++i) {
      for (int64_t j = 0; j < box_columns; ++j) {
        const int64_t r = row + i, c = column + j, bytes = j * size;
        const int64_t mask = swizzle == Swizzle::k128  ? i % 8
                             : swizzle == Swizzle::k64 ? i / 2 % 4
                                                       : 0;
        const bool inside = r >= 0 && r < rows && c >= 0 && c < columns;
        f(inside ? matrix + index * batch_bytes + r * pitch_bytes + c * size : nullptr,
          shared + i * row_bytes + ((bytes / 16 ^ mask) * 16 + bytes % 16));
      }
    }
  }
};

inline cudaError_t make_tensor_map(TensorMap& map, DType dtype, const void* matrix, int64_t rows,
                                   int64_t columns, int64_t pitch, uint32_t box_rows,
                                   uint32_t box_columns, Swizzle swizzle, MapBatch batch = {}) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t swizzled = swizzle == Swizzle::k128 ? 128 : 64;
  const bool fits = reinterpret_cast<uintptr_t>(matrix) % 16 == 0 && pitch * size % 16 == 0 &&
                    pitch > 0 && batch.stride * size % 16 == 0 && box_rows <= 256 &&
                    box_columns <= 256 && rows > 0 && columns > 0 &&
                    (swizzle == Swizzle::kNone || box_columns * size == swizzled);
  if (!fits) return cudaErrorInvalidValue;
  map = {static_cast<char*>(const_cast<void*>(matrix)),
         rows,
         columns,
         pitch * size,
         size,
         box_rows,
         box_columns,
         swizzle,
         batch.size,
         batch.size > 1 ? batch.stride * size : 0};
  return cudaSuccess;
}

inline void copy_from(const TensorMap& map, void* shared, int index, int row, int column,
                      Barrier* full) {
  map.for_each(static_cast<char*>(shared), index, row, column, [&](const char* from, char* to) {
    if (from != nullptr) {
      memcpy(to, from, map.size);
    } else {
      memset(to, 0, map.size);
    }
  });
  count_bytes(full, static_cast<uint32_t>(map.box_rows * map.box_columns * map.size));
}
// The instructions for maps with and without a batch are different ones.
inline void copy_box(void* shared, const TensorMap& map, int row, int column, Barrier* full) {
  if (map.batch != 0) abort();
  copy_from(map, shared, 0, row, column, full);
}
inline void copy_box(void* shared, const TensorMap& map, int index, int row, int column,
                     Barrier* full) {
  if (map.batch == 0) abort();
  copy_from(map, shared, index, row, column, full);
}
inline void copy_box_to_blocks(void* shared, const TensorMap& map, int row, int column,
                               Barrier* full, uint16_t blocks) {
  if (blocks != 1) abort();
  copy_box(shared, map, row, column, full);
}

inline void store_box(const TensorMap& map, int row, int column, const void* shared) {
  map.for_each(static_cast<char*>(const_cast<void*>(shared)), 0, row, column,
               [&](char* to, const char* from) {
                 if (to != nullptr) memcpy(to, from, map.size);
               });
}
inline void fence_for_bulk_copies() {}
template <int kLeft>
void wait_for_box_reads() {}

}  // namespace gpuopt
