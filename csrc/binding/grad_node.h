// Autograd nodes across torch versions: nodes were owned by std::shared_ptr, now by
// c10::intrusive_ptr. This file alone knows.
#pragma once

#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace gpuopt {

template <typename Node, typename... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, torch::autograd::Node>) {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  } else {
    return std::shared_ptr<Node>(new Node(std::forward<Args>(args)...),
                                 torch::autograd::deleteNode);
  }
}

template <typename Node>
using NodePtr = decltype(make_node<Node>());

inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }
inline at::Tensor tangent_of(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0); }
inline at::Tensor primal_of(const at::Tensor& tensor) { return tensor._fw_primal(/*level=*/0); }

}  // namespace gpuopt
