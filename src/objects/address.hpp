// Where objects are: s3://BUCKET[/PREFIX]?endpoint=URL[&region=REGION]
#pragma once
#include <string>

namespace kvmserver::objects {

struct Address {
    std::string bucket;
    std::string prefix;   // without slashes at its ends; "": none
    std::string endpoint; // http://HOST[:PORT] or https://, without a path
    std::string region = "us-east-1";
    std::string text() const; // for messages
};

// Throws UserError (usage), which begins with `option`.
Address parse_address(const std::string& option, const std::string& text);

} // namespace kvmserver::objects
