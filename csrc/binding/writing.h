// What operators that write to an argument have in common, for the forms Out<Op> and Inplace<Op>.
// Each function here registers kernels at one dispatch key.
//
// `checked` is a function of an Out<Op> or Inplace<Op>. It checks the call and returns the operator
// whose result is written, which may have another dtype than the call.
#pragma once

#include <ATen/native/Resize.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <type_traits>
#include <vector>

#include "binding/functionalize.h"
#include "binding/grad_node.h"
#include "binding/op.h"

namespace gpuopt {

namespace detail {

template <typename Op>
at::Tensor& written_by(const Out<Op>& call) {
  return call.out;
}
template <typename Op>
at::Tensor& written_by(const Inplace<Op>& call) {
  return call.self;
}

template <typename Op, typename F>
void for_each_tensor(const Op& op, F f) {
  const auto visit = [&](const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, at::Tensor>) {
      f(argument);
    } else if constexpr (std::is_same_v<Argument, std::optional<at::Tensor>>) {
      if (argument.has_value() && argument->defined()) f(*argument);
    }
  };
  std::apply([&](const auto&... arguments) { (visit(arguments), ...); }, Form<Op>::args(op));
}

template <typename Op>
at::Tensor& without_derivatives(const Out<Op>& call, c10::DispatchKeySet keys) {
  const char* op = name_of<Op>();
  for_each_tensor(call, [&](const at::Tensor& tensor) {
    if (torch::autograd::compute_requires_grad(tensor)) {
      torch::autograd::throw_error_out_requires_grad(op);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(tensor), op,
                                ": out= does not support forward-mode differentiation: expected "
                                "tensors without tangents");
  });
  at::AutoDispatchBelowAutograd guard;
  return redispatch(call, keys & c10::after_autograd_keyset);
}

template <typename Op>
at::Tensor& counted(const Op& call, c10::DispatchKeySet keys) {
  at::Tensor& written = written_by(call);
  // ATen refuses an inference tensor only after it has written to it.
  TORCH_CHECK(!written.is_inference() || c10::InferenceMode::is_enabled(), name_of<Op>(),
              ": Inplace update to inference tensor outside InferenceMode is not allowed: "
              "expected a normal tensor (clone() one) to write to, got an inference tensor");
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    redispatch(call, keys & c10::after_ADInplaceOrView_keyset);
  }
  torch::autograd::increment_version(written);
  return written;
}

template <typename Op, auto checked, auto kernel>
at::Tensor& copied_to_out(const Out<Op>& call) {
  const at::Tensor result = kernel(checked(call));
  at::native::resize_output_symint(call.out, result.sym_sizes());
  return call.out.copy_(result);
}

template <typename WritingForm, auto checked>
at::Tensor& functional(const WritingForm& call) {
  const auto op = checked(call);
  std::vector<at::Tensor> inputs;
  for_each_tensor(op, [&](const at::Tensor& tensor) { inputs.push_back(tensor); });
  return functionalize_write(
      name_of<WritingForm>(), written_by(call), inputs,
      [&] { return call_mapped(op, functional_value); }, [&] { gpuopt::call(call); });
}

}  // namespace detail

// Autograd: out= forms have no derivatives.
template <typename... Ops>
void impl_out_without_derivatives(torch::Library& m) {
  (impl<Out<Ops>, detail::without_derivatives<Ops>>(m), ...);
}

// ADInplaceOrView: counts the write, also in no_grad mode.
template <typename... Forms>
void impl_counted(torch::Library& m) {
  (impl<Forms, detail::counted<Forms>>(m), ...);
}

// CPU and Meta: copies the result of `kernel`, a function of an Op, to out.
template <typename Op, auto checked, auto kernel>
void impl_out(torch::Library& m) {
  impl<Out<Op>, detail::copied_to_out<Op, checked, kernel>>(m);
}

// Functionalize: the functional form, whose result becomes the value of the written tensor.
template <typename Op, auto checked>
void impl_out_functional(torch::Library& m) {
  impl<Out<Op>, detail::functional<Out<Op>, checked>>(m);
}
template <typename Op, auto checked>
void impl_inplace_functional(torch::Library& m) {
  impl<Inplace<Op>, detail::functional<Inplace<Op>, checked>>(m);
}

}  // namespace gpuopt
