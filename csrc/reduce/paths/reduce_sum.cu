// Sums and means on the reduction engine: chooses the types to instantiate it for.
#include "reduce/paths/reduce_sum.cuh"

namespace gpuopt::reduce {

cudaError_t sum(const Problem& problem, double divisor, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  const SumCall call{problem, divisor, device, workspace, stream};
  const DType in = problem.in_dtype;
  const bool same = in == problem.dtype;
  switch (problem.dtype) {
    case DType::kBool:
      return call.as<AnyType, Bool>();
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:  // sums in int64, truncated, equal sums in a narrower integer
      return sum_integers(call);
    case DType::kFloat16:
      return same ? call.as<__half, float>() : call.as<AnyType, __half>();
    case DType::kBFloat16:
      return same ? call.as<__nv_bfloat16, float>() : call.as<AnyType, __nv_bfloat16>();
    case DType::kFloat32:
      if (in == DType::kBool) return call.as<Bool, float>();
      if (in == DType::kUInt8) return call.as<uint8_t, float>();
      if (in == DType::kFloat16) return call.as<__half, float>();
      if (in == DType::kBFloat16) return call.as<__nv_bfloat16, float>();
      return same ? call.as<float, float>() : call.as<AnyType, float>();
    case DType::kFloat64:
      if (in == DType::kFloat32) return call.as<float, double>();
      return same ? call.as<double, double>() : call.as<AnyType, double>();
    case DType::kComplex32:
      return call.as<AnyType, Complex<__half>>();
    case DType::kComplex64:
      return same ? call.as<Complex<float>, Complex<float>>() : call.as<AnyType, Complex<float>>();
    case DType::kComplex128:
      return call.as<AnyType, Complex<double>>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::reduce
