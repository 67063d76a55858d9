// Certificates of the public listener. The store keeps them and does not look into them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/store/store.hpp"

namespace kvmserver::store {

struct Certificate {
    std::string name;
    std::string chain, key; // PEM
    std::int64_t changed = 0;
    bool operator==(const Certificate&) const = default;
};

class Certificates {
public:
    explicit Certificates(Store& store) : store_(store) {}
    // Takes the place of one with the same name. Returns the time of the change. Throws BadValue (the name, or the most
    // that the store keeps).
    std::int64_t put(const std::string& name, const std::string& chain, const std::string& key);
    void remove(const std::string& name); // throws NotFound
    std::vector<Certificate> list();      // in the order in which they were put
    // Another number after each change, also of another process.
    std::int64_t revision();

private:
    Store& store_;
};

// Of one with its key, and of all. They are in one record, which has kMaxRecordBytes at most.
inline constexpr std::size_t kMaxCertificateBytes = 64 << 10, kMaxCertificatesBytes = 16 << 20;

} // namespace kvmserver::store
