// An asynchronous copy of 16 bytes to shared memory that fills up with zeros (PTX ISA, "cp.async",
// operand src-size). It needs sm_80. Older GPUs run ordinary loads and stores instead.
#pragma once

#include <cstdint>

#include "common/index.h"

namespace gpuopt {

// Copies the first `bytes` of 16 bytes and stores zeros behind them. It reads nothing if `bytes` is
// 0. Both addresses are aligned to 16 bytes. Chunks that are cut go byte by byte: cp.async reads no
// more of them either, but memcheck reports it as a read of 16 bytes.
__device__ __forceinline__ void copy_chunk_async(uint4* shared, const void* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  if (bytes == 0 || bytes == kAccessBytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(bytes)
                 : "memory");
    return;
  }
#endif
#pragma unroll 1
  for (int i = 0; i < kAccessBytes; ++i) {
    reinterpret_cast<char*>(shared)[i] = i < bytes ? static_cast<const char*>(global)[i] : 0;
  }
}

}  // namespace gpuopt
