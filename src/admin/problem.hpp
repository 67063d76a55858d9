// Errors as replies of the API: application/problem+json (RFC 9457).
#pragma once
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "src/admin/request.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {

// A request that the API itself refuses.
class Refused : public tinykvm::UserError {
public:
    Refused(unsigned status, std::string code, const std::string& detail, std::string hint = "", Headers headers = {});
    unsigned status() const { return status_; }
    const std::string& code_name() const { return code_; }
    const std::string& hint() const { return hint_; }
    const Headers& headers() const { return headers_; }

private:
    unsigned status_;
    std::string code_, hint_;
    Headers headers_;
};

struct ProblemReply {
    unsigned status = 500;
    Headers headers;
    nlohmann::json document;
};

// The reply for an exception.
ProblemReply problem_of(std::exception_ptr error, const std::string& request_id);

} // namespace kvmserver::admin
