// What operators that write to an argument have in common: the forms Out<Op> and Inplace<Op>, and
// operators that return another tensor, such as the step of a recurrence that updates its state.
//
// `checked` is a function of an Out<Op> or Inplace<Op>. It checks the call and returns the operator
// whose result is written, which may have another dtype than the call.
#pragma once

#include <ATen/native/Resize.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <vector>

#include "binding/functionalize.h"
#include "binding/grad_node.h"
#include "binding/op.h"

namespace gpuopt {

namespace detail {

// The only argument that is not const.
template <typename Op>
at::Tensor& written_by(const Op& call) {
  return std::get<at::Tensor&>(Form<Op>::args(call));
}

template <typename Op>
at::Tensor& without_derivatives(const Out<Op>& call, c10::DispatchKeySet keys) {
  const char* op = name_of<Op>();
  if (requires_grad(call)) torch::autograd::throw_error_out_requires_grad(op);
  TORCH_CHECK_NOT_IMPLEMENTED(!has_tangents(call), op,
                              ": out= does not support forward-mode differentiation: expected "
                              "tensors without tangents");
  return write_below_autograd(call, keys);
}

template <typename Op>
typename Form<Op>::Result counted(const Op& call, c10::DispatchKeySet keys) {
  at::Tensor& written = written_by(call);
  // ATen refuses an inference tensor only after it has written to it.
  TORCH_CHECK(!written.is_inference() || c10::InferenceMode::is_enabled(), name_of<Op>(),
              ": Inplace update to inference tensor outside InferenceMode is not allowed: "
              "expected a normal tensor (clone() one) to write to, got an inference tensor");
  typename Form<Op>::Result result = [&]() -> typename Form<Op>::Result {
    at::AutoDispatchBelowADInplaceOrView guard;
    return redispatch(call, keys & c10::after_ADInplaceOrView_keyset);
  }();
  torch::autograd::increment_version(written);
  return result;
}

template <typename Op>
typename Form<Op>::Result resolved(const Op& call) {
  struct Resolve {
    at::Tensor operator()(const at::Tensor& tensor) const {
      return at::resolve_neg(at::resolve_conj(tensor));
    }
    at::Tensor& operator()(at::Tensor&) const { return values; }
    at::Tensor& values;
  };
  at::Tensor& written = written_by(call);
  at::Tensor values = at::resolve_neg(at::resolve_conj(written));
  typename Form<Op>::Result result = call_mapped(call, Resolve{values});
  if (!values.is_same(written)) written.copy_(values);
  return result;
}

template <typename Op, auto composed>
typename Form<Op>::Result transformed(const Op& call, c10::DispatchKeySet keys) {
  if (is_functionalizing()) return composed(call);
  return std::apply(
      [&](auto&&... args) {
        return call_transforms(handle<Op>(), keys, std::forward<decltype(args)>(args)...);
      },
      Form<Op>::args(call));
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

// ADInplaceOrView: counts the write, also in no_grad mode.
struct Counted {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, At<c10::DispatchKey::ADInplaceOrView, detail::counted<Op>>>(m);
  }
};

// All that Out<Op> and Inplace<Op> have in common: Counted, and Functionalize, where the result of
// the functional form becomes the value of the written tensor.
template <auto checked>
struct Writes {
  template <typename Form>
  static void add(torch::Library& m) {
    impl<Form, Counted, At<c10::DispatchKey::Functionalize, detail::functional<Form, checked>>>(m);
  }
};

// Writes for an Out<Op>, and Autograd, because out= forms have no derivatives.
template <auto checked>
struct WritesOut {
  template <typename Form>
  static void add(torch::Library& m) {
    impl<Form, Writes<checked>, Autograd<detail::without_derivatives<decltype(Form::in)>>>(m);
  }
};

// WritesOut, and CPU and Meta, which copy the result of a kernel for an Op.
template <auto checked, auto cpu, auto meta>
struct CopiesToOut {
  template <typename Form>
  static void add(torch::Library& m) {
    using Op = decltype(Form::in);
    impl<Form, WritesOut<checked>, Cpu<detail::copied_to_out<Op, checked, cpu>>,
         Meta<detail::copied_to_out<Op, checked, meta>>>(m);
  }
};

// Conjugate and Negative, for an operator that returns another tensor than the one it writes to.
// PyTorch's fallbacks expect it to write to its first argument and return it.
template <c10::DispatchKey... keys>
struct Resolved {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, At<keys, detail::resolved<Op>>...>(m);
  }
};

// FuncTorchDynamicLayerFrontMode, for an operator that returns another tensor: `composed` is made
// of operators that can be functionalized (see binding/functionalize.h).
template <auto composed>
struct Transformed {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op,
         At<c10::DispatchKey::FuncTorchDynamicLayerFrontMode, detail::transformed<Op, composed>>>(
        m);
  }
};

}  // namespace gpuopt
