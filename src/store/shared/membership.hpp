// To which cluster a store belongs: the record `cluster` in its folder.
#pragma once
#include <optional>
#include <string>

#include "src/store/store.hpp"

namespace kvmserver::store {

struct Membership {
    std::string id;      // of the cluster
    std::string address; // of its index, for messages
    std::string node;    // id of this store among those of the cluster; "": the record is of a version without them
};

// nullopt: to none. Throws UserError (failure) if the record is damaged.
std::optional<Membership> membership_of(const Folder& folder);
// Durable when it returns.
void set_membership(Folder& folder, const Membership& membership);

// Throws Conflict if the store belongs to a cluster and this process, which is about to change it, does not know its
// index: the other daemons would not have the change.
void require_index_of_cluster(const Store& store);

} // namespace kvmserver::store
