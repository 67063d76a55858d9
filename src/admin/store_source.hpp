// Where the API gets its store from.
#pragma once
#include <filesystem>

#include "src/store/store.hpp"

namespace kvmserver::admin {

// Thread-safe.
class StoreSource {
public:
    virtual ~StoreSource() = default;
    virtual std::filesystem::path path() const = 0;
    virtual store::Store* get() = 0;  // null: there is no store yet
    virtual store::Store& make() = 0; // creates the store if need be
};

// A source whose store is already open.
class OpenStore final : public StoreSource {
public:
    // `store` outlives this object.
    OpenStore(std::filesystem::path path, store::Store& store) : path_(std::move(path)), store_(store) {}
    std::filesystem::path path() const override { return path_; }
    store::Store* get() override { return &store_; }
    store::Store& make() override { return store_; }

private:
    std::filesystem::path path_;
    store::Store& store_;
};

} // namespace kvmserver::admin
