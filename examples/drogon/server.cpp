// A web server whose tenants are programs that it does not trust: see README.md.
#include <drogon/drogon.h>
#include <tinykvm/tinykvm.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kPageBytes = 64 << 10;

struct Page {
    drogon::HttpStatusCode status;
    std::string text;
};

class Tenant {
public:
    Tenant(const std::string& program, bool keeps_state)
        : image_(tinykvm::Image::boot(tinykvm::Program(program).set("max-request-time", "1"))),
          on_get_(image_.function<std::size_t(std::string_view, tinykvm::Out<char>, std::size_t)>("on_get")) {
        if (keeps_state)
            kept_ = std::make_unique<tinykvm::Machine>(image_);
    }

    Page get(const std::string& path) {
        if (!kept_)
            return call(own_machine(), path);
        const std::lock_guard lock(mutex_); // one machine, whose state all requests share
        Page page = call(*kept_, path);
        if (page.status != drogon::k200OK)
            kept_->reset(); // it begins anew
        return page;
    }

private:
    Page call(tinykvm::Machine& machine, const std::string& path) const {
        thread_local std::vector<char> page(kPageBytes);
        const auto bytes = machine.call(on_get_, path, tinykvm::Out<char>{page}, page.size());
        if (bytes && *bytes <= page.size())
            return {drogon::k200OK, {page.data(), *bytes}};
        if (!bytes && bytes.fault().kind == tinykvm_outcome_kind::TINYKVM_TIMED_OUT)
            return {drogon::k504GatewayTimeout, "the tenant took too long\n"};
        if (!bytes)
            std::fprintf(stderr, "%s\n", bytes.fault().message.c_str());
        return {drogon::k500InternalServerError, "the tenant failed\n"};
    }

    // A machine belongs to one thread at a time: each thread of the server has its own.
    tinykvm::Machine& own_machine() const {
        thread_local std::map<const Tenant*, tinykvm::Machine> machines;
        return machines.try_emplace(this, image_, tinykvm::Kind::ephemeral).first->second;
    }

    tinykvm::Image image_;
    tinykvm::Function<std::size_t(std::string_view, tinykvm::Out<char>, std::size_t)> on_get_;
    std::mutex mutex_;
    std::unique_ptr<tinykvm::Machine> kept_; // null: ephemeral
};

using Tenants = std::map<std::string, std::unique_ptr<Tenant>, std::less<>>;

// HOST=PROGRAM, or HOST=PROGRAM,keep
void add(Tenants& tenants, const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
        throw std::invalid_argument("'" + text + "' is not HOST=PROGRAM or HOST=PROGRAM,keep");
    std::string program = text.substr(equals + 1);
    const bool keep = program.ends_with(",keep");
    if (keep)
        program.resize(program.size() - 5);
    tenants[text.substr(0, equals)] = std::make_unique<Tenant>(program, keep);
}

int serve(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: server PORT HOST=PROGRAM[,keep]...\n");
        return 2;
    }
    Tenants tenants;
    for (int i = 2; i < argc; ++i)
        add(tenants, argv[i]);
    drogon::app()
        .addListener("127.0.0.1", static_cast<std::uint16_t>(std::stoi(argv[1])))
        .setThreadNum(2)
        .setDefaultHandler([&](const drogon::HttpRequestPtr& request,
                               std::function<void(const drogon::HttpResponsePtr&)>&& reply) {
            const std::string& host = request->getHeader("host");
            const auto tenant = tenants.find(host.substr(0, host.find(':')));
            const Page page = tenant == tenants.end() ? Page{drogon::k404NotFound, "no such tenant\n"}
                                                      : tenant->second->get(request->getOriginalPath());
            const auto response = drogon::HttpResponse::newHttpResponse();
            response->setStatusCode(page.status);
            response->setContentTypeCode(drogon::CT_TEXT_PLAIN);
            response->setBody(page.text);
            reply(response);
        })
        .run();
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return serve(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "server: %s\n", error.what());
        return 1;
    }
}
