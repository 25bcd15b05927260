// Typed handles of operators. The dispatcher looks each up once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#define GPUOPT_OP(handle, name, overload, ...)                               \
  inline const auto& handle() {                                              \
    static const auto op = c10::Dispatcher::singleton()                      \
                               .findSchemaOrThrow("gpuopt::" name, overload) \
                               .typed<__VA_ARGS__>();                        \
    return op;                                                               \
  }
