// Addresses of buckets, credentials, and lists of objects.
#include "src/objects/address.hpp"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "src/objects/bucket.hpp"
#include "src/objects/credentials.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::objects;

TEST_CASE("an address names a bucket, a prefix, an endpoint and a region") {
    const Address all = parse_address("--chunks", "s3://bucket/a/b/?endpoint=http://127.0.0.1:9000/&region=eu-west-1");
    CHECK(all.bucket == "bucket");
    CHECK(all.prefix == "a/b");
    CHECK(all.endpoint == "http://127.0.0.1:9000");
    CHECK(all.region == "eu-west-1");
    const Address least = parse_address("--chunks", "s3://bucket?endpoint=https://s3.example.com");
    CHECK(least.prefix.empty());
    CHECK(least.region == "us-east-1");
}

TEST_CASE("nonsense is no address") {
    for (const char* bad :
         {"", "bucket", "s3://", "s3://ab?endpoint=http://x", "s3://bucket", "s3://bucket?endpoint=", "s3://bucket?x=1",
          "s3://bucket?endpoint=ftp://x", "s3://bucket?endpoint=http://x/path", "s3://bucket/a//b?endpoint=http://x",
          "s3://bucket/..?endpoint=http://x", "s3://bucket/a b?endpoint=http://x", "s3://k:s@bucket?endpoint=http://x",
          "s3://bucket?endpoint=http://x&region="}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(parse_address("--chunks", bad), tinykvm::UserError);
    }
    try {
        parse_address("--chunks", "s3://key:hidden@bucket?endpoint=http://x");
        FAIL();
    } catch (const tinykvm::UserError& error) {
        CHECK(error.code() == tinykvm::ExitCode::usage);
        CHECK(std::string(error.what()).find("hidden") == std::string::npos);
    }
}

TEST_CASE("credentials are those of the profile [default]") {
    const store::test::TempFolder folder;
    const std::string file = (folder / "credentials").string();
    const auto write = [&](const std::string& text, mode_t mode = 0600) {
        std::ofstream(file) << text;
        REQUIRE(::chmod(file.c_str(), mode) == 0);
    };
    write("[other]\naws_access_key_id = no\n; a comment\n[default]\naws_access_key_id=ID\n"
          "aws_secret_access_key = SECRET\r\naws_session_token = TOKEN\n");
    const Credentials found = read_credentials("--chunks-credentials", file);
    CHECK(found.key_id == "ID");
    CHECK(found.secret == "SECRET");
    CHECK(found.session_token == "TOKEN");
    write("[default]\naws_access_key_id=ID\n");
    CHECK_THROWS_AS(read_credentials("--chunks-credentials", file), tinykvm::UserError);
    write("[default]\naws_access_key_id=ID\naws_secret_access_key=a b\n");
    CHECK_THROWS_AS(read_credentials("--chunks-credentials", file), tinykvm::UserError);
    write("[default]\naws_access_key_id=ID\naws_secret_access_key=S\n", 0644);
    CHECK_THROWS_AS(read_credentials("--chunks-credentials", file), tinykvm::UserError);
    CHECK_THROWS_AS(read_credentials("--chunks-credentials", file + ".no"), tinykvm::UserError);
}

TEST_CASE("a list of objects is read part by part") {
    const auto some =
        parse_list("<?xml?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated><Contents><Key>a&amp;b"
                   "</Key><Size>1</Size></Contents><Contents><Key>c</Key></Contents>"
                   "<NextContinuationToken>t/1=</NextContinuationToken></ListBucketResult>");
    REQUIRE(some);
    CHECK(some->keys == std::vector<std::string>{"a&b", "c"});
    CHECK(some->more == "t/1=");
    const auto none = parse_list("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
    REQUIRE(none);
    CHECK((none->keys.empty() && none->more.empty()));
    CHECK_FALSE(parse_list("<html>"));
    CHECK_FALSE(parse_list("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"));
}
