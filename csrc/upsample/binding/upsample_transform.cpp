// Upsampling under torch.vmap and autocast.
#include <ATen/autocast_mode.h>

#include <array>

#include "binding/vmap.h"
#include "upsample/binding/upsample_check.h"

namespace gpuopt::upsample {
namespace {

using at::Tensor;
using c10::SymInt;

// ---------------------------------------------------------------- vmap

// Calls the operator with the examples of vmap as part of the batch. Each example is (N, C, H, W).
// N may be 0, so it is passed on instead of derived from the result.
template <typename Op>
Tensor upsample_vmap(const Op& op) {
  const SymSizes sizes = check<SymInt>(op);
  const auto call_with = [&](const Tensor& from, const SymInt& batch) {
    if constexpr (kIsBackward<Op>) {
      const std::array<SymInt, 4> shape{batch, sizes.channels, sizes.in_height, sizes.in_width};
      return call(Op{from, op.output_size, shape, op.scales_h, op.scales_w});
    } else {
      return call(Op{from, op.output_size, op.scales_h, op.scales_w});
    }
  };
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(op.from);
  if (!operand.batch_dim.has_value()) {  // only another level maps over it
    return level.wrap(call_with(operand.value, sizes.batch), std::nullopt);
  }
  const Tensor front = operand.aligned(4);
  const SymInt examples = front.sym_size(0);
  const Tensor result = call_with(front.flatten(0, 1), examples * sizes.batch);
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{examples, sizes.batch}), 0);
}

template <typename... Ops>
void impl_vmap(torch::Library& m) {
  (impl<Ops, upsample_vmap<Ops>>(m), ...);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap<UpsampleNearest2d, UpsampleNearest2dBackward>(m);
  impl_vmap<UpsampleNearestExact2d, UpsampleNearestExact2dBackward>(m);
}

// ---------------------------------------------------------------- autocast

// As in ATen, the forward runs in float32 on CUDA. The backward and CPU tensors have no autocast
// policy.
template <typename Op>
Tensor upsample_autocast(const Op& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  return call_mapped(op, [](const Tensor& from) {
    return at::autocast::cached_cast(at::kFloat, from, c10::DeviceType::CUDA);
  });
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl<UpsampleNearest2d, upsample_autocast<UpsampleNearest2d>>(m);
  impl<UpsampleNearestExact2d, upsample_autocast<UpsampleNearestExact2d>>(m);
}

}  // namespace
}  // namespace gpuopt::upsample
