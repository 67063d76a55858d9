// The store's identity towards a bucket: a prefix of a bucket belongs to one store.
#pragma once
#include <optional>
#include <string>

#include "src/store/files/folder.hpp"

namespace kvmserver::store {

// nullopt: the store has never used a bucket. Throws UserError (failure) if the record is damaged.
std::optional<std::string> bucket_owner(const Folder& folder);
// Durable when it returns.
void set_bucket_owner(Folder& folder, const std::string& id);

} // namespace kvmserver::store
