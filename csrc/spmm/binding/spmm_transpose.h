// For the bindings of transposes: what a device computes for kept ones.
#pragma once

#include <array>
#include <atomic>

#include "spmm/binding/spmm_check.h"
#include "spmm/spmm_transpose.h"

namespace gpuopt::spmm {

// Rows of entries, and where the value of each entry is.
struct TransposedRows {
  Tensor ptr, index, entry;
};

inline void copy(const Transpose::Result& from, const TransposedRows& to) {
  to.ptr.copy_(std::get<0>(from));
  to.index.copy_(std::get<1>(from));
  to.entry.copy_(std::get<2>(from));
}

// A transpose that is kept, and the fingerprint of the matrix that it was made of.
struct KeptTranspose {
  const Tensor &ptr, &index, &fingerprint;
  const TransposedRows& rows;
  int64_t* changes;  // how often it was made again, in memory of the host that kernels can write
};

struct StructureKernels {
  bool (*is_capturing)();  // whether the current stream records a CUDA graph
  // Refuses other numbers than in the first call with a fingerprint, which is a Fingerprint of
  // spmm_transpose.h as int64 numbers, zero at first. There are at most two sources, of one dtype.
  // On CUDA a device-side assertion fails.
  void (*refuse_writes)(const Tensor& fingerprint, at::TensorList sources);
  // Makes a transpose again if ptr or index hold other numbers than in the last call.
  void (*update)(const KeptTranspose& transpose);
};

// For the CPU and for CUDA. Each is set where the library has its kernels.
inline std::array<std::atomic<const StructureKernels*>, 2> structure_kernels{};

inline const StructureKernels& kernels_for(const Tensor& tensor) {
  const StructureKernels* kernels =
      structure_kernels[tensor.is_cuda()].load(std::memory_order_relaxed);
  TORCH_CHECK_NOT_IMPLEMENTED(kernels != nullptr, "this build of gpuopt has no kernels for ",
                              tensor.device());
  return *kernels;
}

}  // namespace gpuopt::spmm
