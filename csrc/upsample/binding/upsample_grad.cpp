// Derivatives of upsampling in reverse and forward mode. The forward is linear and the backward is
// its adjoint. Each is the derivative of the other, so higher derivatives follow.
#include <vector>

#include "binding/grad_node.h"
#include "upsample/binding/upsample_check.h"

namespace gpuopt::upsample {
namespace {

using namespace autograd_names;

// The node of a forward or backward call, which calls the other one. No tensor is saved.
template <typename Op>
struct AdjointNode : GradNode {
  explicit AdjointNode(const Op& op)
      : GradNode(op.from),
        output_size_(op.output_size.vec()),
        scales_h_(op.scales_h),
        scales_w_(op.scales_w) {
    if constexpr (!kIsBackward<Op>) input_size_ = op.from.sym_sizes().vec();
  }

  std::string name() const override {
    std::string name = Op::kExact ? "GpuoptUpsampleNearestExact2D" : "GpuoptUpsampleNearest2D";
    return name + (kIsBackward<Op> ? "BackwardBackward" : "Backward");
  }

  variable_list gradients(const Tensor& grad) override {
    if constexpr (kIsBackward<Op>) {
      return {call(Upsample2d<Op::kExact>{grad, output_size_, scales_h_, scales_w_})};
    } else {
      return {call(
          Upsample2dBackward<Op::kExact>{grad, output_size_, input_size_, scales_h_, scales_w_})};
    }
  }

 private:
  std::vector<c10::SymInt> output_size_, input_size_;
  std::optional<double> scales_h_, scales_w_;
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  Ops::for_each([&]<typename Op>() { impl_autograd<Op, AdjointNode<Op>>(m); });
}

}  // namespace
}  // namespace gpuopt::upsample
