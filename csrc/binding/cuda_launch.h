// Shared by the CUDA bindings: conversions of torch's dtypes and scalars, properties of the device,
// workspace from torch's allocator, and messages for failed launches.
#pragma once

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "binding/check.h"
#include "binding/dtypes.h"
#include "binding/kernels_library.h"
#include "common/device.h"
#include "common/dtype.h"
#include "common/workspace.h"

namespace gpuopt {

// A dtype with elements of this size, for kernels that only move elements.
inline DType bits_of_size(const char* op, int64_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kUInt8;
    case 2:
      return DType::kInt16;
    case 4:
      return DType::kInt32;
    case 8:
      return DType::kInt64;
    case 16:
      return DType::kComplex128;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CUDA) is not implemented for elements of ", bytes,
                                  " bytes");
  }
}

inline ScalarValue to_scalar_value(const at::Scalar& scalar) {
  ScalarValue value;
  if (scalar.isComplex()) {
    const auto number = scalar.toComplexDouble();
    value.re = number.real();
    value.im = number.imag();
  } else if (scalar.isFloatingPoint()) {
    value.re = scalar.toDouble();
  } else if (scalar.type() == at::kUInt64) {
    // Python's integers from 2^63 on. As an int64 they wrap, as in ATen.
    value.integer = static_cast<int64_t>(scalar.toUInt64());
    value.re = static_cast<double>(scalar.toUInt64());
    return value;
  } else {
    value.integer = scalar.isBoolean() ? scalar.toBool() : scalar.toLong();
    value.re = static_cast<double>(value.integer);
  }
  return value;
}

// The properties of the current device. They are read once for each GPU, because every call plans.
inline const Device& current_device() {
  static const std::vector<Device> devices = [] {
    std::vector<Device> found;
    for (int device = 0; device < c10::cuda::device_count(); ++device) {
      const auto attribute = [&](cudaDeviceAttr name) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
        return value;
      };
      found.push_back({attribute(cudaDevAttrMultiProcessorCount),
                       attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                       attribute(cudaDevAttrClusterLaunch) != 0});
    }
    return found;
  }();
  return devices.at(c10::cuda::current_device());
}

inline int sm_count() { return current_device().sms; }

// Refuses operands whose storage was freed, as sharded training frees parameters: a kernel that
// read them would lose the CUDA context.
inline void check_memory(const char* op, std::initializer_list<NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(!tensor.defined() || tensor.numel() == 0 || tensor.storage().data() != nullptr, op,
                ": ", name, " must have memory: expected allocated storage, got ",
                tensor.storage().nbytes(), " bytes (it was freed)");
  }
}

// Workspace from torch's allocator, on the current device. Freed blocks are reused in stream order;
// inside a CUDA graph they belong to the graph. (at::empty would fill them under
// torch.use_deterministic_algorithms.)
class TensorWorkspace final : public Workspace {
 public:
  void* allocate(size_t bytes) override {
    blocks_.push_back(c10::cuda::CUDACachingAllocator::get()->allocate(bytes));
    return blocks_.back().get();
  }
  void release() override { blocks_.clear(); }

 private:
  c10::SmallVector<c10::DataPtr, 1> blocks_;
};

// Throws if a launch failed. A binary without code for this GPU has another message, because
// it is the one failure that a user can fix.
inline void check_launch(const char* op, cudaError_t error) {
  if (error == cudaSuccess) return;
  clear_launch_error();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    cudaDeviceProp gpu;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&gpu, c10::cuda::current_device()));
    TORCH_CHECK(false, op, ": this build of gpuopt holds kernels for compute capability ",
                compiled_architectures(), ", none of which runs on ", gpu.name, " (", gpu.major,
                ".", gpu.minor, "); build it from its source with TORCH_CUDA_ARCH_LIST=", gpu.major,
                ".", gpu.minor);
  }
  C10_CUDA_CHECK(error);
}

}  // namespace gpuopt
