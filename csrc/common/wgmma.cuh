// Products of tiles in shared memory by a group of four warps (PTX ISA, "Asynchronous Warpgroup
// Level Matrix Instructions"). The 128 threads of the group take part, from a multiple of 128 on.
// They need sm_90a: newer GPUs have other instructions.
//
// In sum values j = 0 ... 31, thread `lane` of warp w of the group has
//
//   sums[4 j], sums[4 j + 1]       row 16 w + lane / 4, columns 8 j + 2 (lane % 4) and the next
//   sums[4 j + 2], sums[4 j + 3]   row 8 further on
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace gpuopt {

// Describes an operand with a swizzle of 128 bytes (PTX ISA, "Matrix descriptor"). Its 16-bit
// values lie in rows of 128 bytes, and eight rows are 1024 bytes, which begin at a multiple of
// 1024.
//
//   A [64][16]        a row of memory is a row of A; `shared` is the first of 16 neighbours in it
//
//   B [8][128], TF32  a row of memory is a column of B; `shared` is the first of 8 words in it
//
//   B [16][256]       a row of memory is 64 columns of a row of B, and the next 64 columns begin
//                     `group_bytes` further on; `shared` is the first of 16 rows
__device__ __forceinline__ uint64_t describe_operand(const void* shared, uint32_t group_bytes = 0) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | uint64_t{group_bytes >> 4} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// Before the first product, and after other instructions have written sums.
__device__ __forceinline__ void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Closes a group of products.
__device__ __forceinline__ void end_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits for all groups of products except the last kLeft. The sums of others must not be used.
template <int kLeft, int kSums>
__device__ __forceinline__ void wait_for_products(float (&sums)[kSums]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  // Uses of the sums stay behind the wait.
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
#endif
}

#define GPUOPT_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define GPUOPT_SUMS_16(i) \
  GPUOPT_SUMS_4(i), GPUOPT_SUMS_4(i + 4), GPUOPT_SUMS_4(i + 8), GPUOPT_SUMS_4(i + 12)
#define GPUOPT_SUMS_64(i) \
  GPUOPT_SUMS_16(i), GPUOPT_SUMS_16(i + 16), GPUOPT_SUMS_16(i + 32), GPUOPT_SUMS_16(i + 48)
#define GPUOPT_PRODUCT(types)                                                                      \
  asm volatile(                                                                                    \
      "{\n"                                                                                        \
      ".reg .pred adds;\n"                                                                         \
      "setp.ne.b32 adds, %130, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." types                                         \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
      "%111, "                                                                                     \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
      "%127"                                                                                       \
      "}, %128, %129, adds, 1, 1, 0, 1;\n"                                                         \
      "}"                                                                                          \
      : GPUOPT_SUMS_64(0), GPUOPT_SUMS_64(64)                                                      \
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(adds)))

// sums = A B, or += A B if `adds`: m64n256k16, with the columns of B as neighbours. T is __half or
// bf16.
template <typename T>
__device__ __forceinline__ void multiply_operands(float (&sums)[128], uint64_t a, uint64_t b,
                                                  bool adds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (std::is_same_v<T, __half>) {
    GPUOPT_PRODUCT("f16.f16");
  } else {
    GPUOPT_PRODUCT("bf16.bf16");
  }
#endif
}

// The same for TF32 with A in registers (the fragment of mma.cuh, 16 rows for each warp):
// m64n128k8. The values of a column of B are neighbours. The words of A must not change before the
// products have ended.
__device__ __forceinline__ void multiply_tf32(float (&sums)[64], const uint32_t (&a)[4], uint64_t b,
                                              bool adds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, adds, 1, 1;\n"
      "}"
      : GPUOPT_SUMS_64(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(adds)));
#endif
}

#undef GPUOPT_SUMS_4
#undef GPUOPT_SUMS_16
#undef GPUOPT_SUMS_64
#undef GPUOPT_PRODUCT

// Changes the registers of each thread of the group, a multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace gpuopt
