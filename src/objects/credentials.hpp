// With what requests to an S3 service are signed.
#pragma once
#include <string>

namespace kvmserver::objects {

struct Credentials {
    std::string key_id, secret;
    std::string session_token; // "": none
};

// Reads the profile [default] of a file of AWS's form. Throws UserError, which begins with `option` and never contains
// a part of the file.
Credentials read_credentials(const std::string& option, const std::string& file);
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Throws UserError (usage) if the first two are not
// set; `hint` says what else would do.
Credentials credentials_of_environment(const std::string& hint);

} // namespace kvmserver::objects
