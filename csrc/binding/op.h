// An operator is a struct of its arguments, in the order of its schema:
//
//   struct ReduceMax {
//     using Result = Tensor;
//     static constexpr std::string_view kSchema =
//         "reduce_max(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor";
//     const Tensor& self;
//     at::OptionalIntArrayRef dim;
//     bool keepdim;
//   };
//
// A kernel is a function of this struct, and of the dispatch keys if it needs them:
//
//   Tensor max_cuda(const ReduceMax& call);
//   Tensor max_autograd(const ReduceMax& call, c10::DispatchKeySet keys);
//
//   TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
//     register_op<ReduceMax, Cpu<max_cpu>, Meta<max_meta>, Autograd<max_autograd>>(m);
//   }
//   TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { impl<ReduceMax, max_cuda>(m); }
//
// Other keys: Grad (grad_node.h), Vmap (vmap.h), Autocast (autocast.h) and Writes (writing.h).
// call(ReduceMax{x, dim, false}) goes through the dispatcher. Out<Op> is its out= form.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpuopt {

namespace detail {

// The number of arguments of a schema: its commas outside of inner brackets, without a lone "*".
constexpr int arguments_of(std::string_view schema) {
  int depth = 0, count = 1;
  for (size_t i = schema.find('('); i < schema.size(); ++i) {
    const char c = schema[i];
    if (c == '(' || c == '[') ++depth;
    if ((c == ')' || c == ']') && --depth == 0) break;
    if (depth == 1 && (c == ',' || c == '*')) count += c == ',' ? 1 : -1;
  }
  return count;
}

#define GPUOPT_T1(a) decltype(a)
#define GPUOPT_T2(a, ...) decltype(a), GPUOPT_T1(__VA_ARGS__)
#define GPUOPT_T3(a, ...) decltype(a), GPUOPT_T2(__VA_ARGS__)
#define GPUOPT_T4(a, ...) decltype(a), GPUOPT_T3(__VA_ARGS__)
#define GPUOPT_T5(a, ...) decltype(a), GPUOPT_T4(__VA_ARGS__)
#define GPUOPT_T6(a, ...) decltype(a), GPUOPT_T5(__VA_ARGS__)
#define GPUOPT_T7(a, ...) decltype(a), GPUOPT_T6(__VA_ARGS__)
#define GPUOPT_T8(a, ...) decltype(a), GPUOPT_T7(__VA_ARGS__)
#define GPUOPT_T9(a, ...) decltype(a), GPUOPT_T8(__VA_ARGS__)
#define GPUOPT_T10(a, ...) decltype(a), GPUOPT_T9(__VA_ARGS__)
#define GPUOPT_T11(a, ...) decltype(a), GPUOPT_T10(__VA_ARGS__)
#define GPUOPT_MEMBERS(count, ...)                                \
  if constexpr (kCount == count) {                                \
    auto& [__VA_ARGS__] = from;                                   \
    return std::tuple<GPUOPT_T##count(__VA_ARGS__)>(__VA_ARGS__); \
  }

// The members of an operator as a tuple of the types with which they are declared.
template <typename Op>
auto members_of(const Op& op) {
  constexpr int kCount = arguments_of(Op::kSchema);
  static_assert(kCount <= 11, "GPUOPT_MEMBERS needs a line for this number of arguments");
  auto& from = const_cast<Op&>(op);  // because a const struct's members have const types
  GPUOPT_MEMBERS(1, a)
  GPUOPT_MEMBERS(2, a, b)
  GPUOPT_MEMBERS(3, a, b, c)
  GPUOPT_MEMBERS(4, a, b, c, d)
  GPUOPT_MEMBERS(5, a, b, c, d, e)
  GPUOPT_MEMBERS(6, a, b, c, d, e, f)
  GPUOPT_MEMBERS(7, a, b, c, d, e, f, g)
  GPUOPT_MEMBERS(8, a, b, c, d, e, f, g, h)
  GPUOPT_MEMBERS(9, a, b, c, d, e, f, g, h, i)
  GPUOPT_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
  GPUOPT_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
}
#undef GPUOPT_MEMBERS

template <typename Op>
using Members = decltype(members_of(std::declval<const Op&>()));

}  // namespace detail

// ---------------------------------------------------------------- forms that write

// The out= form of an operator that returns one tensor.
template <typename Op>
struct Out {
  Op in;
  at::Tensor& out;
};

// The in-place form of an operator whose first argument is a tensor.
template <typename Op>
struct Inplace {
  Op in;
  at::Tensor& self;  // also the first argument of `in`
};

// ---------------------------------------------------------------- what the dispatcher needs

// How an operator is called: its schema, its arguments as a tuple, and the operator made of them.
template <typename Op>
struct Form {
  using Result = typename Op::Result;
  using Args = detail::Members<Op>;

  static std::string schema() { return std::string(Op::kSchema); }
  static Args args(const Op& op) { return detail::members_of(op); }
  template <typename... T>
  static Op make(T&&... args) {
    return Op{std::forward<T>(args)...};
  }
};

template <typename Op>
struct Form<Out<Op>> {
  using Result = at::Tensor&;
  using In = detail::Members<Op>;
  using Args =
      decltype(std::tuple_cat(std::declval<In>(), std::declval<std::tuple<at::Tensor&>>()));

  // An operator of several overloads names the overload of its out= form kOut.
  static std::string schema() {
    std::string text(Op::kSchema);
    const size_t end = text.rfind(") -> Tensor");
    const bool has_keywords = text.find('*') != std::string::npos;
    text = text.substr(0, end) + (has_keywords ? "" : ", *") + ", Tensor(a!) out) -> Tensor(a!)";
    std::string overload = "out";
    if constexpr (requires { Op::kOut; }) overload = Op::kOut;
    return text.replace(0, text.find('('),
                        text.substr(0, text.find_first_of(".(")) + "." + overload);
  }
  static Args args(const Out<Op>& op) {
    return std::tuple_cat(detail::members_of(op.in), std::tuple<at::Tensor&>(op.out));
  }
  template <typename... T>
  static Out<Op> make(T&&... args) {
    std::tuple<T&&...> all(std::forward<T>(args)...);
    return [&]<size_t... I>(std::index_sequence<I...>) -> Out<Op> {
      return {Op{std::get<I>(std::move(all))...}, std::get<sizeof...(T) - 1>(all)};
    }(std::make_index_sequence<sizeof...(T) - 1>());
  }
};

template <typename Op>
struct Form<Inplace<Op>> {
  using Result = at::Tensor&;
  template <typename In>
  struct Written;
  template <typename Self, typename... Rest>
  struct Written<std::tuple<Self, Rest...>> {
    using Args = std::tuple<at::Tensor&, Rest...>;
    static Args args(std::tuple<Self, Rest...> in, at::Tensor& self) {
      return std::apply(
          [&](auto&&, auto&&... rest) { return Args(self, std::forward<Rest>(rest)...); },
          std::move(in));
    }
  };
  using Args = typename Written<detail::Members<Op>>::Args;

  // "mul.Tensor(Tensor self, ...) -> Tensor" becomes "mul_.Tensor(Tensor(a!) self, ...) ->
  // Tensor(a!)".
  static std::string schema() {
    std::string text(Op::kSchema);
    text.replace(text.find("(Tensor "), 8, "(Tensor(a!) ");
    return text.insert(text.find_first_of(".("), "_") + "(a!)";
  }
  static Args args(const Inplace<Op>& op) {
    return Written<detail::Members<Op>>::args(detail::members_of(op.in), op.self);
  }
  template <typename... T>
  static Inplace<Op> make(at::Tensor& self, T&&... rest) {
    return {Op{self, std::forward<T>(rest)...}, self};
  }
};

namespace detail {

// "reduce_max" and "out" of "reduce_max.out(...) -> ...".
template <typename Op>
const std::pair<std::string, std::string>& name_and_overload() {
  static const auto names = [] {
    const std::string schema = Form<Op>::schema(), full = schema.substr(0, schema.find('('));
    const size_t dot = std::min(full.find('.'), full.size());
    return std::pair(full.substr(0, dot), full.substr(std::min(dot + 1, full.size())));
  }();
  return names;
}

template <typename Op>
std::string full_name() {
  const auto& [name, overload] = name_and_overload<Op>();
  return overload.empty() ? name : name + "." + overload;
}

template <typename Op, auto kernel, typename Args = typename Form<Op>::Args>
struct Kernel;

template <typename Op, auto kernel, typename... Args>
struct Kernel<Op, kernel, std::tuple<Args...>> {
  static typename Form<Op>::Result run(c10::DispatchKeySet keys, Args... args) {
    if constexpr (std::is_invocable_v<decltype(kernel), const Op&, c10::DispatchKeySet>) {
      return kernel(Form<Op>::make(std::forward<Args>(args)...), keys);
    } else {
      return kernel(Form<Op>::make(std::forward<Args>(args)...));
    }
  }
};

template <typename Op, typename Args = typename Form<Op>::Args>
struct Handle;

template <typename Op, typename... Args>
struct Handle<Op, std::tuple<Args...>> {
  static const auto& get() {
    static const auto handle = [] {
      const auto& [name, overload] = name_and_overload<Op>();
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow(("gpuopt::" + name).c_str(), overload.c_str())
          .template typed<typename Form<Op>::Result(Args...)>();
    }();
    return handle;
  }
};

}  // namespace detail

// "gpuopt::reduce_max", the name in messages.
template <typename Op>
const char* name_of() {
  static const std::string name = "gpuopt::" + detail::name_and_overload<Op>().first;
  return name.c_str();
}

// The operator in the dispatcher, which is looked up once.
template <typename Op>
const auto& handle() {
  return detail::Handle<Op>::get();
}

// ---------------------------------------------------------------- registration

// Defines operators whose kernels other files register.
template <typename... Ops>
void define(torch::Library& m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  (m.def(Form<Ops>::schema().c_str(), tags), ...);
}

// In a TORCH_LIBRARY_IMPL block: the kernel of the block's key.
template <typename Op, auto kernel>
void impl(torch::Library& m) {
  m.impl(detail::full_name<Op>().c_str(), detail::Kernel<Op, kernel>::run);
}

// In a TORCH_LIBRARY_FRAGMENT block: kernels of some keys. A type of `Keys` registers a kernel by
// its function add<Op>(m).
template <typename Op, typename... Keys>
void impl(torch::Library& m) {
  (Keys::template add<Op>(m), ...);
}

// Defines an operator and registers kernels.
template <typename Op, typename... Keys>
void register_op(torch::Library& m) {
  define<Op>(m);
  impl<Op, Keys...>(m);
}
// The same without the tag pt2_compliant_tag, for operators that no graph calls.
template <typename Op, typename... Keys>
void register_private_op(torch::Library& m) {
  m.def(Form<Op>::schema().c_str());
  impl<Op, Keys...>(m);
}

template <c10::DispatchKey key, auto kernel>
struct At {
  template <typename Op>
  static void add(torch::Library& m) {
    m.impl(detail::full_name<Op>().c_str(), torch::dispatch(key, detail::Kernel<Op, kernel>::run));
  }
};
template <auto kernel>
using Cpu = At<c10::DispatchKey::CPU, kernel>;
template <auto kernel>
using Cuda = At<c10::DispatchKey::CUDA, kernel>;
template <auto kernel>
using Meta = At<c10::DispatchKey::Meta, kernel>;
template <auto kernel>
using Autograd = At<c10::DispatchKey::Autograd, kernel>;
template <auto kernel>
using Batched = At<c10::DispatchKey::FuncTorchBatched, kernel>;

// An operator made of others. Without a kernel for vmap, it would be a loop over the
// examples.
template <auto kernel>
struct Composite {
  template <typename Op>
  static void add(torch::Library& m) {
    impl<Op, At<c10::DispatchKey::CompositeImplicitAutograd, kernel>, Batched<kernel>>(m);
  }
};

template <c10::DispatchKey key>
struct Fallthrough {
  template <typename Op>
  static void add(torch::Library& m) {
    m.impl(detail::full_name<Op>().c_str(),
           torch::dispatch(key, torch::CppFunction::makeFallthrough()));
  }
};

// A list of operators:
//
//   using Ops = OpList<ReduceMax, ReduceMin>;
//   Ops::for_each([&]<typename Op>() { impl<Op, reduce_cuda<Op>>(m); });
template <typename... Ops>
struct OpList {
  template <typename F>
  static void for_each(F f) {
    (f.template operator()<Ops>(), ...);
  }
};

// The overload of a kernel for an operator:
//
//   Ops::for_each([&]<typename Op>() { impl<Op, KernelOf<Op>(on_cpu)>(m); });
template <typename Op>
using KernelOf = typename Form<Op>::Result (*)(const Op&);

// ---------------------------------------------------------------- calls

template <typename Op>
typename Form<Op>::Result call(const Op& op) {
  return std::apply(
      [](auto&&... args) -> typename Form<Op>::Result {
        return handle<Op>().call(std::forward<decltype(args)>(args)...);
      },
      Form<Op>::args(op));
}

template <typename Op>
typename Form<Op>::Result redispatch(const Op& op, c10::DispatchKeySet keys) {
  return std::apply(
      [&](auto&&... args) -> typename Form<Op>::Result {
        return handle<Op>().redispatch(keys, std::forward<decltype(args)>(args)...);
      },
      Form<Op>::args(op));
}

// Calls f for every tensor that is given.
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

// Calls the operator with map(tensor) in place of every tensor. For a tensor that the operator
// writes to, map takes and returns an at::Tensor&.
template <typename Op, typename Map>
typename Form<Op>::Result call_mapped(const Op& op, Map map) {
  const auto mapped = [&](auto&& argument) -> decltype(auto) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, at::Tensor>) {
      return map(argument);
    } else if constexpr (std::is_same_v<Argument, std::optional<at::Tensor>>) {
      const bool given = argument.has_value() && argument->defined();
      return given ? std::optional<at::Tensor>(map(std::as_const(*argument))) : std::nullopt;
    } else {
      return std::forward<decltype(argument)>(argument);
    }
  };
  return std::apply(
      [&](auto&&... arguments) -> typename Form<Op>::Result {
        return handle<Op>().call(mapped(std::forward<decltype(arguments)>(arguments))...);
      },
      Form<Op>::args(op));
}

}  // namespace gpuopt
