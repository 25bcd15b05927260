// Sums of integers and bools on the reduction engine, in a file of their own for the time it takes
// to compile.
#include "reduce/reduce_sum.cuh"

namespace gpuopt::reduce {
namespace {

template <typename Mid>
cudaError_t sum_as(const SumCall& call) {
  switch (call.problem.in_dtype) {
    case DType::kBool:
      return call.as<Bool, Mid>();
    case DType::kUInt8:
      return call.as<uint8_t, Mid>();
    case DType::kInt8:
      return call.as<int8_t, Mid>();
    case DType::kInt16:
      return call.as<int16_t, Mid>();
    case DType::kInt32:
      return call.as<int32_t, Mid>();
    case DType::kInt64:
      return call.as<int64_t, Mid>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t sum_integers(const SumCall& call) {
  return call.problem.dtype == DType::kFloat32 ? sum_as<float>(call) : sum_as<int64_t>(call);
}

}  // namespace gpuopt::reduce
