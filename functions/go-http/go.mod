module kvmserver/functions/go-http

go 1.19
