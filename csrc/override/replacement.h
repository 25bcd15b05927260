// A replaced operator of ATen. Its kernel computes a call, or passes it on to the kernel beneath:
// the one that stood there before.
//
// An operator is described by a struct such as this one:
//
//   struct Amax {
//     using Aten = at::_ops::amax;
//     static constexpr Operator kOperator = operator_named("amax");
//     static Reason decide(const Tensor& self, at::IntArrayRef dim, bool keepdim);
//     static Tensor run(c10::DispatchKeySet key, const Tensor& self, ...);
//   };
//
// run() calls an operator of gpuopt with redispatch(key, ...). That is a table look-up, which skips
// autograd: ATen's autograd has handled the call. An operator whose plan may choose ATen declares
// kMayPassOn, and has attempt() instead of run(). Its second argument calls the kernel beneath. It
// returns nothing to pass the call on. A reference is returned as a std::reference_wrapper.
//
// An operator on sparse CSR matrices declares kSparseCsr. It is replaced at the key of these
// matrices, and computed at the key of their dense members. ATen may have no kernel there. Then a
// declined call raises an error, whose message ends with a text kTakes if the operator has one.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "binding/beneath.h"
#include "binding/op.h"
#include "override/operator.h"

namespace gpuopt::overriding {

// Tests change these settings to reach all code without a GPU.
struct Settings {
  std::atomic<c10::DispatchKey> key{c10::DispatchKey::CUDA};
  std::atomic<bool> always{false};  // take every supported call, however slow
};
inline Settings settings;

inline bool takes_always() { return settings.always.load(std::memory_order_relaxed); }

// True in a thread that computes a call here. ATen's operators that gpuopt calls meanwhile go to
// the kernels beneath. Without this, gpuopt's CPU kernels, which call ATen, would never end.
inline thread_local bool inside = false;

struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  // Autocast is still on below operators that it passes through. It must not convert operands of
  // operators that gpuopt calls.
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

class AnyReplacement {
 public:
  virtual ~AnyReplacement() = default;
  virtual Operator op() const = 0;
  // Registers the kernel, until the library is destroyed.
  virtual std::unique_ptr<torch::Library> replace(c10::DispatchKey key) = 0;
};

template <typename Op, typename Schema = typename Op::Aten::schema>
class Replacement;

template <typename Op, typename Result, typename... Args>
class Replacement<Op, Result(Args...)> final : public AnyReplacement {
 public:
  Operator op() const override { return Op::kOperator; }

  std::unique_ptr<torch::Library> replace(c10::DispatchKey dense_key) override {
    const c10::DispatchKey key = key_for(dense_key);
    find_beneath(key);
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__,
                                                 static_cast<uint32_t>(__LINE__));
    const std::string overload = Op::Aten::overload_name;
    const std::string name = Op::Aten::name + (overload.empty() ? "" : "." + overload);
    made->impl(name.c_str(), TORCH_FN(kernel));
    return made;
  }

 private:
  // Never freed, because a call may be in flight in another thread. A new object is made only where
  // another kernel than at the last use is beneath.
  static inline std::atomic<const c10::KernelFunction*> beneath{nullptr};

  static void keep_beneath(c10::KernelFunction found) {
    const c10::KernelFunction* known = beneath.load();
    if (known != nullptr && known->_equalsBoxedAndUnboxed(found)) return;
    beneath = new c10::KernelFunction(std::move(found));
  }

  static c10::DispatchKey key_for(c10::DispatchKey dense) {
    if constexpr (requires { Op::kSparseCsr; }) {
      switch (dense) {
        case c10::DispatchKey::CPU:
          return c10::DispatchKey::SparseCsrCPU;
        case c10::DispatchKey::Meta:
          return c10::DispatchKey::SparseCsrMeta;
        default:
          return c10::DispatchKey::SparseCsrCUDA;
      }
    } else {
      return dense;
    }
  }

  static void find_beneath(c10::DispatchKey key) {
    if (!handle().hasComputedKernelForDispatchKey(key)) {
      beneath = nullptr;
      return;
    }
    keep_beneath(computed_kernel(handle(), key));
  }

  static const c10::OperatorHandle& handle() {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::Aten::name, Op::Aten::overload_name);
    return op;
  }

  static std::string taken_text() {
    if constexpr (requires { Op::kTakes; }) {
      return c10::str(", and torch_ops.override takes ", Op::kTakes);
    }
    return "";
  }

  static Result call_beneath(c10::DispatchKeySet keys, Args... args) {
    const c10::KernelFunction* found = beneath.load(std::memory_order_acquire);
    TORCH_CHECK_NOT_IMPLEMENTED(found != nullptr, "Could not run '", Op::Aten::name,
                                "' with these arguments: PyTorch has no kernel for '",
                                key_for(settings.key), "'", taken_text());
    return found->template call<Result, Args...>(handle(), keys, std::forward<Args>(args)...);
  }

  // A plain function without a state that the dispatcher could free while another thread enters it.
  static Result kernel(c10::DispatchKeySet keys, Args... args) {
    if (inside) return call_beneath(keys, std::forward<Args>(args)...);
    Reason reason = Op::decide(args...);
    if (reason == Reason::kTaken) {
      const c10::DispatchKeySet key(settings.key.load(std::memory_order_relaxed));
      if constexpr (requires { Op::kMayPassOn; }) {
        const auto rest = [&](Args... passed) -> Result {
          return call_beneath(keys, std::forward<Args>(passed)...);
        };
        const Inside guard;
        auto result = Op::attempt(key, rest, args...);
        if (result.has_value()) {
          calls_of(Op::kOperator).add(Reason::kTaken);
          return *std::move(result);
        }
        reason = Reason::kAtenIsFaster;
      } else {
        const Inside guard;
        calls_of(Op::kOperator).add(Reason::kTaken);
        return Op::run(key, args...);
      }
    }
    calls_of(Op::kOperator).add(reason);
    return call_beneath(keys, std::forward<Args>(args)...);
  }
};

// An operator of ATen whose arguments are the arguments of operator GpuoptOp.
template <typename AtenOp, Operator op, typename GpuoptOp, auto decision>
struct Same {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  template <typename... Args>
  static Reason decide(const Args&... args) {
    return decision(args...);
  }
  template <typename... Args>
  static typename GpuoptOp::Result run(c10::DispatchKeySet key, const Args&... args) {
    return redispatch(GpuoptOp{args...}, key);
  }
};

}  // namespace gpuopt::overriding
