// A queue in which each owner has its turn: one who asks for very much delays only himself.
#pragma once
#include <deque>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace kvmserver::daemon {

template <class T>
class FairQueue {
public:
    void push(const std::string& owner, T&& item) {
        auto& mine = items_[owner];
        if (mine.empty())
            turns_.push_back(owner);
        mine.push_back(std::move(item));
    }
    // The first of the owner whose turn it is. There must be one.
    T pop() {
        const auto mine = items_.find(turns_.front());
        T item = std::move(mine->second.front());
        mine->second.pop_front();
        if (mine->second.empty()) {
            items_.erase(mine);
            turns_.pop_front();
        } else {
            turns_.splice(turns_.end(), turns_, turns_.begin());
        }
        return item;
    }
    bool empty() const { return turns_.empty(); }

private:
    std::unordered_map<std::string, std::deque<T>> items_; // none is empty
    std::list<std::string> turns_;                         // owners that have items
};

} // namespace kvmserver::daemon
