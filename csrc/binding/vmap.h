// Helpers for batching rules: they remove one vmap level from operands and add it to results.
#pragma once

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>  // needs binding/compat on the include path
#include <ATen/functorch/PlumbingHelper.h>

#include <optional>

namespace gpuopt {

// The innermost vmap level, whose batching rule is being called. As long as this object lives,
// calls go to the level below.
class VmapLevel {
 public:
  VmapLevel() {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    // The check of functorch's vmap_check_escaped, which torch's libraries don't export.
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

    // The value with its batch dimension first. A value without one is expanded, without a copy.
    at::Tensor in_front(const c10::SymInt& examples) const {
      if (batch_dim.has_value()) return value.movedim(*batch_dim, 0);
      auto sizes = value.sym_sizes().vec();
      sizes.insert(sizes.begin(), examples);
      return value.unsqueeze(0).expand_symint(sizes);
    }

    int64_t logical_dim() const { return value.dim() - (batch_dim.has_value() ? 1 : 0); }

    // The value with its batch dimension first, then dimensions of size 1 up to `rank` logical
    // dimensions. So it broadcasts with any operand aligned to the same rank. A value without a
    // batch dimension stays unchanged.
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
