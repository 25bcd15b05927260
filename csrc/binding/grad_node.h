// Helpers to write derivatives with. Older versions of torch own autograd nodes by std::shared_ptr,
// newer ones by c10::intrusive_ptr. Only this file knows the difference.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "binding/op.h"

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
    // Argument-dependent lookup finds torch::autograd::deleteNode. Newer versions have none.
    return NodePtr<Node>(new Node(std::forward<Args>(args)...),
                         [](Node* node) { deleteNode(node); });
  }
}

// The owning pointer of a node, from inside the node. Unpacking a saved result needs it.
template <typename Node>
auto pointer_to(Node* node) {
  if constexpr (kIntrusiveNodes) {
    return NodePtr<Node>::reclaim_copy(node);
  } else {
    return node->getptr();
  }
}

// The node of a product of two factors. It saves each factor if the other one needs a gradient.
// Edges 0 and 1 are the edges of the factors.
class ProductNode : public torch::autograd::Node {
 public:
  void save_factors(const at::Tensor& first, const at::Tensor& second) {
    if (next_edge(1).is_valid()) first_ = {first, /*is_output=*/false};
    if (next_edge(0).is_valid()) second_ = {second, /*is_output=*/false};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    first_.reset_data();
    second_.reset_data();
  }

 protected:
  torch::autograd::SavedVariable first_, second_;
};

// Calls the operator below autograd, from the operator's Autograd kernel.
template <typename Result, typename... Params, typename... Args>
Result below_autograd(const c10::TypedOperatorHandle<Result(Params...)>& op,
                      c10::DispatchKeySet keys, Args&&... args) {
  at::AutoDispatchBelowADInplaceOrView guard;
  return op.redispatch(keys & c10::after_autograd_keyset, std::forward<Args>(args)...);
}

template <typename Op>
typename Form<Op>::Result below_autograd(const Op& op, c10::DispatchKeySet keys) {
  at::AutoDispatchBelowADInplaceOrView guard;
  return redispatch(op, keys & c10::after_autograd_keyset);
}

// An operator that writes to an argument goes on to the kernel at ADInplaceOrView, which counts the
// write.
template <typename Op>
typename Form<Op>::Result write_below_autograd(const Op& op, c10::DispatchKeySet keys) {
  at::AutoDispatchBelowAutograd guard;
  return redispatch(op, keys & c10::after_autograd_keyset);
}
template <typename Op>
at::Tensor& below_autograd(const Inplace<Op>& call, c10::DispatchKeySet keys) {
  return write_below_autograd(call, keys);
}

inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }
inline at::Tensor tangent_of(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0); }
inline at::Tensor primal_of(const at::Tensor& tensor) { return tensor._fw_primal(/*level=*/0); }
inline void set_tangent(const at::Tensor& result, const at::Tensor& tangent) {
  result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
}
// The new tangent of a tensor that was written. A tangent that it has is overwritten, because views
// of the tensor may share it.
inline void set_inplace_tangent(const at::Tensor& written, const at::Tensor& tangent) {
  const at::Tensor own = tangent_of(written);
  written._set_fw_grad(own.defined() ? own.copy_(tangent) : tangent, /*level=*/0,
                       /*is_inplace_op=*/true);
}

// Whether an argument requires a gradient, or has a tangent.
template <typename Op>
bool requires_grad(const Op& op) {
  bool any = false;
  for_each_tensor(op, [&](const at::Tensor& tensor) {
    any = any || torch::autograd::compute_requires_grad(tensor);
  });
  return any;
}
template <typename Op>
bool has_tangents(const Op& op) {
  bool any = false;
  for_each_tensor(op, [&](const at::Tensor& tensor) { any = any || has_tangent(tensor); });
  return any;
}

// The Autograd kernel of an operator that is linear in its first argument, the only tensor. Its
// node is made of the call.
template <typename Node, typename Op>
at::Tensor linear_autograd(const Op& op, c10::DispatchKeySet keys) {
  const at::Tensor& self = std::get<0>(Form<Op>::args(op));
  NodePtr<Node> node;
  if (torch::autograd::compute_requires_grad(self)) {
    node = make_node<Node>(op);
    node->set_next_edges(torch::autograd::collect_next_edges(self));
  }
  at::Tensor result = below_autograd(op, keys);
  if (node) torch::autograd::set_history(result, node);
  if (has_tangent(self)) set_tangent(result, call_mapped(op, tangent_of));
  return result;
}

// The names that most derivatives use.
namespace autograd_names {
using at::Tensor;
using c10::DispatchKeySet;
using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
}  // namespace autograd_names

}  // namespace gpuopt
