// gpuopt::reduce_sum and reduce_mean on the reduction engine.
#include "reduce/reduce_launch.cuh"
#include "reduce/reduce_reducers.cuh"

namespace gpuopt::reduce {

namespace {

// What values of a type are summed in: 64 bits for integers, f32 for the half types and f32.
template <typename Mid>
using Accumulator = std::conditional_t<
    (kCategory<Mid> <= Category::kInteger), int64_t,
    std::conditional_t<std::is_same_v<Mid, __half> || std::is_same_v<Mid, __nv_bfloat16>, float,
                       std::conditional_t<std::is_same_v<Mid, Complex<__half>>, Complex<float>,
                                          Mid>>>;

// Whether kernels are compiled for values that are stored as `in` and summed as `dtype`.
bool is_native(DType in, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return false;
    case DType::kFloat32:
      return in == dtype || in == DType::kFloat16 || in == DType::kBFloat16;
    case DType::kFloat64:
      return in == dtype || in == DType::kFloat32;
    default:  // integers wrap alike in all widths
      return in == dtype || (category_of(dtype) == Category::kInteger &&
                             category_of(in) <= Category::kInteger);
  }
}

struct Call {
  const Problem& problem;
  double divisor;
  const Device& device;
  Workspace& workspace;
  cudaStream_t stream;

  template <typename In, typename Mid>
  cudaError_t as() const {
    using V = Accumulator<Mid>;
    return run<In, Mid>(Sum<V>{divisor}, problem, device, workspace, stream);
  }

  cudaError_t integers() const {
    using Mid = int64_t;
    switch (problem.in_dtype) {
      case DType::kBool:
        return as<Bool, Mid>();
      case DType::kUInt8:
        return as<uint8_t, Mid>();
      case DType::kInt8:
        return as<int8_t, Mid>();
      case DType::kInt16:
        return as<int16_t, Mid>();
      case DType::kInt32:
        return as<int32_t, Mid>();
      default:
        return as<int64_t, Mid>();
    }
  }
};

}  // namespace

cudaError_t sum(const Problem& problem, double divisor, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  const Call call{problem, divisor, device, workspace, stream};
  const bool native = is_native(problem.in_dtype, problem.dtype);
  switch (problem.dtype) {
    case DType::kBool:
      return call.as<AnyType, Bool>();
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return native ? call.integers() : call.as<AnyType, int64_t>();
    case DType::kFloat16:
      return native ? call.as<__half, float>() : call.as<AnyType, __half>();
    case DType::kBFloat16:
      return native ? call.as<__nv_bfloat16, float>() : call.as<AnyType, __nv_bfloat16>();
    case DType::kFloat32:
      if (!native) return call.as<AnyType, float>();
      if (problem.in_dtype == DType::kFloat16) return call.as<__half, float>();
      if (problem.in_dtype == DType::kBFloat16) return call.as<__nv_bfloat16, float>();
      return call.as<float, float>();
    case DType::kFloat64:
      if (!native) return call.as<AnyType, double>();
      return problem.in_dtype == DType::kFloat32 ? call.as<float, double>()
                                                 : call.as<double, double>();
    case DType::kComplex32:
      return native ? call.as<Complex<__half>, Complex<float>>()
                    : call.as<AnyType, Complex<__half>>();
    case DType::kComplex64:
      return native ? call.as<Complex<float>, Complex<float>>()
                    : call.as<AnyType, Complex<float>>();
    case DType::kComplex128:
      return native ? call.as<Complex<double>, Complex<double>>()
                    : call.as<AnyType, Complex<double>>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::reduce
