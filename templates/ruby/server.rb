require "webrick"

server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 8080, AccessLog: [])
server.mount_proc("/") do |request, response|
  raise WEBrick::HTTPStatus::NotFound unless request.path == "/"

  response.content_type = "text/plain"
  response.body = "Hello #{request.query.fetch('name', 'world')} from Ruby\n"
end
server.start
