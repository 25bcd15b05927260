// Autograd nodes across torch versions: nodes were owned by std::shared_ptr, now by
// c10::intrusive_ptr. This file alone knows.
#pragma once

#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace gpuopt {

constexpr bool kIntrusiveNodes =
    std::is_base_of_v<c10::intrusive_ptr_target, torch::autograd::Node>;

template <typename Node>
using NodePtr =
    typename std::conditional_t<kIntrusiveNodes, std::type_identity<c10::intrusive_ptr<Node>>,
                                std::type_identity<std::shared_ptr<Node>>>::type;

template <typename Node, typename... Args>
NodePtr<Node> make_node(Args&&... args) {
  if constexpr (kIntrusiveNodes) {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  } else {
    // deleteNode is torch::autograd's, found through its argument: newer versions have none.
    return NodePtr<Node>(new Node(std::forward<Args>(args)...),
                         [](Node* node) { deleteNode(node); });
  }
}

// The owning pointer of a node from inside it, which unpacking a saved result takes.
template <typename Node>
auto pointer_to(Node* node) {
  if constexpr (kIntrusiveNodes) {
    return NodePtr<Node>::reclaim_copy(node);
  } else {
    return node->getptr();
  }
}

inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }
inline at::Tensor tangent_of(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0); }
inline at::Tensor primal_of(const at::Tensor& tensor) { return tensor._fw_primal(/*level=*/0); }

}  // namespace gpuopt
