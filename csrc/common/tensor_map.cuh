// Bulk copies of boxes of a matrix by tensor maps (PTX ISA, "cp.async.bulk.tensor"; CUDA Driver
// API, "Tensor Map Object Management"). A box that reaches beyond the matrix is filled with zeros,
// and stores leave these values out. They need sm_90.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/dtype.h"
#include "common/mbarrier.cuh"

namespace gpuopt {

using TensorMap = CUtensorMap;

// How rows of a box lie in shared memory. A swizzle of 128 bytes is for rows of 128 bytes: the 16
// bytes at position v of row r lie at v ^ (r % 8). One of 64 bytes is for rows of 64 bytes: they
// lie at v ^ (r / 2 % 4). Boxes begin at multiples of 1024 bytes.
enum class Swizzle { kNone, k64, k128 };

// Matrices that lie `stride` elements apart. Boxes of their map are copied with an index.
struct MapBatch {
  int64_t size = 0;  // 0 for a single matrix without an index
  int64_t stride = 0;
};

// Makes the map of a matrix [rows][columns] of f32, fp16 or bf16, whose rows are `pitch` elements
// apart, or of a batch of them. Rows begin at multiples of 16 bytes. A box has at most 256 rows and
// columns.
inline cudaError_t make_tensor_map(TensorMap& map, DType dtype, const void* matrix, int64_t rows,
                                   int64_t columns, int64_t pitch, uint32_t box_rows,
                                   uint32_t box_columns, Swizzle swizzle, MapBatch batch = {}) {
  // The driver's library is not linked, so that the library loads without a GPU.
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &status);
  if (error != cudaSuccess) return error;
  if (status != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  constexpr cuuint64_t kAnyStride = 16;  // of a batch of one
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(batch.size)};
  const cuuint64_t strides[] = {
      static_cast<cuuint64_t>(pitch) * size_of(dtype),
      batch.size <= 1 ? kAnyStride : static_cast<cuuint64_t>(batch.stride) * size_of(dtype)};
  const cuuint32_t box[] = {box_columns, box_rows, 1}, steps[] = {1, 1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
      &map,
      dtype == DType::kFloat32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
      : dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      batch.size == 0 ? 2 : 3, const_cast<void*>(matrix), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle == Swizzle::k128  ? CU_TENSOR_MAP_SWIZZLE_128B
      : swizzle == Swizzle::k64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Copies the box that begins at this row and column to shared memory. `full` counts its bytes,
// zeros included. One thread calls this.
__device__ __forceinline__ void copy_box(void* shared, const TensorMap& map, int row, int column,
                                         Barrier* full) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(&map), "r"(column), "r"(row), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(full)))
      : "memory");
#endif
}

// The same for a map with a batch.
__device__ __forceinline__ void copy_box(void* shared, const TensorMap& map, int index, int row,
                                         int column, Barrier* full) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(&map), "r"(column), "r"(row), "r"(index),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(full)))
      : "memory");
#endif
}

// As copy_box() of a single matrix, to the same position of all blocks of the cluster in the mask.
// Each block's own barrier counts the bytes. This needs sm_90a: elsewhere it may be slow.
__device__ __forceinline__ void copy_box_to_blocks(void* shared, const TensorMap& map, int row,
                                                   int column, Barrier* full, uint16_t blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(&map), "r"(column), "r"(row), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(full))),
      "h"(blocks)
      : "memory");
#endif
}

// Stores a box from shared memory. Before it, each thread that wrote to the box calls
// fence_for_bulk_copies() and then meets the storing thread at a barrier.
__device__ __forceinline__ void store_box(const TensorMap& map, int row, int column,
                                          const void* shared) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(column), "r"(row), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared)))
      : "memory");
#endif
}
__device__ __forceinline__ void fence_for_bulk_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Waits until this thread's stores, except the last kLeft, have read their shared memory.
template <int kLeft>
__device__ __forceinline__ void wait_for_box_reads() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace gpuopt
