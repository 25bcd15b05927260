// matmul under torch.vmap and autocast.
#include <ATen/autocast_mode.h>

#include <optional>
#include <utility>

#include "binding/vmap.h"
#include "matmul/binding/matmul_check.h"

namespace gpuopt::matmul {
namespace {

using Operand = VmapLevel::Operand;

// As torch.matmul, in the lower precision.
std::pair<Tensor, Tensor> lowered(const Matmul& op, c10::DeviceType device) {
  const auto dtype = at::autocast::get_lower_precision_fp_from_device_type(device);
  return {at::autocast::cached_cast(dtype, op.self, device),
          at::autocast::cached_cast(dtype, op.other, device)};
}

bool is_autocasting(c10::DeviceType device) {
  return at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
}

// The examples become the first dimension of the batch. vmap's rules run before autocast's, so the
// operands are cast here, before their dtypes are compared.
Tensor matmul_vmap(const Matmul& given) {
  const auto device = given.self.device().type();
  const auto [self, other] =
      is_autocasting(device) ? lowered(given, device) : std::pair(given.self, given.other);
  check({self, other, given.precision});
  const VmapLevel level;
  Operand x = level.unwrap(self), y = level.unwrap(other);
  const auto product = [&](const Tensor& a, const Tensor& b) {
    return call(Matmul{a, b, given.precision});
  };
  if (!x.batch_dim.has_value() && !y.batch_dim.has_value()) {
    return level.wrap(product(x.value, y.value), std::nullopt);
  }
  // Vectors become matrices. A new last dimension does not move batch_dim.
  const bool is_row = x.logical_dim() == 1, is_column = y.logical_dim() == 1;
  if (is_row) x.value = x.value.unsqueeze(-1);
  if (is_column) y.value = y.value.unsqueeze(-1);
  const int64_t rank = std::max(x.logical_dim(), y.logical_dim());
  const Tensor a = x.aligned(rank), b = y.aligned(rank);
  Tensor result = product(is_row ? a.mT() : a, b);
  if (is_column) result = result.squeeze(-1);
  if (is_row) result = result.squeeze(is_column ? -1 : -2);
  return level.wrap(result, 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { impl<Matmul, matmul_vmap>(m); }

template <c10::DeviceType device>
Tensor matmul_autocast(const Matmul& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [self, other] = lowered(op, device);
  return call(Matmul{self, other, op.precision});
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl<Matmul, matmul_autocast<c10::DeviceType::CUDA>>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  impl<Matmul, matmul_autocast<c10::DeviceType::CPU>>(m);
}

}  // namespace
}  // namespace gpuopt::matmul
