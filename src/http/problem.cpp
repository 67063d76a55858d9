#include "src/http/problem.hpp"

#include <nlohmann/json.hpp>

namespace kvmserver::http {

std::string_view status_title(unsigned status) {
    switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Error";
    }
}

Problem problem_of(const Fault& fault, request::Outcome outcome) {
    return {outcome, fault.status, fault.code, fault.detail};
}

std::string problem_reply(const Problem& problem, std::string_view request_id, bool close, bool head_request) {
    nlohmann::ordered_json document{{"title", status_title(problem.status)},
                                    {"status", problem.status},
                                    {"detail", problem.detail},
                                    {"code", problem.code},
                                    {"request_id", request_id}};
    if (!problem.hint.empty())
        document["hint"] = problem.hint;
    // An upstream's texts may contain a guest's bytes: replace invalid UTF-8 instead of throwing.
    const std::string body = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::string out = "HTTP/1.1 " + std::to_string(problem.status) + " ";
    out.append(status_title(problem.status)).append("\r\nContent-Type: application/problem+json\r\n");
    out.append("Content-Length: ").append(std::to_string(body.size())).append("\r\nCache-Control: no-store\r\n");
    if (problem.retry_after)
        out.append("Retry-After: ").append(std::to_string(*problem.retry_after)).append("\r\n");
    if (close)
        out.append("Connection: close\r\n");
    out.append("\r\n");
    return head_request ? out : out + body;
}

} // namespace kvmserver::http
