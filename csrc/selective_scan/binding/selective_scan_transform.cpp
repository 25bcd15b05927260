// Selective scans under torch.vmap and functionalization. They need no rule for autocast, because
// they accept mixed dtypes.
#include "binding/vmap.h"
#include "binding/writing.h"
#include "selective_scan/binding/selective_scan_reference.h"

namespace gpuopt::selective {
namespace {

// Weights have at most two dimensions. The other arguments have a batch.
bool is_weight(const VmapLevel::Operand& operand) { return operand.logical_dim() <= 2; }

// Examples that share the weights are folded into the batch.
Outputs scan_vmap(const SelectiveScan& op) {
  check_scan(op);
  const c10::SymInt batch = op.u.sym_size(0);  // of an example
  {
    const VmapLevel level;
    const auto examples = level.examples_of(op);
    if (!examples.has_value()) return level.pass_on(op);
    bool shares_weights = true;
    for_each_tensor(op, [&](const Tensor& tensor) {
      const auto operand = level.unwrap(tensor);
      if (operand.batch_dim.has_value() && is_weight(operand)) shares_weights = false;
    });
    if (shares_weights) {
      auto [out, last] = call_mapped(op, [&](const Tensor& tensor) {
        const auto operand = level.unwrap(tensor);
        return is_weight(operand) ? operand.value : operand.in_front(*examples).flatten(0, 1);
      });
      const std::array<c10::SymInt, 2> sizes{*examples, batch};
      return {level.wrap(out.unflatten_symint(0, sizes), 0),
              level.wrap(last.unflatten_symint(0, sizes), 0)};
    }
  }
  return scan_by_aten(op);  // ATen's operators have batching rules
}

// The gradients of the weights differ from example to example, so the examples can't be folded.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<SelectiveScan, scan_vmap>(m);
  impl<SelectiveScanBackward, backward_checked>(m);
  impl<SelectiveScanUpdate, update_checked>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchDynamicLayerFrontMode, m) {
  impl_transformed<SelectiveScanUpdate, update_checked>(m);
}

}  // namespace
}  // namespace gpuopt::selective
