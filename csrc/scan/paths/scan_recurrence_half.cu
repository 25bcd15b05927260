// Linear recurrences of fp16 and bf16. A file of its own compiles in parallel with the others.
#include "scan/paths/scan_recurrence.cuh"

namespace gpuopt::scan {

cudaError_t recur_half(const RecurrenceCall& call) {
  return call.plan.args.out_dtype == DType::kFloat16 ? call.as<__half>() : call.as<__nv_bfloat16>();
}

}  // namespace gpuopt::scan
