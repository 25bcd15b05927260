// Cumulative sums on the scan engine: chooses the types to instantiate it for.
#include "scan/paths/scan_sum.cuh"

namespace gpuopt::scan {

cudaError_t cumsum(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  const SumCall call{plan, workspace, stream};
  const DType in = plan.args.in_dtype;
  const bool same = in == plan.args.out_dtype;
  switch (plan.args.out_dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:  // sums in int64, truncated, equal sums in a narrower integer
      return sum_integers(call);
    case DType::kFloat16:
      return same ? call.as<__half, __half>() : call.as<AnyType, __half>();
    case DType::kBFloat16:
      return same ? call.as<__nv_bfloat16, __nv_bfloat16>() : call.as<AnyType, __nv_bfloat16>();
    case DType::kFloat32:
      if (in == DType::kFloat16) return call.as<__half, float>();
      if (in == DType::kBFloat16) return call.as<__nv_bfloat16, float>();
      return same ? call.as<float, float>() : call.as<AnyType, float>();
    case DType::kFloat64:
      return same ? call.as<double, double>() : call.as<AnyType, double>();
    case DType::kComplex64:
      return same ? call.as<Complex<float>, Complex<float>>() : call.as<AnyType, Complex<float>>();
    case DType::kComplex128:
      return call.as<AnyType, Complex<double>>();
    case DType::kBool:
    case DType::kComplex32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::scan
