// Stands in for nlohmann/json, which torch's functorch headers include but torch does not ship.
// They use it to write their interpreter stack as text; nothing here calls that, so these
// declarations are all the compiler needs, and no definition exists to link against.
#pragma once

#include <string>

namespace nlohmann {

class json {
 public:
  json();
  template <typename T>
  explicit json(const T&);
  static json parse(const std::string&);
  std::string dump() const;
  template <typename T>
  T get() const;
};

}  // namespace nlohmann
