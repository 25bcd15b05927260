// What a batching rule needs: operands stripped of one vmap level, and results given it back.
#pragma once

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>  // needs binding/compat on the include path
#include <ATen/functorch/PlumbingHelper.h>

#include <optional>

namespace gpuopt {

// The innermost vmap level, whose rule is being called. While it lives, calls reach the level
// below.
class VmapLevel {
 public:
  VmapLevel() {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    // As functorch's vmap_check_escaped, which torch's libraries don't export.
    TORCH_CHECK(layer.has_value(),
                "gpuopt: a tensor that torch.vmap made must not be used outside of the function "
                "that was given to vmap");
    level_ = layer->layerId();
  }

  at::Tensor wrap(const at::Tensor& value, std::optional<int64_t> batch_dim) const {
    return at::functorch::makeBatched(value, batch_dim, level_);
  }

  struct Operand {
    at::Tensor value;
    std::optional<int64_t> batch_dim;

    // The examples in front. A value that all examples share is repeated, without a copy.
    at::Tensor in_front(const c10::SymInt& examples) const {
      if (batch_dim.has_value()) return value.movedim(*batch_dim, 0);
      auto sizes = value.sym_sizes().vec();
      sizes.insert(sizes.begin(), examples);
      return value.unsqueeze(0).expand_symint(sizes);
    }

    int64_t logical_dim() const { return value.dim() - (batch_dim.has_value() ? 1 : 0); }

    // The batch dimension in front, then ones up to `rank` logical dimensions, so that it
    // broadcasts with any other operand aligned to that rank. Unbatched operands stay as they are.
    at::Tensor aligned(int64_t rank) const {
      if (!batch_dim.has_value()) return value;
      at::Tensor front = value.movedim(*batch_dim, 0);
      for (int64_t d = logical_dim(); d < rank; ++d) front = front.unsqueeze(1);
      return front;
    }
  };

  Operand unwrap(const at::Tensor& tensor) const {
    auto [value, batch_dim] = at::functorch::unwrapTensorAtLevel(tensor, level_);
    return {std::move(value), batch_dim};
  }

 private:
  int64_t level_;
  c10::impl::ExcludeDispatchKeyGuard below_{c10::DispatchKey::FuncTorchBatched};
};

}  // namespace gpuopt
