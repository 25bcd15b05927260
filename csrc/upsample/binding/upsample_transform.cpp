// Upsampling under torch.vmap and autocast.
#include <array>

#include "binding/autocast.h"
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
Tensor upsample_vmap(const Op& op, const VmapLevel& level, const SymInt& examples) {
  const SymSizes sizes = check<SymInt>(op);
  const Tensor from = level.unwrap(op.from).aligned(4).flatten(0, 1);
  const SymInt batch = examples * sizes.batch;
  Tensor result;
  if constexpr (kIsBackward<Op>) {
    const std::array<SymInt, 4> shape{batch, sizes.channels, sizes.in_height, sizes.in_width};
    result = call(Op{from, op.output_size, shape, op.scales_h, op.scales_w});
  } else {
    result = call(Op{from, op.output_size, op.scales_h, op.scales_w});
  }
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{examples, sizes.batch}), 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  Ops::for_each([&]<typename Op>() { impl_vmap<Op, upsample_vmap<Op>>(m); });
}

// ---------------------------------------------------------------- autocast

// As in ATen, the forward runs in float32 on CUDA. The backward and CPU tensors have no autocast
// policy.
constexpr auto float32 = [](const auto&, c10::DeviceType) { return at::kFloat; };

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl_autocast<UpsampleNearest2d, c10::DeviceType::CUDA, float32>(m);
  impl_autocast<UpsampleNearestExact2d, c10::DeviceType::CUDA, float32>(m);
}

}  // namespace
}  // namespace gpuopt::upsample
