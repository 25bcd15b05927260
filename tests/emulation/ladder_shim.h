// Shared by the shims of ladders: a workspace of poisoned blocks, which detects writes past their
// ends.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>

#include "common/workspace.h"

namespace gpuopt {

struct PoisonedBlocks final : Workspace {
  static constexpr size_t kGuard = 256;
  static constexpr char kPoison = char(0xff);  // NaN

  void* allocate(size_t bytes) override {
    sizes.push_back(bytes);
    return begin(blocks.emplace_back(bytes + kGuard + 16, kPoison));
  }
  void release() override {}
  static char* begin(std::vector<char>& block) {
    return block.data() + (-reinterpret_cast<uintptr_t>(block.data()) & 15);
  }
  bool intact() {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const char* end = begin(blocks[i]) + sizes[i];
      if (std::count(end, end + kGuard, kPoison) != static_cast<std::ptrdiff_t>(kGuard))
        return false;
    }
    return true;
  }

  std::deque<std::vector<char>> blocks;
  std::vector<size_t> sizes;
};

}  // namespace gpuopt
