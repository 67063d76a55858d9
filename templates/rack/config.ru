require "rack"

run lambda { |env|
  request = Rack::Request.new(env)
  next [404, { "content-type" => "text/plain" }, ["not found\n"]] unless request.path == "/"

  [200, { "content-type" => "text/plain" }, ["Hello #{request.params.fetch('name', 'world')} from Rack\n"]]
}
