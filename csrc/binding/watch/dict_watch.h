// Whether Python's dicts have changed. Python 3.12 and newer tell a callback
// (docs.python.org/3/c-api/dict.html, PyDict_Watch). The bindings aren't linked to Python, and may
// be loaded without it, so the functions are looked up.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpuopt {

struct DictWatch {
  std::atomic<bool> unchanged{false};
  std::vector<void*> dicts;
  bool is_complete = false;  // whether Python tells of all that were given
};

// Everything here is never freed, because dicts still change while the interpreter ends.
class DictWatches {
 public:
  static DictWatches& get() {
    static auto* const watches = new DictWatches;
    return *watches;
  }

  // Watches the dicts at some addresses. They must be alive. Where Python can't tell, the watch
  // never says that they are unchanged.
  std::shared_ptr<DictWatch> add(const std::vector<int64_t>& addresses) {
    auto watch = std::make_shared<DictWatch>();
    if (!python_.is_complete() || addresses.empty()) return watch;
    const Gil gil(python_);
    if (!has_watcher()) return watch;
    for (const int64_t address : addresses) {
      void* const dict = reinterpret_cast<void*>(address);
      if (python_.watch(watcher_, dict) != 0) {
        python_.clear_error();
        return watch;
      }
      const std::lock_guard lock(mutex_);
      watch->dicts.push_back(dict);
      by_dict_[dict].push_back(watch);
    }
    watch->is_complete = true;
    return watch;
  }

  // Says that the dicts are as they were, or that they are not.
  static void note(DictWatch& watch, bool unchanged) {
    watch.unchanged = unchanged && watch.is_complete;
  }

  void remove(const std::shared_ptr<DictWatch>& watch) {
    if (watch->dicts.empty()) return;
    const Gil gil(python_);
    for (void* const dict : watch->dicts) {
      {
        const std::lock_guard lock(mutex_);
        const auto found = by_dict_.find(dict);
        if (found == by_dict_.end()) continue;  // it was freed
        auto& others = found->second;
        others.erase(std::remove(others.begin(), others.end(), watch), others.end());
        if (!others.empty()) continue;
        by_dict_.erase(found);
      }
      if (python_.unwatch(watcher_, dict) != 0) python_.clear_error();
    }
  }

 private:
  // The order of locks: the interpreter's, then mutex_.
  struct Python {
    using Callback = int (*)(int event, void* dict, void* key, void* value);

    template <typename Function>
    static Function find(const char* name) {
      return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    }

    bool is_complete() const {
      return add_watcher && watch && unwatch && ensure && release && clear_error;
    }

    int (*add_watcher)(Callback) = find<int (*)(Callback)>("PyDict_AddWatcher");
    int (*watch)(int, void*) = find<int (*)(int, void*)>("PyDict_Watch");
    int (*unwatch)(int, void*) = find<int (*)(int, void*)>("PyDict_Unwatch");
    int (*ensure)() = find<int (*)()>("PyGILState_Ensure");
    void (*release)(int) = find<void (*)(int)>("PyGILState_Release");
    void (*clear_error)() = find<void (*)()>("PyErr_Clear");
  };

  struct Gil {
    explicit Gil(const Python& python) : python(python), state(python.ensure()) {}
    ~Gil() { python.release(state); }
    Gil(const Gil&) = delete;
    const Python& python;
    int state;
  };

  // Python has eight watchers for all libraries together.
  bool has_watcher() {
    if (watcher_ == kNone) {
      watcher_ = python_.add_watcher(on_event);
      if (watcher_ < 0) python_.clear_error();
    }
    return watcher_ >= 0;
  }

  // Python calls this before a watched dict changes.
  static int on_event(int event, void* dict, void*, void*) {
    constexpr int kDeallocated = 5;  // PyDict_EVENT_DEALLOCATED
    auto& self = get();
    const std::lock_guard lock(self.mutex_);
    const auto found = self.by_dict_.find(dict);
    if (found == self.by_dict_.end()) return 0;
    for (const auto& watch : found->second) watch->unchanged = false;
    if (event == kDeallocated) self.by_dict_.erase(found);
    return 0;
  }

  static constexpr int kNone = -2;
  const Python python_;
  int watcher_ = kNone;
  std::mutex mutex_;
  std::unordered_map<void*, std::vector<std::shared_ptr<DictWatch>>> by_dict_;
};

}  // namespace gpuopt
