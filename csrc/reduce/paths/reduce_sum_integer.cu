// Sums as integers on the reduction engine. A file of its own compiles in parallel with the others.
#include "reduce/paths/reduce_sum.cuh"

namespace gpuopt::reduce {

cudaError_t sum_integers(const SumCall& call) {
  switch (call.problem.in_dtype) {
    case DType::kBool:
      return call.as<Bool, int64_t>();
    case DType::kUInt8:
      return call.as<uint8_t, int64_t>();
    case DType::kInt8:
      return call.as<int8_t, int64_t>();
    case DType::kInt32:
      return call.as<int32_t, int64_t>();
    case DType::kInt64:
      return call.as<int64_t, int64_t>();
    default:
      return call.as<AnyType, int64_t>();
  }
}

}  // namespace gpuopt::reduce
