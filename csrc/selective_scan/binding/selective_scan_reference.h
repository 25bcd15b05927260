// Selective scans in ATen's operators.
#pragma once

#include "selective_scan/binding/selective_scan_check.h"

namespace gpuopt::selective {

// A checked call as a loop over the positions, made of differentiable operators without writes. It
// has derivatives of any order, forward mode and batching rules. The second function is the
// gradient of the first, also made of such operators.
Outputs scan_by_aten(const SelectiveScan& in);
InputGradients gradients_by_aten(const SelectiveScanBackward& call);
Tensor update_by_aten(const UpdateInputs& in);

// Kernels that check the call first.
inline Outputs scan_checked(const SelectiveScan& op) {
  check_scan(op);
  return scan_by_aten(op);
}
inline InputGradients backward_checked(const SelectiveScanBackward& op) {
  check_scan(op.scan());
  return gradients_by_aten(op);
}
inline Tensor update_checked(const SelectiveScanUpdate& op) {
  return update_by_aten(check_update(op));
}

}  // namespace gpuopt::selective
