// Prints a plan as JSON. Its room has describe(plan, f), which calls f(name, value) for each field.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace gpuopt {

template <typename Plan>
std::string to_json(const Plan& plan);

inline std::string json_of(const std::string& text) { return '"' + text + '"'; }
template <typename T>
std::enable_if_t<std::is_arithmetic_v<T>, std::string> json_of(T value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  return std::to_string(value);
}
// A part of a plan.
template <typename T>
std::enable_if_t<std::is_class_v<T>, std::string> json_of(const T& part) {
  return to_json(part);
}
template <typename T>
std::string json_of(const std::vector<T>& values) {
  std::string list;
  for (const T& value : values) list += (list.empty() ? "" : ", ") + json_of(value);
  return "[" + list + "]";
}

template <typename Plan>
std::string to_json(const Plan& plan) {
  std::string fields;
  describe(plan, [&](const char* name, const auto& value) {
    fields += (fields.empty() ? "" : ", ") + json_of(name) + ": " + json_of(value);
  });
  return "{" + fields + "}";
}

}  // namespace gpuopt
