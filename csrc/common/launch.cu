#include <map>
#include <mutex>
#include <utility>

#include "common/launch.cuh"

namespace gpuopt {

cudaError_t permit_shared_bytes(const void* kernel, size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, size_t> permitted;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  size_t& most = permitted[{kernel, device}];
  if (bytes <= most) return cudaSuccess;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  return error;
}

}  // namespace gpuopt
