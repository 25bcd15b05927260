// Element-wise operations on strided operands: the contract between bindings and kernels.
// A launcher enqueues on `stream` of the current device. It never synchronises and allocates
// nothing. The number of inputs and the types that have every path are part of a plan's type.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "elementwise/elementwise_paths.h"

namespace gpuopt::elementwise {

// out = a * b, operands (out, a, b)
GPUOPT_EXPORT cudaError_t mul(const Plan<2, Types::kAll>& plan, cudaStream_t stream);
// out = a * other, operands (out, a). fp16 and bf16 values are multiplied in fp32, and `other` is
// not rounded to their type.
GPUOPT_EXPORT cudaError_t mul_scalar(const Plan<1>& plan, const ScalarValue& other,
                                     cudaStream_t stream);
// out = alpha * x + y, operands (out, x, y)
GPUOPT_EXPORT cudaError_t axpy(const Plan<2>& plan, const ScalarValue& alpha, cudaStream_t stream);
// out = a * b + c with one rounding, operands (out, a, b, c)
GPUOPT_EXPORT cudaError_t fma(const Plan<3>& plan, cudaStream_t stream);
// out = a, operands (out, a) of one dtype, bit for bit. The dtype is an integer or complex128 and
// stands for all dtypes of its size.
GPUOPT_EXPORT cudaError_t copy(const Plan<1, Types::kAll>& plan, cudaStream_t stream);

}  // namespace gpuopt::elementwise
