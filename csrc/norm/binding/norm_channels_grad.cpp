// Derivatives of group and batch norm, as of layer norm (norm_grad.cpp).
#include "binding/grad_node.h"
#include "norm/binding/norm_channels_formula.h"

namespace gpuopt::norm {
namespace {

using namespace autograd_names;

template <typename Rows, typename Gradients>
struct ChannelNormNode : GradNode {
  // The number of groups, or whether the statistics are of the input.
  using Kind = std::conditional_t<Rows::kIsBatch, bool, c10::SymInt>;

  explicit ChannelNormNode(const Rows& op)
      : GradNode(op.input, op.weight, op.bias),
        eps_(op.eps),
        bias_type_(is_given(op.bias) ? op.bias->scalar_type() : at::kFloat),
        input_(this, op.input) {
    if constexpr (Rows::kIsBatch) {
      kind_ = !has_given_statistics(op);
    } else {
      kind_ = op.groups;
    }
    const bool has_other_type =
        is_given(op.weight) && op.weight->scalar_type() != op.input.scalar_type();
    activation_ = activation_of(op);
    const bool is_activated = activation_ != Activation::kNone;
    if (next_edge(0).is_valid() || has_other_type || is_activated) weight_.save(op.weight);
    // Without a weight, the bias names the dtype of its gradient.
    if (is_activated || !is_given(op.weight)) bias_.save(op.bias);
  }
  std::string name() const override {
    return Rows::kIsBatch ? "GpuoptBatchNormBackward" : "GpuoptGroupNormBackward";
  }
  void describe_state(NodeState& state) const override {
    state(kind_, eps_, bias_type_, activation_);
  }
  void save_result(const typename Rows::Result& result) {
    mean_.save(std::get<1>(result));
    rstd_.save(std::get<2>(result));
  }

  variable_list gradients(const Tensor& grad) override {
    const std::array<bool, 3> mask{task_should_compute_output(0), task_should_compute_output(1),
                                   task_should_compute_output(2)};
    const auto differentiate = [&](auto... more) {
      return call(Gradients{grad, input_.unpack(), mean_.unpack(), rstd_.unpack(),
                            if_defined(weight_.unpack()), kind_, eps_, mask, more...});
    };
    const auto [input, weight, bias] = [&] {
      if constexpr (Rows::kIsBatch) return differentiate();
      if constexpr (!Rows::kIsBatch)
        return differentiate(if_defined(bias_.unpack()), static_cast<int64_t>(activation_));
    }();
    return {input, weight, mask[2] ? bias.to(bias_type_) : Tensor()};
  }
  static Tensor tangent(const Rows& op, const typename Rows::Result&) {
    return tangent_by_aten(op);
  }

 private:
  Kind kind_ = {};
  Activation activation_ = Activation::kNone;
  double eps_;
  at::ScalarType bias_type_;
  Saved input_, weight_{this}, bias_{this}, mean_{this}, rstd_{this};
};

template <typename Node, typename Op>
typename Op::Result channels_autograd(const Op& op, DispatchKeySet keys) {
  if (requires_grad(op) || has_tangents(op)) check_channel_norm(op);
  return differentiate<Node>(op, keys);
}

template <typename Op>
typename Op::Result channel_gradients_autograd(const Op& op, DispatchKeySet keys) {
  if (!requires_grad(op) && !has_tangents(op)) return below_autograd(op, keys);
  check_channel_norm(op);
  return gradients_by_aten(op);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  using GroupNode = ChannelNormNode<GroupNormGroups, GroupNormGradients>;
  using BatchNode = ChannelNormNode<BatchNormChannels, BatchNormGradients>;
  impl<GroupNormGroups, Autograd<channels_autograd<GroupNode, GroupNormGroups>>>(m);
  impl<BatchNormChannels, Autograd<channels_autograd<BatchNode, BatchNormChannels>>>(m);
  impl<GroupNormGradients, Autograd<channel_gradients_autograd<GroupNormGradients>>>(m);
  impl<BatchNormGradients, Autograd<channel_gradients_autograd<BatchNormGradients>>>(m);
}

}  // namespace
}  // namespace gpuopt::norm
