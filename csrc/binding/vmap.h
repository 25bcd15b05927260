// Batching rules. A rule is a function of a call, the innermost level of vmap and its examples:
//
//   Tensor sin_vmap(const Sin& op, const VmapLevel& level, const SymInt& examples) {
//     return level.wrap(call(Sin{level.unwrap(op.self).in_front(examples)}), 0);
//   }
//
//   TORCH_LIBRARY_FRAGMENT(gpuopt, m) { impl<Sin, Vmap<sin_vmap>>(m); }
//
// A call whose tensors only another level maps over is passed on to that level.
#pragma once

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>  // needs binding/compat on the include path
#include <ATen/functorch/PlumbingHelper.h>

#include <optional>
#include <tuple>

#include "binding/op.h"

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

  // The number of examples, or nothing if this level maps over none of the tensors.
  template <typename Op>
  std::optional<c10::SymInt> examples_of(const Op& op) const {
    std::optional<c10::SymInt> examples;
    for_each_tensor(op, [&](const at::Tensor& tensor) {
      const Operand operand = unwrap(tensor);
      if (operand.batch_dim.has_value()) examples = operand.value.sym_size(*operand.batch_dim);
    });
    return examples;
  }

  // The call at the level below.
  template <typename Op>
  typename Form<Op>::Result pass_on(const Op& op) const {
    return wrap_all(call_mapped(op, [&](const at::Tensor& x) { return unwrap(x).value; }));
  }

 private:
  at::Tensor wrap_all(const at::Tensor& result) const { return wrap(result, std::nullopt); }
  template <typename... Tensors>
  std::tuple<Tensors...> wrap_all(const std::tuple<Tensors...>& results) const {
    return std::apply(
        [&](const auto&... each) { return std::tuple<Tensors...>(wrap_all(each)...); }, results);
  }

  int64_t level_;
  c10::impl::ExcludeDispatchKeyGuard below_{c10::DispatchKey::FuncTorchBatched};
};

namespace detail {

template <typename Op, auto rule>
typename Form<Op>::Result batched(const Op& op) {
  const VmapLevel level;
  const std::optional<c10::SymInt> examples = level.examples_of(op);
  return examples.has_value() ? rule(op, level, *examples) : level.pass_on(op);
}

}  // namespace detail

// FuncTorchBatched: the rule of an operator that writes to no argument.
template <auto rule>
struct Vmap {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, Batched<detail::batched<Op, rule>>>(m);
  }
};

// ---------------------------------------------------------------- operators with an index

// Returns an operand with its batch dimension at `position`. An operand without dimensions gets one
// that can be indexed. An operand that all examples share is expanded, without a copy.
inline at::Tensor batched_at(const VmapLevel::Operand& operand, int64_t position,
                             const c10::SymInt& examples) {
  at::Tensor value = operand.value;
  if (operand.logical_dim() == 0) value = value.unsqueeze(-1);
  if (operand.batch_dim.has_value()) return value.movedim(*operand.batch_dim, position);
  value = value.unsqueeze(position);
  auto sizes = value.sym_sizes().vec();
  sizes[position] = examples;
  return value.expand_symint(sizes);
}

// Makes an index of (examples, entries) one into the concatenated rows of all examples. Entries out
// of range become -1, so that they do not reach the rows of another example.
inline at::Tensor fold_index(const at::Tensor& index, const c10::SymInt& examples,
                             const c10::SymInt& bins) {
  const at::Tensor long_index = index.to(at::kLong);
  const at::Tensor first =
      at::arange(at::Scalar(examples), long_index.options()).mul(at::Scalar(bins)).unsqueeze(1);
  const at::Tensor in_range = long_index.ge(0).logical_and(long_index.lt(at::Scalar(bins)));
  return at::where(in_range, long_index.add(first), -1).flatten();
}

}  // namespace gpuopt
