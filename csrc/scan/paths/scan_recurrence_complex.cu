// Linear recurrences of complex numbers. A file of its own compiles in parallel with the others.
#include "scan/paths/scan_recurrence.cuh"

namespace gpuopt::scan {

cudaError_t recur_complex(const RecurrenceCall& call) {
  return call.plan.args.out_dtype == DType::kComplex64 ? call.as<Complex<float>>()
                                                       : call.as<Complex<double>>();
}

}  // namespace gpuopt::scan
