// Linear recurrences on the scan engine: chooses the type to instantiate it for.
#include "scan/paths/scan_recurrence.cuh"

namespace gpuopt::scan {

cudaError_t linear_recurrence(const Plan& plan, bool shifted, Workspace& workspace,
                              cudaStream_t stream) {
  const RecurrenceCall call{plan, shifted, workspace, stream};
  switch (plan.args.out_dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return recur_half(call);
    case DType::kFloat32:
      return call.as<float>();
    case DType::kFloat64:
      return call.as<double>();
    case DType::kComplex64:
    case DType::kComplex128:
      return recur_complex(call);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::scan
