// Derivatives. The derivative of an operator is a node, made of the call:
//
//   struct SinBackward : GradNode {
//     explicit SinBackward(const Sin& op) : GradNode(op.self), self_(this, op.self) {}
//     std::string name() const override { return "GpuoptSinBackward"; }
//     void describe_state(NodeState&) const override {}  // no members but saved tensors
//     variable_list gradients(const Tensor& grad) override {
//       return {gpuopt::mul(grad, self_.unpack().cos())};
//     }
//     static Tensor tangent(const Sin& op, const Tensor& result) {
//       return gpuopt::mul(tangent_of(op.self), primal_of(op.self).cos());
//     }
//     Saved self_;
//   };
//
//   TORCH_LIBRARY_FRAGMENT(gpuopt, m) { impl<Sin, Grad<SinBackward>>(m); }
//
// Formulas call differentiable operators, so higher derivatives follow. An operator that is linear
// in one tensor needs no tangent(). A node that saves the result has a function save_result().
//
// Older versions of torch own nodes by std::shared_ptr, newer ones by c10::intrusive_ptr. Only this
// file knows the difference.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "binding/node_state.h"
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

// A node that saves tensors. It has the edges of `inputs`, in their order.
class GradNode : public torch::autograd::Node {
 public:
  template <typename... Inputs>
  explicit GradNode(const Inputs&... inputs)
      : Node(torch::autograd::collect_next_edges(inputs...)) {}

  // The gradients of the inputs, from the gradient of the result. A node of several results
  // overrides apply() instead.
  virtual torch::autograd::variable_list gradients(const at::Tensor& /*grad*/) { return {}; }

  // Passes `state` all members that gradients() reads, except saved tensors: state(dim_, sizes_).
  virtual void describe_state(NodeState& state) const = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return torch::autograd::variable_list(num_outputs());
    return gradients(grads[0]);
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Saved* saved = saved_; saved != nullptr; saved = saved->next_) saved->tensor_.reset_data();
  }

  // Compiled autograd (torch::dynamo::autograd): nodes of one class with equal states share a
  // graph.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    for (const Saved* saved = saved_; saved != nullptr; saved = saved->next_) {
      args.collect(saved->tensor_, saved->is_result_);
    }
    NodeState state(args);
    describe_state(state);
  }

  // The graph calls a function of the gradients and of the saved tensors, which stand in for the
  // tensors that this node has saved.
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& grads,
      torch::dynamo::autograd::SwapSavedVariables& swap) override {
    std::vector<at::IValue> tensors;
    for (Saved* saved = saved_; saved != nullptr; saved = saved->next_) {
      swap.before(saved->tensor_);
      tensors.emplace_back(saved->unpack());
    }
    auto results = call_in_graph(swap, name(), grads, std::move(tensors), next_edges(),
                                 [owner = std::make_shared<NodePtr<Node>>(pointer_to<Node>(this))](
                                     const torch::autograd::variable_list& inputs,
                                     const std::vector<at::IValue>& in_place_of_saved) {
                                   GradNode& node = static_cast<GradNode&>(**owner);
                                   if (owner->use_count() == 1) node.cut_edges();
                                   return node.apply_to(inputs, in_place_of_saved);
                                 });
    for (Saved* saved = saved_; saved != nullptr; saved = saved->next_) swap.after(saved->tensor_);
    return results;
  }

  // A tensor that the node saves until autograd frees it. An undefined one is saved as such.
  class Saved {
   public:
    explicit Saved(GradNode* node) : node_(node), next_(std::exchange(node->saved_, this)) {}
    template <typename Input>  // a tensor or an optional one
    Saved(GradNode* node, const Input& input) : Saved(node) {
      save(input);
    }
    template <typename Input>
    void save(const Input& input) {
      tensor_ = {input, /*is_output=*/false};
    }
    // For a result of the node's operator.
    void save_result(const at::Tensor& result) {
      tensor_ = {result, /*is_output=*/true};
      is_result_ = true;
    }
    at::Tensor unpack() const {
      return is_result_ ? tensor_.unpack(pointer_to(node_)) : tensor_.unpack();
    }

   private:
    friend class GradNode;
    GradNode* node_;
    Saved* next_;
    torch::autograd::SavedVariable tensor_;
    bool is_result_ = false;
  };

 private:
  // What is behind the edges of a node that has outlived its autograd graph.
  struct Nothing : torch::autograd::Node {
    torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
  };

  // Frees the nodes behind the edges. A graph of compiled autograd that owns this node only asks
  // which edges there are.
  void cut_edges() {
    for (torch::autograd::Edge& edge : next_edges_) {
      if (edge.is_valid()) edge.function = make_node<Nothing>();
    }
  }

  // apply() with other saved tensors. Compiled autograd runs in one thread at a time.
  torch::autograd::variable_list apply_to(const torch::autograd::variable_list& grads,
                                          const std::vector<at::IValue>& tensors) {
    std::vector<torch::autograd::SavedVariable> saved_tensors;
    for (const at::IValue& tensor : tensors) {
      saved_tensors.emplace_back(tensor.isTensor() ? tensor.toTensor() : at::Tensor(), false);
    }
    exchange_saved(saved_tensors);
    const auto put_back = c10::make_scope_exit([&] { exchange_saved(saved_tensors); });
    return apply(torch::autograd::variable_list(grads));
  }

  void exchange_saved(std::vector<torch::autograd::SavedVariable>& others) {
    auto other = others.begin();
    for (Saved* saved = saved_; saved != nullptr; saved = saved->next_) {
      std::swap(saved->tensor_, *other++);
    }
  }

  Saved* saved_ = nullptr;  // a list of all
};

// The node of a product of two factors. It saves each factor if the other one needs a gradient.
// Edges 0 and 1 are the edges of the factors.
class ProductNode : public GradNode {
 public:
  using GradNode::GradNode;

  void describe_state(NodeState&) const override {}
  void save_factors(const at::Tensor& first, const at::Tensor& second) {
    if (next_edge(1).is_valid()) first_.save(first);
    if (next_edge(0).is_valid()) second_.save(second);
  }

 protected:
  Saved first_{this}, second_{this};
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
  const at::Tensor tangent_before = tangent_of(written);
  written._set_fw_grad(tangent_before.defined() ? tangent_before.copy_(tangent) : tangent,
                       /*level=*/0,
                       /*is_inplace_op=*/true);
}

// Whether an argument requires a gradient, or has a tangent.
template <typename Op>
bool requires_grad(const Op& op) {
  if (!at::GradMode::is_enabled()) return false;
  bool any = false;
  for_each_tensor(op, [&](const at::Tensor& tensor) { any = any || tensor.requires_grad(); });
  return any;
}
template <typename Op>
bool has_tangents(const Op& op) {
  bool any = false;
  for_each_tensor(op, [&](const at::Tensor& tensor) { any = any || has_tangent(tensor); });
  return any;
}

// The tangent of the result of an operator that is linear in the only tensor that can have one.
template <typename Op>
at::Tensor linear_tangent(const Op& op) {
  return call_mapped(op, [](const at::Tensor& x) { return has_tangent(x) ? tangent_of(x) : x; });
}

// The tangent of the result of an operator that is linear in each of two tensors: the sum of
// f(first, second) with the tangent of one and the primal of the other. `first` may be optional.
template <typename First, typename F>
at::Tensor tangent_of_product(const First& first, const at::Tensor& second, F f) {
  const std::optional<at::Tensor> factor = first;
  const bool is_given = factor.has_value() && factor->defined();
  at::Tensor sum;
  if (has_tangent(second))
    sum = f(is_given ? primal_of(*factor) : at::Tensor(), tangent_of(second));
  if (!is_given || !has_tangent(*factor)) return sum;
  const at::Tensor other = f(tangent_of(*factor), primal_of(second));
  return sum.defined() ? at::add(sum, other) : other;
}

namespace detail {

inline at::Tensor& first_of(at::Tensor& result) { return result; }
template <typename... More>
at::Tensor& first_of(std::tuple<at::Tensor, More...>& results) {
  return std::get<0>(results);
}

template <typename Node, typename Op, typename... Result>
at::Tensor tangent_by(const Op& op, const Result&... result) {
  if constexpr (requires { Node::tangent(op, result...); }) {
    return Node::tangent(op, result...);
  } else if constexpr (requires { op.in; }) {
    return linear_tangent(op.in);
  } else {
    return linear_tangent(op);
  }
}

}  // namespace detail

// A node for the operator, if an argument requires a gradient.
template <typename Node, typename Op, typename... More>
NodePtr<Node> node_of(const Op& op, const More&... more) {
  return requires_grad(op) ? make_node<Node>(op, more...) : NodePtr<Node>();
}

// Calls the operator below autograd. Its result, or the first of its results, gets a node and a
// tangent.
template <typename Node, typename Op>
typename Form<Op>::Result differentiate(const Op& op, c10::DispatchKeySet keys) {
  const NodePtr<Node> node = node_of<Node>(op);
  auto result = below_autograd(op, keys);
  at::Tensor& value = detail::first_of(result);
  if (node) torch::autograd::set_history(value, node);
  if (has_tangents(op)) set_tangent(value, detail::tangent_by<Node>(op, result));
  if constexpr (requires { node->save_result(result); }) {
    if (node) node->save_result(result);  // with its tangent
  }
  return result;
}

// The node saves before the write what it needs.
template <typename Node, typename Op>
at::Tensor& differentiate(const Inplace<Op>& call, c10::DispatchKeySet keys) {
  torch::autograd::check_inplace(call.self, requires_grad(call));
  const NodePtr<Node> node = node_of<Node>(call);
  const at::Tensor tangent = has_tangents(call) ? detail::tangent_by<Node>(call) : at::Tensor();
  below_autograd(call, keys);
  if (node) torch::autograd::rebase_history(call.self, node);
  if (tangent.defined()) set_inplace_tangent(call.self, tangent);
  return call.self;
}

// The key Autograd of an operator or of its in-place form.
template <typename Node>
struct Grad {
  static constexpr auto kernel = [](const auto& op, c10::DispatchKeySet keys) -> decltype(auto) {
    return differentiate<Node>(op, keys);
  };
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, Autograd<kernel>>(m);
  }
};

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
