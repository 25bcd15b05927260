// Cumulative sums of integers. A file of its own compiles in parallel with the others.
#include "scan/paths/scan_sum.cuh"

namespace gpuopt::scan {

cudaError_t sum_integers(const SumCall& call) {
  if (call.plan.args.out_dtype != DType::kInt64) return call.as<AnyType, int64_t>();
  switch (call.plan.args.in_dtype) {
    case DType::kBool:
      return call.as<Bool, int64_t>();
    case DType::kUInt8:
      return call.as<uint8_t, int64_t>();
    case DType::kInt32:
      return call.as<int32_t, int64_t>();
    case DType::kInt64:
      return call.as<int64_t, int64_t>();
    default:
      return call.as<AnyType, int64_t>();
  }
}

}  // namespace gpuopt::scan
