// The rate of the arithmetic units: chains of multiply-adds from registers, for the roofline of the
// ladder. Wgmma reads operands of shared memory, as the steps do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"

namespace gpuopt::matmul {

enum class Unit { kFma, kTf32, kBf16 };

// Operations of a block for each iteration: 2 for a multiply-add.
constexpr int64_t operations_of(Unit unit) {
  return unit == Unit::kFma    ? int64_t{2} * 1024 * 128
         : unit == Unit::kTf32 ? int64_t{2} * 2 * 4 * (64 * 128 * 8)
                               : int64_t{2} * 2 * 4 * (64 * 256 * 16);
}

// Runs a block on each SM. `clock` gets the cycles and the nanoseconds that block 0 took. Units
// other than kFma need compute capability 9.0.
GPUOPT_EXPORT cudaError_t run_unit(Unit unit, int iterations, int64_t* clock, float* sink, int sms,
                                   cudaStream_t stream);

}  // namespace gpuopt::matmul
