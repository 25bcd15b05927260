// Reads and writes the members of plain structs by name, for tests and tools. A struct names its
// members once, in its body:
//
//   struct Dim {
//     int64_t size = 1, stride = 0;
//     GPUOPT_DESCRIBE(size, stride)
//   };
//
// A struct whose members have other names than its description defines describe(value, f) in its
// namespace, which calls f(name, member) for each.
//
// Members may be numbers, names, pointers, divisors, further structs of this kind, and arrays,
// variants, optionals and unique pointers of these. Plain host C++.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include "common/index.h"
#include "common/launch_shape.h"

// EXPAND(STEP(a, b)) is f("a", self.a); f("b", self.b); for up to 32 names. A macro can't name
// itself, so each step leaves AGAIN to the next expansion.
#define GPUOPT_DETAIL_PARENS ()
#define GPUOPT_DETAIL_EXPAND(...) GPUOPT_DETAIL_EXPAND3(GPUOPT_DETAIL_EXPAND3(__VA_ARGS__))
#define GPUOPT_DETAIL_EXPAND3(...) GPUOPT_DETAIL_EXPAND2(GPUOPT_DETAIL_EXPAND2(__VA_ARGS__))
#define GPUOPT_DETAIL_EXPAND2(...) GPUOPT_DETAIL_EXPAND1(GPUOPT_DETAIL_EXPAND1(__VA_ARGS__))
#define GPUOPT_DETAIL_EXPAND1(...) GPUOPT_DETAIL_EXPAND0(GPUOPT_DETAIL_EXPAND0(__VA_ARGS__))
#define GPUOPT_DETAIL_EXPAND0(...) __VA_ARGS__
#define GPUOPT_DETAIL_AGAIN() GPUOPT_DETAIL_STEP
#define GPUOPT_DETAIL_STEP(name, ...) \
  f(#name, self.name);                \
  __VA_OPT__(GPUOPT_DETAIL_AGAIN GPUOPT_DETAIL_PARENS(__VA_ARGS__))

#define GPUOPT_DESCRIBE(...)                              \
  template <typename Self, typename F>                    \
  static void describe_members(Self& self, F&& f) {       \
    GPUOPT_DETAIL_EXPAND(GPUOPT_DETAIL_STEP(__VA_ARGS__)) \
  }

namespace gpuopt {

template <typename F>
void describe(const LaunchShape& shape, F&& f) {
  f("blocks", shape.blocks);
  f("threads", shape.threads);
  f("shared_bytes", shape.shared_bytes);
  f("use_pdl", shape.use_pdl);
  f("cluster", shape.cluster);
}

// A struct that is read or written: template <Described<Problem> P, typename F> describe(P&, F&&).
template <typename P, typename T>
concept Described = std::is_same_v<std::remove_const_t<P>, T>;

// The members that GPUOPT_DESCRIBE lists.
template <typename T, typename F>
  requires requires(T& value, F&& f) { T::describe_members(value, f); }
void describe(T& value, F&& f) {
  std::remove_const_t<T>::describe_members(value, f);
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
  } else if constexpr (std::is_floating_point_v<T>) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.17g", static_cast<double>(value));
    return text;
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

// Values by the path of a member: "dims.0.size". `used` holds the paths that assign() found.
struct Values {
  std::map<std::string, double> numbers;
  std::set<std::string> used;
};

// Sets each member whose path has a value, and leaves the others. A double holds every size and
// address of a tensor.
template <typename T>
void assign(T& value, Values& values, const std::string& path = "") {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) {
    const auto found = values.numbers.find(path);
    if (found == values.numbers.end()) return;
    values.used.insert(path);
    if constexpr (std::is_pointer_v<T>) {
      value = reinterpret_cast<T>(static_cast<uintptr_t>(found->second));
    } else {
      value = static_cast<T>(found->second);
    }
  } else {
    const std::string prefix = path.empty() ? "" : path + '.';
    if constexpr (requires { std::begin(value); }) {
      size_t i = 0;
      for (auto& item : value) {
        // The dimensions of a problem are many, and the last ones have no values.
        const std::string name = prefix + std::to_string(i++);
        const auto next = values.numbers.lower_bound(name);
        if (next != values.numbers.end() && next->first.compare(0, name.size(), name) == 0) {
          assign(item, values, name);
        }
      }
    } else {
      describe(value,
               [&](const char* name, auto&& member) { assign(member, values, prefix + name); });
    }
  }
}

}  // namespace gpuopt
