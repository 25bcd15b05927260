// Prints plans as JSON, for tests and tools. A struct names its members once, in a function of its
// namespace:
//
//   template <typename F>
//   void describe(const Plan& plan, F&& f) {
//     f("path", plan.path);
//     f("launch", plan.launch);
//   }
//
// Members may be numbers, names, pointers, divisors, further structs with describe(), and arrays,
// variants, optionals and unique pointers of these. Plain host C++.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <variant>

#include "common/index.h"
#include "common/launch_shape.h"

namespace gpuopt {

template <typename F>
void describe(const LaunchShape& shape, F&& f) {
  f("blocks", shape.blocks);
  f("threads", shape.threads);
  f("shared_bytes", shape.shared_bytes);
  f("use_pdl", shape.use_pdl);
  f("cluster", shape.cluster);
}

// An enumeration becomes a number, a pointer its address, a FastDiv its divisor, and a missing
// optional null.
template <typename T>
std::string to_json(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<int64_t>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return '"' + std::string(value) + '"';
  } else if constexpr (std::is_pointer_v<T>) {
    return std::to_string(reinterpret_cast<uintptr_t>(value));
  } else if constexpr (std::is_same_v<T, FastDiv>) {
    return std::to_string(value.divisor);
  } else if constexpr (requires { std::begin(value); }) {
    std::string items;
    for (const auto& item : value) items += (items.empty() ? "" : ", ") + to_json(item);
    return '[' + items + ']';
  } else if constexpr (requires { std::variant_size<T>::value; }) {
    return std::visit([](const auto& held) { return to_json(held); }, value);
  } else if constexpr (requires { *value; }) {
    return value ? to_json(*value) : "null";
  } else {
    std::string members;
    describe(value, [&](const char* name, const auto& member) {
      members += (members.empty() ? "\"" : ", \"") + std::string(name) + "\": " + to_json(member);
    });
    return '{' + members + '}';
  }
}

}  // namespace gpuopt
