// Products of small matrices by tensor cores, and the loads of their fragments (PTX ISA,
// "Warp-level matrix instructions: mma, ldmatrix"). All threads of a warp take part. They need
// sm_80: a kernel that uses them must not run on older GPUs.
//
// Thread `lane` of the warp has g = lane / 4 and t = lane % 4. A word holds two neighbouring values
// of 16 bits, or one TF32 value.
//
//   C (16 x 8)          c[0], c[1]: row g, columns 2 t and 2 t + 1
//                       c[2], c[3]: the same of row g + 8
//
//   A (16 x 16)         a[0]: row g, columns 2 t and 2 t + 1
//                       a[1]: the same of row g + 8
//                       a[2], a[3]: as a[0] and a[1], 8 columns further on
//
//   B (16 x 8)          b[0]: rows 2 t and 2 t + 1, column g
//                       b[1]: 8 rows further on
//
//   A (16 x 8), TF32    a[0]: row g, column t
//                       a[1]: the same of row g + 8
//                       a[2], a[3]: as a[0] and a[1], 4 columns further on
//
//   B (8 x 8), TF32     b[0]: row t, column g
//                       b[1]: 4 rows further on
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace gpuopt {

// C += A B for fp16 (T is __half) or bf16, m16n8k16.
template <typename T>
__device__ __forceinline__ void mma_half(float (&c)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// C += A B for TF32, m16n8k8. The low 13 bits of a word are ignored.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Loads four matrices of 8 rows of 16 bytes from shared memory. Thread 8 i + r names row r of
// matrix i, and thread `lane` gets word t of row g of matrix i as word i.
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], const uint4* row) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

// The same, but each matrix of 8 x 8 16-bit values is transposed: a word holds the values of rows
// 2 t and 2 t + 1 in column g.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&words)[4], const uint4* row) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

}  // namespace gpuopt
