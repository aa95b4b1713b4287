// StrongId<Tag>: a 32-bit index that cannot be confused with another kind. IdMap<Id, T>: a side table over such ids.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

namespace ingot {

template <class Tag>
struct StrongId {
  uint32_t index = UINT32_MAX;
  constexpr StrongId() = default;
  constexpr explicit StrongId(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != UINT32_MAX; }
  constexpr explicit operator bool() const { return valid(); }
  constexpr auto operator<=>(const StrongId&) const = default;
};

template <class Id, class T>
class IdMap {
 public:
  IdMap() = default;
  explicit IdMap(size_t size, T fill = T()) : items_(size, fill), fill_(fill) {}
  T& operator[](Id id) {
    if (id.index >= items_.size()) items_.resize(id.index + 1, fill_);
    return items_[id.index];
  }
  const T& at(Id id) const { return id.index < items_.size() ? items_[id.index] : fill_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<T> items_;
  T fill_{};
};

}  // namespace ingot

template <class Tag>
struct std::hash<ingot::StrongId<Tag>> {
  size_t operator()(ingot::StrongId<Tag> id) const { return id.index; }
};
